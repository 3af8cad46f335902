"""`tailtap host`: what its commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tailtap.cli.options import known

if TYPE_CHECKING:
    from tailtap.host.knobs.purpose import Purpose
    from tailtap.host.knobs.tree import Tree

Function = TypeVar("Function", bound=Callable[..., None])
ROLES = ("bare-metal", "container", "vm-host", "vm-guest", "generator")
"""Those of `tailtap.host.knobs.purpose`, spelled here as they take long to import."""


def _knobs_and_groups() -> list[str]:
    from tailtap.host.knobs import KNOBS
    from tailtap.host.knobs.knob import GROUPS

    return [*GROUPS, *(knob.name for knob in KNOBS)]


also_option: Callable[[Function], Function] = click.option(
    "--with",
    "also",
    multiple=True,
    metavar="KNOB",
    shell_complete=known(_knobs_and_groups),
    help="Also take this knob, which is only there to compare; may be repeated.",
)


def purpose_options(function: Function) -> Function:
    """Add the options that say what the machine is to be ready for, and the names of knobs."""
    options = (
        click.argument(
            "names",
            nargs=-1,
            metavar="[GROUP|KNOB]...",
            shell_complete=known(_knobs_and_groups),
            help="Knobs, or groups of them, as docs/reference/host.md lists them; all by default.",
        ),
        click.option(
            "--role",
            metavar="ROLE",
            type=click.Choice(ROLES),
            help=f"What this machine is: {', '.join(ROLES)}; by default vm-guest in a virtual "
            "machine, bare-metal elsewhere.",
        ),
        click.option(
            "--cpus",
            metavar="LIST",
            help="The device's cores, as 2-5; by default those that the kernel isolates, else all "
            "but the first core.",
        ),
        click.option(
            "--housekeeping",
            metavar="LIST",
            help="The cores for everything else; by default all others.",
        ),
        click.option(
            "--interface",
            "interface",
            multiple=True,
            metavar="NAME",
            help="A network interface that packets come or go by; may be repeated. By default all "
            "that have a device.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def machine(
    role: str | None, cpus: str | None, housekeeping: str | None, interface: tuple[str, ...]
) -> tuple[Tree, Purpose]:
    """This machine, and what it is to be ready for."""
    from tailtap.host.knobs.purpose import Purpose
    from tailtap.host.knobs.tree import Tree

    tree = Tree(Path("/"))
    return tree, Purpose.of(tree, role, cpus, housekeeping, interface or None)


def sentence(purpose: Purpose) -> str:
    """The purpose in words."""
    from tailtap.base.units import ranges

    cores = f"CPUs {ranges(purpose.cpus)}" if purpose.cpus else "no CPU of its own"
    return f"{purpose.role}, device on {cores}, everything else on {ranges(purpose.housekeeping)}"

"""`tailtap host`: what its commands share."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.base.units import ranges
from tailtap.cli.command import Decorator, Function, known, together

if TYPE_CHECKING:
    from tailtap.host.knobs.tree import Purpose

ROLES = ("bare-metal", "container", "vm-host", "vm-guest", "generator")
"""Those of `tailtap.host.knobs.tree`, spelled here as they take long to import."""


def _knobs_and_groups() -> list[str]:
    from tailtap.host.knobs import KNOBS
    from tailtap.host.knobs.knob import GROUPS

    return [*GROUPS, *(knob.name for knob in KNOBS)]


also_option: Decorator = click.option(
    "--with",
    "also",
    multiple=True,
    metavar="KNOB",
    shell_complete=known(_knobs_and_groups),
    help="Also take this knob that is only there to compare; may be repeated.",
)


def purpose_options(function: Function) -> Function:
    """Add the names of knobs, and options that say what this machine is to be ready for.

    The function gets these as `tree` and `purpose`.
    """

    @functools.wraps(function)
    def of_purpose(
        *,
        role: str | None,
        cpus: str | None,
        housekeeping: str | None,
        interface: tuple[str, ...],
        **others: Any,
    ) -> Any:
        from tailtap.host.knobs.tree import Purpose, Tree

        tree = Tree(Path("/"))
        purpose = Purpose.of(tree, role, cpus, housekeeping, interface or None)
        return function(tree=tree, purpose=purpose, **others)

    return together(
        click.argument(
            "names",
            nargs=-1,
            metavar="[GROUP|KNOB]...",
            shell_complete=known(_knobs_and_groups),
            help="Knobs or groups of docs/reference/host.md; all by default.",
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
            help="The device's cores, as 2-5; by default the isolated ones, else all but the "
            "first.",
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
            help="A network interface of the packets; may be repeated. By default all with a "
            "device.",
        ),
    )(of_purpose)


def sentence(purpose: Purpose) -> str:
    """The purpose in words."""
    cores = f"CPU {ranges(purpose.cpus)}" if purpose.cpus else "no CPU of its own"
    rest = ranges(purpose.housekeeping)
    return f"{purpose.role}: the device on {cores}, everything else on CPU {rest}"

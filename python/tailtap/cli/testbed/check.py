"""`tailtap testbed check`: find out whether cables are as a testbed file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.measure.testbed.check import Found


@command(
    examples=(("sudo tailtap testbed check lab.yaml", "send packets over each cable of a testbed"),)
)
@click.argument("testbed", type=PATH, help="The testbed file (YAML).")
def check(testbed: Path, json: bool, quiet: bool) -> None:
    """Log in to all hosts of a testbed and send packets over each of its cables.

    Says which cables are dead, and which end at another card than the file says; and of the cards
    behind splitters, whether they stamp every packet in hardware. The cards are lent to network
    namespaces of their own meanwhile, and given back. Exit status 0 when all is as the
    file says, 1 when a cable is not, 3 when a host cannot be asked.
    """

    from tailtap.base.errors import MachineError
    from tailtap.measure.testbed import check as library
    from tailtap.measure.testbed.model import read_testbed
    from tailtap.records.record import printed

    found = library.check(read_testbed(testbed))
    if json:
        print(printed(found.record))
    else:
        print_found(found)
    if not found.reached:
        raise MachineError(next(host.said for host in found.hosts if host.kernel is None))
    if not found.right:
        sys.exit(1)


def print_found(found: Found) -> None:
    """Print the hosts, the cables, and what the cards behind splitters stamp."""
    from tailtap.cli.console import Table, columns

    hosts = Table(columns(("host", "kernel"), wrap=12))
    for host in found.hosts:
        hosts.add(host.name, host.kernel or "not reached")
    hosts.print()
    say()
    cables = Table(columns(("cable", "splitter", "answer", ""), wrap=12))
    for one in found.cables:
        splitter = "" if one.cable.splitter is None else str(one.cable.splitter)
        cables.add(" - ".join(map(str, one.cable.ends)), splitter, one.answer, one.said)
    cables.print()
    for card, said in found.stamping.items():
        say(f"{card}: {said}")

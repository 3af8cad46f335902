"""`tailtap testbed check`: find out whether cables are as a testbed file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.completing import experiment_files

if TYPE_CHECKING:
    from tailtap.testbed.check import Found


@command(
    examples=(("sudo tailtap testbed check lab.yaml", "send packets over each cable of a testbed"),)
)
@click.argument(
    "testbed", type=PATH, shell_complete=experiment_files, help="The testbed file (YAML)."
)
def check(testbed: Path, json: bool, quiet: bool) -> None:
    """Log in to all hosts of a testbed and send packets over each of its cables.

    Says which cables are dead, and which end at another card than the file says; and of the cards
    behind splitters, whether they stamp every packet in hardware. The cards are lent to network
    namespaces of their own meanwhile, and given back. Exit status 0 when all is as the
    file says, 1 when a cable is not, 3 when a host cannot be asked.
    """
    import json as json_module

    from tailtap.errors import MachineError
    from tailtap.testbed import check as library
    from tailtap.testbed.model import read_testbed

    found = library.check(read_testbed(testbed))
    if json:
        print(json_module.dumps(found.as_json()))
    else:
        _print(found)
    if not found.reached:
        raise MachineError(next(host.said for host in found.hosts if host.kernel is None))
    if not found.right:
        sys.exit(1)


def _print(found: Found) -> None:
    from rich.table import Table

    from tailtap.cli.console import print_table

    hosts = Table("host", "kernel", box=None, pad_edge=False)
    for host in found.hosts:
        hosts.add_row(host.name, host.kernel or "not reached")
    print_table(hosts)
    print()
    cables = Table("cable", "splitter", "answer", "", box=None, pad_edge=False)
    for one in found.cables:
        splitter = "" if one.cable.splitter is None else str(one.cable.splitter)
        cables.add_row(" - ".join(map(str, one.cable.ends)), splitter, one.answer, one.said)
    print_table(cables)
    for card, said in found.stamping.items():
        print(f"{card}: {said}")

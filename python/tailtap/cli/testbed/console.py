"""`tailtap testbed console`: show the serial console of a host of a testbed."""

from __future__ import annotations

from pathlib import Path

import click

from tailtap.cli.command import PATH, command


@command(examples=(("tailtap testbed console lab.yaml dut", "watch a host boot"),))
@click.argument("testbed", type=PATH, help="The testbed file (YAML).")
@click.argument("host", help="The name of a host in that file.")
def console(testbed: Path, host: str, json: bool, quiet: bool) -> None:
    """Show the serial console of a host of a testbed, and type into it.

    The key `console` of the host has the command. Without it, that of its controller is shown where
    `power` is of the kind ipmi; `~.` ends it. This program becomes the other one.
    """
    from tailtap.base.errors import InputError
    from tailtap.measure.testbed.console import attach
    from tailtap.measure.testbed.model import read_testbed

    if json:
        raise InputError("--json: a console is for a person: leave it out")
    hosts = read_testbed(testbed).hosts
    if host not in hosts:
        raise InputError(f"{testbed} has no host {host}: there are {', '.join(hosts)}")
    attach(host, hosts[host])

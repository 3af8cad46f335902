"""`tailtap testbed power`: switch a host of a testbed on and off."""

from __future__ import annotations

from pathlib import Path

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.terminal import say_whole

ACTIONS = ("status", "on", "off", "cycle")


@command(examples=(("tailtap testbed power lab.yaml dut cycle", "switch a hung host off and on"),))
@click.argument("testbed", type=PATH, help="The testbed file (YAML).")
@click.argument("host", help="The name of a host in that file.")
@click.argument(
    "action",
    type=click.Choice(ACTIONS),
    help="status tells whether it is on. off does not ask the host's kernel.",
)
def power(testbed: Path, host: str, action: str, json: bool, quiet: bool) -> None:
    """Switch a host of a testbed on and off, and print its state afterwards.

    The key `power` of the host says how: by IPMI, by Redfish, or by commands.
    """

    from tailtap.base.errors import InputError
    from tailtap.measure.testbed.model import read_testbed
    from tailtap.measure.testbed.power import power_of
    from tailtap.records.printed import PowerRecord
    from tailtap.records.record import printed

    hosts = read_testbed(testbed).hosts
    if host not in hosts:
        raise InputError(f"{testbed} has no host {host}: there are {', '.join(hosts)}")
    options = hosts[host].power
    if options is None:
        raise InputError(f"hosts.{host}.power: this key is missing: it says how").at(testbed)
    power = power_of(options)
    if action != "status":
        {"on": power.on, "off": power.off, "cycle": power.cycle}[action]()
    state = power.status()
    if json:
        print(printed(PowerRecord(host=host, power=state)))
    else:
        say_whole(state)

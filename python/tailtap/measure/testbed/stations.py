"""The station of each role of a testbed, what boots its hosts, and their serial consoles."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import NoReturn

from tailtap.base.errors import InputError
from tailtap.measure.roles import Stations
from tailtap.measure.roles.here import Here
from tailtap.measure.testbed.boot import checked
from tailtap.measure.testbed.boot.booting import Booting
from tailtap.measure.testbed.model import Host, Testbed
from tailtap.measure.testbed.power import IpmiPower, power_of
from tailtap.measure.testbed.ssh import SshStation
from tailtap.remote.local import require_program
from tailtap.remote.session import Station


def stations_of(testbed: Testbed) -> Stations:
    """The stations by role: one object for each host, which is reached when it is asked first."""
    hosts: dict[str, Station] = {}
    for name, host in testbed.hosts.items():
        far = host.ssh is not None
        hosts[name] = SshStation(name, host, testbed.ssh_config) if far else Here()
    return {role: hosts[name] for role, name in testbed.roles.model_dump().items()}


def booting_of(testbed: Testbed, name: str, tell: Callable[[str], None]) -> Booting | None:
    """What boots a host as runs ask; None where the testbed does not say how.

    It has a station of its own. `tell` is given a line for each step. Raises `InputError`.
    """
    if name not in testbed.hosts:
        raise InputError(f"the testbed has no host {name}: there are {', '.join(testbed.hosts)}")
    host = testbed.hosts[name]
    if host.boot is None:
        return None
    kind, options = checked(host.boot.own)
    power = None if host.power is None else power_of(host.power)
    station = SshStation(name, host, testbed.ssh_config)
    return Booting(station, host.boot, kind.open(name, options), power, tell)


def command_of(name: str, host: Host) -> list[str]:
    """The command that shows the console of a host. Raises `InputError` where nothing says it."""
    if host.console is not None:
        return shlex.split(host.console)
    power = None if host.power is None else power_of(host.power)
    if isinstance(power, IpmiPower):
        return power.command("sol", "activate")
    raise InputError(
        f"hosts.{name}.console: this key is missing: it is a command that shows the console"
    )


def attach(name: str, host: Host) -> NoReturn:
    """Become the program that shows the console. Raises `InputError` and `MachineError`."""
    words = command_of(name, host)
    program = require_program(words[0], f"hosts.{name}.console names it")
    os.execv(program, words)

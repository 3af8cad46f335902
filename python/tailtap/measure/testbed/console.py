"""The serial consoles of hosts."""

from __future__ import annotations

import os
import shlex
from typing import NoReturn

from tailtap.base.errors import InputError
from tailtap.measure.testbed.model import Host
from tailtap.measure.testbed.power import power_of
from tailtap.measure.testbed.power.ipmi import IpmiPower
from tailtap.remote.local import require_program


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

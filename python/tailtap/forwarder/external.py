"""`external`: any command that forwards, from a template with both ports filled in."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, Field

from tailtap.errors import MachineError
from tailtap.findings import Findings
from tailtap.forwarder.program import Program, Workplace
from tailtap.forwarder.setting import Asked, Need, Setting
from tailtap.host import Host
from tailtap.host.local import LocalHost
from tailtap.platform.dut import Dut
from tailtap.schema import Strict, Time
from tailtap.template import check_command, fill_in

PLACEHOLDERS = ("ingress", "egress", "cpu", "cpus", "folder")
"""What a template can say in braces: both ports, the first of the DuT's CPUs, all of them with
commas, and a folder for its files that is removed afterwards.
"""
VERSION_SECONDS = 10


def _check(template: str) -> str:
    return check_command(template, PLACEHOLDERS)


Command = Annotated[str, Field(max_length=10_000), AfterValidator(_check)]


class ExternalOptions(Strict):
    """The command, another one that tells its version, and how long its first packet may take."""

    command: Command
    version: Command | None = None
    ready: Time = 30_000_000_000


class ExternalForwarder:
    """A command that forwards until it is interrupted, on the DuT's CPUs."""

    Options: type[BaseModel] = ExternalOptions
    needs: Sequence[Need] = ()

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out whether the command is there, not what it needs in turn."""
        command = cast("ExternalOptions", options).command
        words = fill_in(command, dict.fromkeys(PLACEHOLDERS, "tt"))
        if findings.ask(_program, words, LocalHost()) is not None:
            findings.notes.append(f"dut.options.command: what {words[0]} needs is not looked into")

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`."""
        chosen = cast("ExternalOptions", options)
        cpus = ",".join(str(cpu) for cpu in dut.cpus)
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(Workplace(dut.host, setting))
            values = {"ingress": dut.ingress, "egress": dut.egress, "folder": place.path}
            values |= {"cpu": dut.cpus[0], "cpus": cpus}
            words = fill_in(chosen.command, values)
            _program(words, dut.host)
            version = None
            if chosen.version is not None:
                with contextlib.suppress(MachineError):
                    done = dut.host.run(fill_in(chosen.version, values), check=False)
                    version = next(iter((done.stdout or done.stderr).strip().splitlines()), None)
            return Program(
                place,
                "external",
                ["taskset", "--cpu-list", cpus, *words],
                stack=stack,
                ready_seconds=chosen.ready / 1e9,
                facts={"version": version},
            )


def _program(words: Sequence[str], host: Host) -> str:
    """The path of the command on `host`. Raises `MachineError` when it is missing."""
    return Need(words[0], "check dut.options.command").find(host)

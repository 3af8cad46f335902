"""`external`: any command that forwards, from a template with both ports filled in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, Field

from tailtap.kinds.check import Check
from tailtap.kinds.findings import Findings
from tailtap.kinds.template import check_command, fill_in
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.program import Program, WorkFolder
from tailtap.lab.forwarders.setting import Asked, Need, Serves, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.records.errors import MachineError
from tailtap.records.schema import Strict, Time
from tailtap.remote import Host
from tailtap.remote.local import LocalHost

PLACEHOLDERS = ("ingress", "egress", "cpu", "cpus", "folder")
"""The names that a template can have in braces: both ports, the first of the DuT's CPUs, all of
them with commas, and a folder for its files that is removed afterwards.
"""
VERSION_SECONDS = 10


def _check(template: str) -> str:
    return check_command(template, PLACEHOLDERS)


Command = Annotated[str, Field(max_length=10_000), AfterValidator(_check)]


class ExternalOptions(Strict):
    """The command, one that prints its version, and the time until its first packet."""

    command: Command = Field(
        description="The command. {ingress} and {egress}, the two ports, {cpu}, the first of the "
        "DuT's CPUs, {cpus}, all of them with commas, and {folder}, a folder for its files, are "
        "filled in; {{ is a brace.",
        examples=["tailtap forward {ingress} {egress} --cpu {cpu}"],
    )
    version: Command | None = Field(
        default=None,
        description="Another command, which prints the version. By default no version is stored.",
        examples=["my-forwarder --version"],
    )
    ready: Time = Field(
        default=30_000_000_000,
        description="How long it may take until the first packet comes through.",
        examples=["60 s"],
    )


class ExternalForwarder:
    """A command that forwards until it is interrupted, on the DuT's CPUs."""

    summary = "Any command that forwards between two interfaces until it is interrupted."
    documentation = "It runs on the DuT's CPUs."
    in_kernel = False
    routes = False
    serves: Serves = "pair"
    shares_cpus = False
    Options: type[BaseModel] = ExternalOptions
    needs: Sequence[Need] = ()

    def diagnose(self) -> Iterator[Check]:
        """Nothing: what it needs depends on its command."""
        return find_programs("external", self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out whether the command is there, but not what the command needs."""
        command = cast("ExternalOptions", options).command
        words = fill_in(command, dict.fromkeys(PLACEHOLDERS, "tt"))
        if findings.ask(_program, words, LocalHost()) is not None:
            findings.notes.append(
                f"dut.options.command: tailtap does not check what {words[0]} needs"
            )

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`."""
        chosen = cast("ExternalOptions", options)
        cpus = ",".join(str(cpu) for cpu in dut.cpus)
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            values = {"ingress": dut.ingress, "egress": dut.egress, "folder": work.path}
            values |= {"cpu": dut.cpus[0], "cpus": cpus}
            words = fill_in(chosen.command, values)
            _program(words, dut.host)
            version = None
            if chosen.version is not None:
                with contextlib.suppress(MachineError):
                    done = dut.host.run(fill_in(chosen.version, values), check=False)
                    version = next(iter((done.stdout or done.stderr).strip().splitlines()), None)
            return Program(
                work,
                "external",
                ["taskset", "--cpu-list", cpus, *words],
                stack=stack,
                ready_seconds=chosen.ready / 1e9,
                facts={"version": version},
            )


def _program(words: Sequence[str], host: Host) -> str:
    """The path of the command on `host`. Raises `MachineError` when it is missing."""
    return Need(words[0], "check dut.options.command").find(host)

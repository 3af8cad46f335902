"""`external`: any command that forwards, from a template with both ports filled in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
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
        foresee_command(cast("ExternalOptions", options).command, PLACEHOLDERS, findings)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`."""
        chosen = cast("ExternalOptions", options)
        values = {"ingress": dut.ingress, "egress": dut.egress}
        return started(dut, setting, chosen.command, chosen.version, values,
                       ready_seconds=chosen.ready / 1e9)  # fmt: skip


def foresee_command(template: str, placeholders: Sequence[str], findings: Findings) -> None:
    """Find out whether the command of a template is there."""
    words = fill_in(template, dict.fromkeys(placeholders, "tt"))
    if findings.ask(_program, words, LocalHost()) is not None:
        findings.notes.append(f"dut.options.command: tailtap does not check what {words[0]} needs")


def started(
    dut: Dut,
    setting: Setting,
    command: str,
    version: str | None,
    values: Mapping[str, str],
    *,
    ready_seconds: float,
    called: str = "forwarder",
) -> Program:
    """A command on the DuT's CPUs; `version` is one that prints its version.

    `values` are filled into both, besides ``cpu``, ``cpus`` and ``folder``. Messages say what the
    command is `called`. Raises `MachineError`.
    """
    cpus = ",".join(str(cpu) for cpu in dut.cpus)
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(WorkFolder(dut, setting))
        filled = {**values, "folder": work.path, "cpu": dut.cpus[0], "cpus": cpus}
        words = fill_in(command, filled)
        _program(words, dut.host)
        found = None
        if version is not None:
            with contextlib.suppress(MachineError):
                done = dut.host.run(fill_in(version, filled), check=False)
                found = next(iter((done.stdout or done.stderr).strip().splitlines()), None)
        return Program(
            work,
            "external" if called == "forwarder" else Path(words[0]).name,
            ["taskset", "--cpu-list", cpus, *words],
            stack=stack,
            ready_seconds=ready_seconds,
            facts={"version": found},
            called=called,
            held=called != "forwarder",
        )


def _program(words: Sequence[str], host: Host) -> str:
    """The path of the command on `host`. Raises `MachineError` when it is missing."""
    return Need(words[0], "check dut.options.command").find(host)

"""`external`: any command that forwards, from a template with both ports filled in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Protocol, cast

from pydantic import AfterValidator, BaseModel, Field

from tailtap.base.check import Check, Findings
from tailtap.base.errors import MachineError
from tailtap.base.schema import Strict, Time, check_command, fill_in
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.handed_over import PciDriver, foresee_handing, handed_over
from tailtap.lab.forwarders.program import Program, WorkFolder
from tailtap.lab.forwarders.setting import Asked, Need, Plain, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.remote import Host
from tailtap.remote.local import LocalHost

PLACEHOLDERS = ("ingress", "egress", "cpu", "cpus", "folder")
"""The names that a template can have in braces: both ports, the first of the DuT's CPUs, all of
them with commas, and a folder for its files that is removed afterwards.
"""
KEY = "dut.options.driver"
NO_COMMAND = "dut.options.command is missing: only an image (dut.image) has one of its own"


def _check(template: str) -> str:
    return check_command(template, PLACEHOLDERS)


Command = Annotated[str, Field(max_length=10_000), AfterValidator(_check)]


class ExternalOptions(Strict):
    """The command, one that prints its version, and the time until its first packet."""

    command: Command | None = Field(
        default=None,
        description="The command. {ingress} and {egress}, the two ports, {cpu}, the first of the "
        "DuT's CPUs, {cpus}, all of them with commas, and {folder}, a folder for its files, are "
        "filled in; {{ is a brace. Where dut.image has the files, that of "
        "the image is the default; it finds both ports as TAILTAP_INGRESS and TAILTAP_EGRESS.",
        examples=["tailtap forward {ingress} {egress} --cpu {cpu}"],
    )
    arguments: Command | None = Field(
        default=None,
        description="What follows the entry point of dut.image, in place of the image's own "
        "arguments, with the same filled in.",
        examples=["--in {ingress} --out {egress}"],
    )
    version: Command | None = Field(
        default=None,
        description="Another command, which prints the version. By default no version is stored.",
        examples=["my-forwarder --version"],
    )
    driver: PciDriver | None = Field(
        default=None,
        description="The driver that both ports are given before the command starts, and taken "
        "from afterwards: {ingress} and {egress} are their PCI addresses then. vfio-pci is for the "
        "network cards in dut.ports, and in a virtual machine with dut.iommu for whatever its "
        "ports are; uio_pci_generic is for those of one without.",
        examples=["vfio-pci"],
    )
    ready: Time = Field(
        default=30_000_000_000,
        description="How long it may take until the first packet comes through.",
        examples=["60 s"],
    )


class ExternalForwarder(Plain):
    """A command that forwards until it is interrupted, on the DuT's CPUs."""

    summary = "Any command that forwards between two interfaces until it is interrupted."
    documentation = "It runs on the DuT's CPUs."
    Options: type[BaseModel] = ExternalOptions

    def diagnose(self) -> Iterator[Check]:
        """Nothing: what it needs depends on its command."""
        return find_programs("external", self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out whether the command is there, but not what the command needs."""
        chosen = cast("ExternalOptions", options)
        if not asked.own_files:
            foresee_command(chosen.command, PLACEHOLDERS, findings)
        if chosen.driver is not None:
            foresee_handing(chosen.driver, asked, findings, KEY)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`."""
        chosen = cast("ExternalOptions", options)
        with contextlib.ExitStack() as stack:
            ports, facts = handed_over(dut, chosen.driver, setting, stack, KEY)
            values = dict(zip(("ingress", "egress"), ports, strict=True))
            ready = chosen.ready / 1e9
            program = started(dut, setting, chosen, values, ready_seconds=ready, beneath=stack)
            program.tell(facts)
            return program


class Commanded(Protocol):
    """Options with a command."""

    command: str | None
    arguments: str | None
    version: str | None


def foresee_command(template: str | None, placeholders: Sequence[str], findings: Findings) -> None:
    """Find out whether the command of a template is there."""
    if template is None:
        findings.problems.append(NO_COMMAND)
        return
    words = fill_in(template, dict.fromkeys(placeholders, "tt"))
    if findings.ask(_program, words, LocalHost()) is not None:
        findings.notes.append(f"dut.options.command: tailtap does not check what {words[0]} needs")


def started(
    dut: Dut,
    setting: Setting,
    chosen: Commanded,
    values: Mapping[str, str],
    *,
    ready_seconds: float,
    called: str = "forwarder",
    beneath: contextlib.ExitStack | None = None,
) -> Program:
    """The command that is `chosen` on the DuT's CPUs.

    `values` are filled in, besides ``cpu``, ``cpus`` and ``folder``. A command of an image finds
    them as variables as well. Messages say what the command is `called`. What is
    `beneath` it is closed when it has ended. Raises `MachineError`.
    """
    cpus = ",".join(str(cpu) for cpu in dut.cpus)
    with contextlib.ExitStack() as stack:
        if beneath is not None:
            stack.enter_context(beneath.pop_all())
        work = stack.enter_context(WorkFolder(dut, setting))
        filled = {**values, "folder": work.path, "cpu": dut.cpus[0], "cpus": cpus}
        command, arguments, version = (
            None if template is None else fill_in(template, filled)
            for template in (chosen.command, chosen.arguments, chosen.version)
        )
        if dut.own is not None:
            variables = {f"TAILTAP_{key.upper()}": value for key, value in values.items()}
            command = dut.own.words(command, arguments)
            words = dut.own.entering(command, variables)
            version = version and dut.own.entering(version, variables)
        elif command is not None:
            words = command
            _program(words, dut.host)
        else:
            raise MachineError(NO_COMMAND)
        found = None
        if version is not None:
            with contextlib.suppress(MachineError):
                host = dut.host if dut.own is None else LocalHost()
                done = host.run(version, check=False)
                found = next(iter((done.stdout or done.stderr).strip().splitlines()), None)
        return Program(
            work,
            "external" if called == "forwarder" else Path(command[0]).name,
            ["taskset", "--cpu-list", cpus, *words],
            stack=stack,
            ready_seconds=ready_seconds,
            facts={"version": found} | ({"command": command} if dut.own is not None else {}),
            called=called,
            held=called != "forwarder" and dut.own is None,
        )


def _program(words: Sequence[str], host: Host) -> str:
    """The path of the command on `host`. Raises `MachineError` when it is missing."""
    return Need(words[0], "check dut.options.command").find(host)

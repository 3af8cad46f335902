"""`external`: any command that forwards, from a template with both ports filled in."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from tailtap.base.errors import Check, Findings, MachineError
from tailtap.base.schema import Strict, Time, check_command, fill_in
from tailtap.host.net.pci import PciDriver
from tailtap.lab.forwarders.dpdk import foresee_handing, handed_over
from tailtap.lab.forwarders.setting import (
    AREA,
    READY_SECONDS,
    Asked,
    Need,
    Plain,
    Program,
    Serves,
    Setting,
    WorkFolder,
)
from tailtap.lab.generators.flows import CLIENT, SERVER
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.graphs import address_server
from tailtap.remote import Host, ProgramMissing
from tailtap.remote.local import LocalHost

PLACEHOLDERS = ("ingress", "egress", "cpu", "cpus", "folder")
"""The names that a template can have in braces: both ports, the first of the DuT's CPUs, all of
them with commas, and a folder for its files that is removed afterwards.
"""
KEY = "dut.options.driver"
NO_COMMAND = "dut.options.command is missing: only an image (dut.image) has one of its own"


Command = Annotated[
    str, Field(max_length=10_000), AfterValidator(lambda text: check_command(text, PLACEHOLDERS))
]


class ExternalOptions(Strict):
    """The command, one that prints its version, and the time until its first packet."""

    command: Command | None = Field(
        default=None,
        description="The command. {ingress} and {egress}, the two ports, {cpu}, the first of the "
        "DuT's CPUs, {cpus}, all of them with commas, and {folder}, a folder for its "
        "files, are filled in; {{ is a brace. By default that of dut.image, which "
        "finds the ports as TAILTAP_INGRESS and TAILTAP_EGRESS.",
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
        description="The driver that both ports are given for the command: {ingress} and {egress} "
        "are their PCI addresses then. vfio-pci is for the network cards in "
        "dut.ports, and in a virtual machine with dut.iommu; uio_pci_generic for "
        "those of one without.",
        examples=["vfio-pci"],
    )
    ready: Time = Field(
        default=30_000_000_000,
        description="How long it may take until the first packet comes through.",
        examples=["60 s"],
    )


class ExternalForwarder(Plain):
    """A command that forwards until it is interrupted, on the DuT's CPUs."""

    name = "external"
    summary = "Any command that forwards between two interfaces until it is interrupted."
    documentation = "It runs on the DuT's CPUs."
    Options: type[BaseModel] = ExternalOptions

    def foresee(self, options: ExternalOptions, asked: Asked, findings: Findings) -> None:
        if not asked.own_files:
            foresee_command(options.command, PLACEHOLDERS, findings)
        if options.driver is not None:
            foresee_handing(options.driver, asked, findings, KEY)

    def start(self, dut: Dut, options: ExternalOptions, setting: Setting) -> Program:
        with contextlib.ExitStack() as stack:
            ports, facts = handed_over(dut, options.driver, setting, stack, KEY)
            values = dict(zip(("ingress", "egress"), ports, strict=True))
            ready = options.ready / 1e9
            program = started(dut, setting, options, values, ready_seconds=ready, beneath=stack)
            program.tell(facts)
            return program


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
    chosen: ExternalOptions | ServerOptions,
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
    return Need(words[0], "check dut.options.command").find(host)


SERVER_PLACEHOLDERS = ("interface", "address", "client", "cpu", "cpus", "folder")
"""The names that a template can have in braces: the DuT's port, its address and that of the client,
the first of the DuT's CPUs, all of them with commas, and a folder for its files that is removed
afterwards."""
PROGRAMS = {"dnsmasq": "dnsmasq-base", "dnsperf": "dnsperf", "nginx": "nginx-light", "wrk": "wrk"}
"""The servers and clients of the examples, each with its Debian package."""
LISTENS = re.compile(r"(tcp|udp):([0-9]{1,5})")
POLL_SECONDS = 0.05
_LISTEN, _UNCONNECTED = 0x0A, 0x07
"""States of sockets in ``/proc/net/tcp`` and ``udp`` (include/net/tcp_states.h)."""


def _check_port(text: str) -> str:
    found = LISTENS.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 1 << 16:
        raise ValueError(f"{text!r} is no port: write it as 'tcp:80' or 'udp:53'")
    return text


ServerCommand = Annotated[
    str,
    Field(max_length=10_000),
    AfterValidator(lambda text: check_command(text, SERVER_PLACEHOLDERS)),
]


class ServerOptions(Strict):
    """The command, the port that it listens at, and how long that may take."""

    command: ServerCommand | None = Field(
        default=None,
        description="The command, which stays in the foreground. {interface}, the DuT's port, "
        "{address}, the address that clients ask, {client}, theirs, {cpu}, the first "
        "of the DuT's CPUs, {cpus}, all of them with commas, and {folder}, a folder "
        "for its files, are filled in; {{ is a brace. By default that of dut.image, "
        "which finds them as TAILTAP_INTERFACE, TAILTAP_ADDRESS and TAILTAP_CLIENT.",
        examples=["dnsmasq --keep-in-foreground --listen-address={address}"],
    )
    arguments: ServerCommand | None = Field(
        default=None,
        description="What follows the entry point of dut.image, in place of the image's own "
        "arguments, with the same filled in.",
        examples=["--listen {address}"],
    )
    listens: Annotated[str, AfterValidator(_check_port)] = Field(
        description="The port at which it listens when it is ready, tcp:NUMBER or udp:NUMBER.",
        examples=["udp:53"],
    )
    version: ServerCommand | None = Field(
        default=None,
        description="Another command, which prints the version. By default no version is stored.",
        examples=["dnsmasq --version"],
    )
    ready: Time = Field(
        default=30_000_000_000,
        description="How long it may take until it listens.",
        examples=["60 s"],
    )


class Server(Plain):
    """A command that answers until it is interrupted, on the DuT's CPUs."""

    name = "server"
    summary = "Any command that answers clients: a DNS or web server, say."
    documentation = (
        "The DuT has one port, and requests and answers pass the same link. It runs on the DuT's "
        "CPUs, and traffic.generator: external asks it. evaluation.match: transactions says how "
        "long requests waited for their answers. docs/howto/servers.md tells how."
    )
    serves: Serves = "clients"
    Options: type[BaseModel] = ServerOptions
    needs: Sequence[Need] = (Need("ip", "apt-get install iproute2"),)

    def diagnose(self) -> Iterator[Check]:
        missing = []
        for program, package in PROGRAMS.items():
            try:
                Need(program, package).find(LocalHost())
            except ProgramMissing:
                missing.append(program)
        if not missing:
            yield Check(AREA, "server", "ok", f"{', '.join(PROGRAMS)} of the examples are there")
            return
        remedy = f"apt-get install {' '.join(PROGRAMS[one] for one in missing)}"
        found = f"the examples need {', '.join(missing)}"
        yield Check(AREA, "server", "missing", found, remedy)

    def foresee(self, options: ServerOptions, asked: Asked, findings: Findings) -> None:
        if not asked.own_files:
            foresee_command(options.command, SERVER_PLACEHOLDERS, findings)

    def start(self, dut: Dut, options: ServerOptions, setting: Setting) -> Program:
        address_server(dut.host, dut.ingress, setting.ip)
        values = {"interface": dut.ingress}
        values |= {"address": SERVER[setting.ip], "client": CLIENT[setting.ip]}
        program = started(
            dut, setting, options, values, ready_seconds=READY_SECONDS, called="server"
        )
        try:
            _wait(program, dut, options)
        except BaseException:
            program.close()
            raise
        return program


def _wait(program: Program, dut: Dut, chosen: ServerOptions) -> None:
    """Return when it listens. Raises `MachineError`, which quotes what it said."""
    seconds = chosen.ready * dut.patience / 1e9
    deadline = time.monotonic() + seconds
    while not is_listening(dut.host, chosen.listens):
        if program.process.ended:
            raise MachineError(program.failure())
        if time.monotonic() > deadline:
            raise MachineError(
                f"nothing listens at {chosen.listens} after {seconds:g} s: is that the port of "
                f"dut.options.command? {program.failure()}"
            )
        time.sleep(POLL_SECONDS)


def is_listening(host: Host, port: str) -> bool:
    """Whether a socket of `host` listens at ``tcp:80`` or ``udp:53``, at any address."""
    protocol, _, number = port.partition(":")
    files = [f"/proc/net/{protocol}", f"/proc/net/{protocol}6"]
    state = _LISTEN if protocol == "tcp" else _UNCONNECTED
    rows = (line.split() for line in host.run(["cat", *files], check=False).stdout.splitlines())
    return any(
        row[1].endswith(f":{int(number):04X}") and int(row[3], 16) == state
        for row in rows
        if len(row) > 3 and row[0] != "sl"
    )

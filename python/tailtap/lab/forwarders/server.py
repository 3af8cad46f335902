"""`server`: any command that answers clients: the DuT has one port, and requests are measured."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, Field

from tailtap.base.check import Check, Findings
from tailtap.base.errors import MachineError
from tailtap.base.schema import Strict, Time, check_command
from tailtap.lab.forwarders.diagnosis import AREA
from tailtap.lab.forwarders.external import foresee_command, started
from tailtap.lab.forwarders.program import Program
from tailtap.lab.forwarders.setting import READY_SECONDS, Asked, Need, Plain, Serves, Setting
from tailtap.lab.generators.flows import CLIENT, SERVER
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.server import address_server
from tailtap.remote import Host, ProgramMissing
from tailtap.remote.local import LocalHost

PLACEHOLDERS = ("interface", "address", "client", "cpu", "cpus", "folder")
"""The names that a template can have in braces: the DuT's port, its address and that of the client,
the first of the DuT's CPUs, all of them with commas, and a folder for its files that is removed
afterwards."""
PROGRAMS = {"dnsmasq": "dnsmasq-base", "dnsperf": "dnsperf", "nginx": "nginx-light", "wrk": "wrk"}
"""The servers and clients of the examples, each with its Debian package."""
LISTENS = re.compile(r"(tcp|udp):([0-9]{1,5})")
POLL_SECONDS = 0.05
_LISTEN, _UNCONNECTED = 0x0A, 0x07
"""States of sockets in ``/proc/net/tcp`` and ``udp`` (include/net/tcp_states.h)."""


def _check(template: str) -> str:
    return check_command(template, PLACEHOLDERS)


def _check_port(text: str) -> str:
    found = LISTENS.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 1 << 16:
        raise ValueError(f"{text!r} is no port: write it as 'tcp:80' or 'udp:53'")
    return text


Command = Annotated[str, Field(max_length=10_000), AfterValidator(_check)]


class ServerOptions(Strict):
    """The command, the port that it listens at, and how long that may take."""

    command: Command | None = Field(
        default=None,
        description="The command, which stays in the foreground. {interface}, the DuT's port, "
        "{address}, the address that clients ask, {client}, theirs, {cpu}, the first of the DuT's "
        "CPUs, {cpus}, all of them with commas, and {folder}, a folder for its files, are filled "
        "in; {{ is a brace. Where dut.image has the files, that of the image is the default; it "
        "finds port and addresses as TAILTAP_INTERFACE, TAILTAP_ADDRESS and TAILTAP_CLIENT.",
        examples=["dnsmasq --keep-in-foreground --listen-address={address}"],
    )
    arguments: Command | None = Field(
        default=None,
        description="What follows the entry point of dut.image, in place of the image's own "
        "arguments, with the same filled in.",
        examples=["--listen {address}"],
    )
    listens: Annotated[str, AfterValidator(_check_port)] = Field(
        description="The port at which it listens when it is ready, tcp:NUMBER or udp:NUMBER.",
        examples=["udp:53"],
    )
    version: Command | None = Field(
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
        """Which programs of the examples are missing: it needs none of them itself."""
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

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out whether the command is there, but not what the command needs."""
        if not asked.own_files:
            foresee_command(cast("ServerOptions", options).command, PLACEHOLDERS, findings)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it, and return when it listens. Raises `MachineError`."""
        chosen = cast("ServerOptions", options)
        address_server(dut.host, dut.ingress, setting.ip)
        values = {"interface": dut.ingress}
        values |= {"address": SERVER[setting.ip], "client": CLIENT[setting.ip]}
        program = started(
            dut, setting, chosen, values, ready_seconds=READY_SECONDS, called="server"
        )
        try:
            _wait(program, dut, chosen)
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

"""Stamps by a program of others behind the splitters, such as MoonSniff's recorder.

It writes a capture before the DuT and one behind it, which are evaluated as ours are.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, field_validator

from tailtap.base.errors import Check, MachineError
from tailtap.base.schema import Reserved, Strict, Time, check_command, fill_in
from tailtap.host.changes.huge_pages import reservation
from tailtap.host.net.pci import PciDriver
from tailtap.lab.topology.graph import EGRESS, INGRESS
from tailtap.records.datapath import Tapped, TapsOfFlows
from tailtap.records.record import opened
from tailtap.remote import Host
from tailtap.remote.local import Process, require_program

if TYPE_CHECKING:
    from tailtap.lab.instruments.taps.kinds import Stamped
    from tailtap.lab.topology.lab import Lab

PLACEHOLDERS = ("before", "behind", "number_before", "number_behind", "output", "seconds")
KEYS = "tap.external"
MSCAP, PCAP = "mscap", "pcap"
MSCAP_BYTES = 12
"""A stamp and an id."""
PCAP_HEADER, PCAP_PACKET = 24, 16
"""Bytes before all packets of a pcap, and before each."""
PCAP_MAGIC = (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
"""How a little-endian one begins, with microseconds and with nanoseconds."""
STOP_SECONDS = 100.0
"""How long it may take to write what it holds; a question has its answer in 120 s."""
LONGEST_BEGIN = 100_000_000_000


class External(Strict):
    """How to call a program that stamps, and what it writes."""

    command: Annotated[
        str,
        Field(max_length=10_000),
        AfterValidator(lambda text: check_command(text, PLACEHOLDERS)),
    ] = Field(
        description="The command. {before} and {behind}, the two interfaces behind the splitters, "
        "or with driver their PCI addresses, whose numbers in DPDK are {number_before} and "
        "{number_behind}, {output}, how its files begin, and {seconds}, after which the run is "
        "over at the latest, are filled in; {{ is a brace. It is interrupted when the run is over.",
        examples=["MoonGen sniffer.lua {number_before} {number_behind} --output {output}"],
    )
    ingress: str = Field(
        default="-pre.mscap",
        description="How the file of the packets before the DuT goes on after {output}.",
        examples=["-pre.pcap"],
    )
    egress: str = Field(
        default="-post.mscap",
        description="The same of those behind it.",
        examples=["-post.pcap"],
    )
    driver: PciDriver | None = Field(
        default=None,
        description="The driver that both cards have meanwhile, for a command that drives them "
        "itself (DPDK): vfio-pci, or uio_pci_generic where there is no IOMMU.",
        examples=["vfio-pci"],
    )
    memory: Reserved = None
    ready: str | None = Field(
        default=None,
        description="What it prints when it is about to record. By default it is taken to record "
        "after `settle`.",
        examples=["ports are up"],
    )
    begin: Time = Field(
        default=60_000_000_000,
        description="How long it may take until it prints that.",
        examples=["30 s"],
    )
    settle: Time = Field(
        default=2_000_000_000,
        description="How long it then takes until it records.",
        examples=["500 ms"],
    )

    @field_validator("ingress", "egress")
    @classmethod
    def _format_is_known(cls, name: str) -> str:
        if "/" in name or name.rpartition(".")[2] not in (MSCAP, PCAP):
            raise ValueError(f"{name!r} is to end with .{MSCAP} or .{PCAP}")
        return name

    @field_validator("begin", "settle")
    @classmethod
    def _time_is_no_hour(cls, time_ns: int) -> int:
        if time_ns > LONGEST_BEGIN:
            raise ValueError("a run does not wait for longer than 100 s")
        return time_ns

    @property
    def whole(self) -> bool:
        """Whether it keeps packets, not their ids alone."""
        return not (self.ingress.endswith(MSCAP) and self.egress.endswith(MSCAP))


class ExternalTap:
    """The program of one flow, on the machine of the taps."""

    summary = "Any program that stamps behind splitters, as MoonSniff's: tap.external says which."
    documentation = (
        "It writes a capture before the DuT and one behind it, in mscap or pcap. Only on a testbed "
        "with splitters."
    )

    def __init__(
        self, options: External | None = None, lab: Lab | None = None, seconds: float = 0
    ) -> None:
        """The run in `lab` is over after `seconds`."""
        self._options, self._lab, self._seconds = options, lab, seconds
        self._stack = contextlib.ExitStack()
        self._folder = Path()

    def diagnose(self) -> Iterator[Check]:
        yield Check("taps", "external", "ok", "needs nothing of its own")

    def start(
        self,
        host: Host,
        folder: Path,
        flows: Sequence[Stamped],
        key: str = "",
        namespaces: Mapping[str, str] | None = None,
        snap: int | None = None,
        flush: str = "",
    ) -> Process:
        """Have it record the one flow; returns when it does. Raises `MachineError`."""
        [one] = flows
        options, lab = self._options, self._lab
        assert options is not None
        assert lab is not None
        ports = (one.flow.ingress, one.flow.egress)
        if options.memory is not None:
            change = reservation(options.memory, keys=KEYS)
            self._stack.enter_context(lab.journal.held(change))
        cards = [port.name for port in ports]
        if options.driver is not None:
            handed = (lab.handed_over(port, options.driver) for port in ports)
            cards = [self._stack.enter_context(card) for card in handed]
        self._folder = folder / one.folder
        output = self._folder / "recorder/latencies"
        output.parent.mkdir(parents=True)
        numbers = (sorted(cards).index(card) for card in cards)
        values = (*cards, *numbers, output, f"{self._seconds:.0f}")
        words = fill_in(options.command, dict(zip(PLACEHOLDERS, values, strict=True)))
        require_program(words[0], f"check {KEYS}.command")
        # As of a generator: standard output stays open until it ends.
        process = host.start(["sh", "-c", 'exec "$@" 3>&1 1>&2', "recorder", *words])
        try:
            _wait(process, options)
        except BaseException:
            process.close()
            raise
        return process

    def stop(self, process: Process) -> TapsOfFlows:
        """End it; what its captures have. Raises `MachineError` where one is missing."""
        options = self._options
        assert options is not None
        process.interrupt()
        process.wait(STOP_SECONDS)
        if not process.ended:
            raise MachineError(f"the recorder did not end within {STOP_SECONDS:g} s")
        found = {}
        for name, end in ((INGRESS, options.ingress), (EGRESS, options.egress)):
            written = self._folder / f"recorder/latencies{end}"
            if not written.is_file():
                raise MachineError(
                    f"the recorder wrote no {written.name}: it printed {process.last_errors()!r}"
                ).at(KEYS)
            kept = written.replace(self._folder / f"{name}.{end.rpartition('.')[2]}")
            told = {"file": kept.name, "seen": packets_in(kept), "lost": 0, "clock": "unknown"}
            found[name] = opened(f"the tap {name}", told, Tapped)
        shutil.rmtree(self._folder / "recorder")
        return {self._folder.name: found}

    def close(self) -> None:
        """Give cards and memory back."""
        self._stack.close()


def _wait(process: Process, options: External) -> None:
    """Return when it records. Raises `MachineError` where it ends, or does not say so."""
    deadline = time.monotonic() + options.begin / 1e9
    while options.ready is not None and options.ready not in process.errors():
        if process.ended:
            break
        if time.monotonic() > deadline:
            raise MachineError(
                f"the recorder did not print {options.ready!r} within {options.begin / 1e9:g} s: "
                f"it printed {process.last_errors()!r}: check {KEYS}.ready"
            )
        time.sleep(0.05)
    process.wait(options.settle / 1e9)
    if process.ended:
        raise MachineError(process.failure())


def packets_in(capture: Path) -> int:
    """How many packets a capture in mscap or pcap has."""
    if capture.suffix == f".{MSCAP}":
        return capture.stat().st_size // MSCAP_BYTES
    packets = 0
    with capture.open("rb") as file:
        little = file.read(PCAP_HEADER)[:4] in PCAP_MAGIC
        while len(head := file.read(PCAP_PACKET)) == PCAP_PACKET:
            packets += 1
            file.seek(struct.unpack("<8xI4x" if little else ">8xI4x", head)[0], 1)
    return packets

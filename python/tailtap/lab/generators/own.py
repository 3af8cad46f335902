"""tailtap's own generator, ``tailtap generate``: open loop, paced by the clock."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from tailtap.base.errors import Check, Findings, MachineError
from tailtap.base.schema import NoOptions
from tailtap.base.units import format_rate, ranges
from tailtap.host.facts.needs import AF_XDP, OPTIONS, missing_capabilities, refusal, require_socket
from tailtap.lab.generators.flows import Flows, Sending
from tailtap.lab.generators.pattern import Constant
from tailtap.records.datapath import GeneratorRecord, SeveralRecord
from tailtap.records.record import parsed, tag_of
from tailtap.remote import Host
from tailtap.remote.local import STOP_SECONDS, Process

if TYPE_CHECKING:
    from tailtap.lab.generators.model import Traffic

BACK_ENDS = {"af_packet": "AF_PACKET sockets", "af_xdp": "AF_XDP sockets"}
"""How it hands packets to an interface."""
PROBE_RATE = 1_000
PROBE_PACKETS = 5
DOUBTFUL_RATE = 1_000_000
"""More packets a second than this are too many for one CPU of many machines."""


class OwnGenerator:
    """Threads that send each packet of all flows at its scheduled time."""

    def __init__(self, back_end: str) -> None:
        self._back_end = back_end
        self.summary = f"tailtap's own generator, which sends through {BACK_ENDS[back_end]}."
        self.documentation = (
            "Open loop: a thread on traffic.cpu, or one on each of traffic.cpus, sends each packet "
            "at its scheduled time, and says how late each left. Flows that have these CPUs in "
            "common are sent by the same threads. `tailtap generate` is the same generator."
        )
        self.Options: type[BaseModel] = NoOptions

    def diagnose(self) -> Iterator[Check]:
        area, name, required = "generators", self._back_end, self._back_end == "af_packet"
        family = int(socket.AF_PACKET) if required else AF_XDP
        error = refusal(family)
        if error is None:
            yield Check(area, name, "ok", "a socket can be opened", required=required)
        elif error.errno in (errno.EPERM, errno.EACCES):
            remedy = "run it with sudo"
            yield Check(area, name, "untested", "not permitted", remedy, required)
        else:
            remedy = f"a kernel with {OPTIONS[family]}"
            yield Check(area, name, "missing", str(error.strerror), remedy, required)

    def foresee(self, traffic: Traffic, findings: Findings) -> None:
        paced = traffic.replay is None or traffic.replay.pace == "rate"
        threads = len(traffic.senders)
        if paced and traffic.rate > DOUBTFUL_RATE * threads:
            findings.notes.append(
                f"traffic.rate: {format_rate(traffic.rate)} leaves each CPU of the generator "
                f"{1_000_000_000 * threads // traffic.rate} ns a packet: `tailtap generate "
                "INTERFACE --how-fast` measures what it can. A run whose generator falls behind is "
                "invalid, and ends after about twice its time"
            )
        if self._back_end == "af_xdp" and not missing_capabilities():
            findings.ask(require_socket, "AF_XDP", AF_XDP)

    def start(self, host: Host, sendings: Sequence[Sending]) -> Sequence[Process]:
        return [host.start(self._command(host, sendings))]

    def probe(self, host: Host, sendings: Sequence[Sending]) -> None:
        """Send a few warm-up packets of each and return: they have no id and enter no statistic.

        They are sent through the network stack: a card whose driver takes frames from the memory of
        AF_XDP is reset for that. Raises `MachineError` when they cannot be sent.
        """
        probe = {"rate": PROBE_RATE, "pattern": Constant(), "duration": 0, "pause": 0}
        probe |= {"warm_up": 0, "warm_up_packets": PROBE_PACKETS, "replay": None}
        short = [Sending(one.port, one.traffic.model_copy(update=probe)) for one in sendings]
        host.run(OwnGenerator("af_packet")._command(host, short))

    def result(self, processes: Sequence[Process]) -> Sequence[GeneratorRecord]:
        [process] = processes
        told, place = process.read_object(STOP_SECONDS), process.title
        if told.get("schema") == tag_of(SeveralRecord):
            return parsed(place, told, SeveralRecord, MachineError).flows
        return [parsed(place, told, GeneratorRecord, MachineError)]

    def _command(self, host: Host, sendings: Sequence[Sending]) -> list[str]:
        cpus = ranges(sendings[0].traffic.senders)
        command = [*host.program, "generate", "--json", "--cpu", cpus]
        for place, sending in enumerate(sendings):
            command += [*(["--next"] if place else []), *self._flow(sending.port, sending.traffic)]
        return command

    def _flow(self, port: str, traffic: Traffic) -> list[str]:
        options: dict[str, object] = {
            "rate": f"{traffic.rate} pkt/s",
            "pattern": traffic.pattern.text(),
            "duration": f"{traffic.duration} ns",
            "warm-up": None if traffic.warm_up_packets else f"{traffic.warm_up} ns",
            "warm-up-packets": traffic.warm_up_packets or None,
            "pause": f"{traffic.pause} ns",
            "generator": self._back_end,
            **(_ours(traffic) if traffic.replay is None else {"replay": traffic.replay.file}),
        }
        flags: list[str] = []
        if traffic.replay is not None:
            flags += ["--stamp-ids"] if traffic.replay.ids == "stamp" else []
            if traffic.replay.pace == "own":
                options["rate"] = None
        words = [port, *flags]
        for name, value in options.items():
            words += [] if value is None else [f"--{name}", str(value)]
        return words


def _ours(traffic: Traffic) -> dict[str, object]:
    size = (
        traffic.size
        if isinstance(traffic.size, str)
        else ",".join(f"{size} B" for size in traffic.sizes)
    )
    if isinstance(traffic.flows, Flows):
        flows = traffic.flows.model_dump()
    else:
        flows = {"flows": traffic.flows}
    return {"size": size, "ip": traffic.ip, "vlan": traffic.vlan, "ttl": traffic.ttl, **flows}

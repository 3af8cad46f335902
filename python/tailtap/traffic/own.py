"""tailtap's own generator, ``tailtap generate``: open loop, paced by the clock."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tailtap.check import Check
from tailtap.findings import Findings
from tailtap.machine.privileges import missing_capabilities
from tailtap.machine.sockets import AF_XDP, OPTIONS, refusal, require_socket
from tailtap.schema import NoOptions
from tailtap.stations import Host
from tailtap.stations.process import STOP_SECONDS, Process
from tailtap.traffic.flows import Flows
from tailtap.traffic.pattern import Constant

if TYPE_CHECKING:
    from tailtap.traffic.model import Traffic

BACK_ENDS = {"af_packet": "AF_PACKET sockets", "af_xdp": "AF_XDP sockets"}
"""How it hands packets to an interface."""
PROBE_RATE = 1_000
PROBE_PACKETS = 5


class OwnGenerator:
    """One thread that sends each packet at its scheduled time."""

    def __init__(self, back_end: str) -> None:
        """A generator that hands packets over by `back_end`."""
        self._back_end = back_end
        self.summary = f"tailtap's own generator, which sends through {BACK_ENDS[back_end]}."
        self.documentation = (
            "Open loop: one thread on traffic.cpu sends each packet at its scheduled time, and "
            "says how late each left. `tailtap generate` is the same generator."
        )
        self.Options: type[BaseModel] = NoOptions

    def diagnose(self) -> Iterator[Check]:
        """Try to open one of its sockets."""
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
        """Find out whether this kernel has such sockets."""
        if self._back_end == "af_xdp" and not missing_capabilities():
            findings.ask(require_socket, "AF_XDP", AF_XDP)

    def start(self, host: Host, port: str, traffic: Traffic) -> Process:
        """Send `traffic` into `port`, warm-up first. Raises `MachineError`."""
        return host.start(self._command(host, port, traffic))

    def probe(self, host: Host, port: str, traffic: Traffic) -> None:
        """Send a few warm-up packets and return: they have no id and enter no statistic.

        Raises `MachineError` when they cannot be sent.
        """
        probe = {"rate": PROBE_RATE, "pattern": Constant(), "duration": 0, "pause": 0}
        probe |= {"warm_up": 0, "warm_up_packets": PROBE_PACKETS, "replay": None}
        host.run(self._command(host, port, traffic.model_copy(update=probe)))

    def result(self, process: Process) -> dict[str, Any]:
        """The content of ``generator.json``. Raises `MachineError` when there is none."""
        return process.read_object(STOP_SECONDS)

    def _command(self, host: Host, port: str, traffic: Traffic) -> list[str]:
        options: dict[str, object] = {
            "rate": f"{traffic.rate} pkt/s",
            "pattern": traffic.pattern.text(),
            "duration": f"{traffic.duration} ns",
            "warm-up": None if traffic.warm_up_packets else f"{traffic.warm_up} ns",
            "warm-up-packets": traffic.warm_up_packets or None,
            "pause": f"{traffic.pause} ns",
            "cpu": traffic.cpu,
            "generator": self._back_end,
            **(_ours(traffic) if traffic.replay is None else {"replay": traffic.replay.file}),
        }
        flags: list[str] = []
        if traffic.replay is not None:
            flags += ["--stamp-ids"] if traffic.replay.ids == "stamp" else []
            if traffic.replay.pace == "own":
                options["rate"] = None
        command = [*host.program, "generate", port, "--json", *flags]
        for name, value in options.items():
            command += [] if value is None else [f"--{name}", str(value)]
        return command


def _ours(traffic: Traffic) -> dict[str, object]:
    """The options that describe tailtap's own packets."""
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

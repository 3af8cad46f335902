"""Our own generator, ``tailtap generate``: open loop, paced by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailtap.findings import Findings
from tailtap.host import Host
from tailtap.host.privileges import missing_capabilities
from tailtap.host.process import STOP_SECONDS, Process
from tailtap.host.sockets import AF_XDP, require_socket
from tailtap.traffic.flows import Flows
from tailtap.traffic.pattern import Constant

if TYPE_CHECKING:
    from tailtap.traffic.model import Traffic

PROBE_RATE = 1_000
PROBE_PACKETS = 5


class OwnGenerator:
    """One thread that sends each packet at its scheduled time."""

    def __init__(self, back_end: str) -> None:
        """A generator that hands packets over by `back_end`."""
        self._back_end = back_end

    def foresee(self, traffic: Traffic, findings: Findings) -> None:
        """Find out whether this kernel has its sockets."""
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
    """What packets of our own look like, as options."""
    size = (
        traffic.size
        if isinstance(traffic.size, str)
        else ",".join(f"{size} B" for size in traffic.sizes)
    )
    if isinstance(traffic.flows, Flows):
        flows = traffic.flows.model_dump()
    else:
        flows = {"flows": traffic.flows}
    return {"size": size, "ip": traffic.ip, "vlan": traffic.vlan, **flows}

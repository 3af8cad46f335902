"""Constant bit rate by ``tailtap generate``: open loop, paced by the clock."""

from __future__ import annotations

from typing import Any

from tailtap.host import Host
from tailtap.host.process import STOP_SECONDS, Process
from tailtap.traffic.model import Traffic

PROBE_RATE = 1_000
PROBE_NS = 5_000_000


class ConstantRate:
    """One thread that sends each packet at its scheduled time."""

    def start(self, host: Host, port: str, traffic: Traffic) -> Process:
        """Send `traffic` into `port`, warm-up first. Raises `MachineError`."""
        return host.start(_command(host, port, traffic))

    def probe(self, host: Host, port: str, traffic: Traffic) -> None:
        """Send a few warm-up packets and return: they have no id and enter no statistic.

        Raises `MachineError` when they cannot be sent.
        """
        probe = {"rate": PROBE_RATE, "duration": 0, "warm_up": PROBE_NS}
        host.run(_command(host, port, traffic.model_copy(update=probe)))

    def result(self, process: Process) -> dict[str, Any]:
        """The content of ``generator.json``. Raises `MachineError` when there is none."""
        return process.read_object(STOP_SECONDS)


def _command(host: Host, port: str, traffic: Traffic) -> list[str]:
    command = [*host.program, "generate", port, "--json", "--rate", f"{traffic.rate} pkt/s"]
    command += ["--size", f"{traffic.size} B", "--duration", f"{traffic.duration} ns"]
    command += ["--warm-up", f"{traffic.warm_up} ns", "--flows", str(traffic.flows)]
    return [*command, "--cpu", str(traffic.cpu)]

"""Short measurements one after the other in one lab, each with or without somebody who watches.

The lab is that of `tailtap run`: a generator on CPU 0, taps, and tc-mirred on CPU 1. As it is made
once, a measurement of half a second takes little more than that, so that many take turns.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailtap.lab.forwarders import FORWARDERS, Setting
from tailtap.lab.generators.model import Traffic
from tailtap.lab.instruments.taps.kinds import TAPS, Stamped
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.topology.graphs import FORWARD
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.placement import Placement
from tailtap.records.stamps import read_stamps

SENDER, SERVER = 0, 1
"""The CPUs of the generator and of the device."""
SIDES = ("ingress", "egress")
"""Where packets are stamped."""
WARM_UP = "200 ms"
SETTLE_SECONDS = 0.05
"""How long packets may be under way after the last one was sent."""

Watch = Callable[["OneLab"], contextlib.AbstractContextManager[Any]]
"""Watches the device while packets are sent."""


@dataclass(frozen=True)
class Measured:
    """One measurement: times in ns."""

    median: int
    p999: int
    slip_p99: int


class OneLab:
    """A lab that stands."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Builds the device in it."""
        self.folder = folder
        self.networks = lab.networks
        self._flow = lab.graph.flow(FORWARD)
        self._taps = lab.host(self._flow.ingress.node)
        self._generator = lab.host(self._flow.generator.node)

    @classmethod
    @contextlib.contextmanager
    def standing(cls, folder: Path) -> Iterator[OneLab]:
        """One that forwards."""
        kind, forwarder = PLATFORMS["bare-metal"], FORWARDERS["tc-mirred"]
        spec = DutSpec((SERVER,), kind.Options(), placement=Placement((SERVER,)))
        devices = alike(kind, spec, 1)
        with Lab(graph_of(devices)) as lab:
            [node] = build(lab, devices)
            lab.wait_until_up()
            sent = {FORWARD: Traffic.model_validate({})}
            forwarder.start(node, forwarder.Options(), Setting(lab, folder, sent, in_line=False))
            yield cls(lab, folder)

    def measure(self, rate: int, seconds: float, watch: Watch) -> Measured:
        """Sends so many packets a second while somebody watches."""
        tap = TAPS["inline"]
        stamped = Stamped(self._flow, int(rate * seconds) + 20_000)
        for name in SIDES:
            (self.folder / f"{name}.stamps").unlink(missing_ok=True)  # a tap writes over no file
        taps = tap.start(self._taps, self.folder, [stamped])
        try:
            with watch(self):
                said = self._generator.run(
                    [
                        *(*self._generator.program, "generate", self._flow.generator.name),
                        *("--rate", f"{rate} pkt/s", "--duration", f"{seconds} s"),
                        *("--warm-up", WARM_UP, "--cpu", str(SENDER), "--json"),
                    ]
                )
                time.sleep(SETTLE_SECONDS)
            tap.stop(taps)
        finally:
            taps.close()
        slip = {row["p"]: row["value"] for row in json.loads(said.stdout)["slip_ns"]["percentiles"]}
        median, p999 = self._latencies(0.5, 0.999)
        return Measured(median, p999, slip[0.99])

    def _latencies(self, *shares: float) -> list[int]:
        """Percentiles of the packets that came through, by nearest rank."""
        sides = [read_stamps(self.folder / f"{name}.stamps") for name in SIDES]
        _, came, left = np.intersect1d(sides[0]["id"], sides[1]["id"], return_indices=True)
        taken = np.sort((sides[1]["time_ns"][left] - sides[0]["time_ns"][came]).astype(np.int64))
        return [int(taken[int(np.ceil(share * taken.size)) - 1]) for share in shares]

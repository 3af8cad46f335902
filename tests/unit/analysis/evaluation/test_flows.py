"""Losses and latencies by flow, and what lost packets have in common."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from captures import frame, pcap
from numpy.typing import NDArray

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.flows import heavy_loss
from tailtap.analysis.evaluation.loss_patterns import Arrivals, loss_patterns
from tailtap.analysis.evaluation.values import Exceedances, Losses
from tailtap.records.evaluation import LossPattern

START = 1_700_000_000_000_000_000
SOURCE_PORT = 34
"""Where it stands in a `frame`."""
FLOWS, KEPT = 17_000, 16_384


def test_flows_beyond_the_bound_are_one(tmp_path: Path) -> None:
    """Each packet is of a flow of its own, and some are lost."""
    before = []
    for flow in range(FLOWS):
        data = frame(flow)
        data = data[:SOURCE_PORT] + struct.pack(">H", 1_000 + flow) + data[SOURCE_PORT + 2 :]
        before.append((START + flow * 50_000, data))
    lost = range(25, FLOWS, 50)
    after = [(time + 7_000, data) for flow, (time, data) in enumerate(before) if flow not in lost]
    (tmp_path / "in.pcap").write_bytes(pcap(before))
    (tmp_path / "out.pcap").write_bytes(pcap(after))
    found = evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap", flows=True)
    assert found.flows is not None and len(found.flows) == KEPT + 1
    others = found.flows[-1]
    counts = others.flow, others.packets, others.lost
    assert counts == ("other flows", FLOWS - KEPT, sum(flow >= KEPT for flow in lost))


Mask = NDArray[np.bool_]
PACKETS, WIDTH_NS = 40_000, 1 << 18
SLOW_NS, FAST_NS = 100_000, 25_000
"""Gaps between packets: twice as many packets come in the fast stretches as in the slow ones."""


@dataclass
class Traffic:
    """Packets of 40 flows and six lengths, slow and fast in turn, and when some of them waited."""

    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.flow = self.rng.integers(0, 40, PACKETS)
        self.length = self.rng.choice([60, 128, 300, 576, 1200, 1514], PACKETS)
        # Of 300 packets each, so that the two never keep step with what has a period.
        self.fast = np.arange(PACKETS) // 300 % 3 > 0
        gaps = self.rng.exponential(np.where(self.fast, FAST_NS, SLOW_NS))
        self.time = 10**18 + gaps.cumsum().astype(np.int64)
        self.position = np.arange(PACKETS)
        self.stalls = np.sort(self.rng.choice(self.time, 30, replace=False))
        self.stalled = np.zeros(PACKETS, dtype=bool)
        for begin in self.stalls:
            self.stalled |= (self.time > begin) & (self.time < begin + 2_000_000)

    def chance(self, share: float, among: Mask | None = None) -> Mask:
        lost = self.rng.random(PACKETS) < share
        return lost if among is None else lost & among

    def patterns(self, lost: Mask) -> list[LossPattern]:
        names = np.array([f"udp 10.0.0.1:{1000 + one} > 10.0.1.1:53" for one in range(40)])
        position = self.position[lost]
        run = np.flatnonzero(np.diff(position, prepend=-2) != 1)
        sizes = np.diff(np.append(run, len(position)))
        blocks = np.unique(self.time // WIDTH_NS * WIDTH_NS, return_counts=True)
        flows = [str(one) for one in names[self.flow[lost]]]
        return loss_patterns(
            Losses(
                self.time[lost], position, self.length[lost], np.repeat(sizes, sizes), flows, flows
            ),
            Arrivals(
                Counter(names[self.flow].tolist()),
                Counter(self.length.tolist()),
                WIDTH_NS,
                blocks,
            ),
            Exceedances(
                1_000_000, np.arange(30), self.stalls, np.full(30, 2_000_000, dtype=np.int64)
            ),
        )


def bursts(traffic: Traffic) -> Mask:
    """Ten stretches of 40 packets, wherever."""
    lost = np.zeros(PACKETS, dtype=bool)
    for begin in traffic.rng.choice(PACKETS // 1000, 10, replace=False) * 1000:
        lost[begin : begin + 40] = True
    return lost


RULES: dict[str, tuple[Callable[[Traffic], Mask], set[str], str]] = {
    "a flow": (lambda t: t.flow == 7, {"flow"}, r"of flow udp \S+1007 > \S+ are lost; no other"),
    "two flows": (lambda t: np.isin(t.flow, [7, 9]), {"flow"}, r"of 2 flows \(udp .* are lost; no"),
    "a flow, and chance": (
        lambda t: (t.flow == 7) | t.chance(0.002), {"flow"}, r"1007 > \S+ are lost$",
    ),
    "some of a flow": (
        lambda t: t.chance(0.1, t.flow == 3), {"flow"}, r"only packets of flow udp 10.0.0.1:1003",
    ),
    "long ones": (lambda t: t.length > 576, {"length"}, r"only frames of more than 576 bytes"),
    "some long ones": (
        lambda t: t.chance(0.01, t.length == 1514), {"length"}, r"frames of more than 1,200 bytes",
    ),
    "one in 100": (lambda t: t.position % 100 == 17, {"period"}, r"one packet in 100 is lost"),
    "bursts": (bursts, {"bursts"}, r"400 packets are lost in 10 bursts, 40 in a row at most"),
    "with load": (lambda t: t.chance(0.01, t.fast), {"load"}, r"loss comes with load: \d+ %"),
    "with stalls": (lambda t: t.chance(0.3, t.stalled), {"stall"}, r"comes with stalls: \d+ %"),
    "a flow, with load": (
        lambda t: (t.flow == 7) | t.chance(0.01, t.fast), {"flow", "load"}, r"loss comes with load",
    ),
    "few": (lambda t: t.position % 9_000 == 5, set(), r"^$"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_found(rule: str) -> None:
    lose, kinds, text = RULES[rule]
    traffic = Traffic(np.random.default_rng(7))
    lost = lose(traffic)
    found = traffic.patterns(lost)
    # Losses within a stretch of time are bursts, too.
    assert {one.kind for one in found} - {"bursts"} == kinds - {"bursts"}
    assert re.search(text, "\n".join(one.text for one in found))
    assert all(0 < one.lost <= lost.sum() for one in found)


@pytest.mark.parametrize("share", [0.0005, 0.005, 0.05])
def test_chance_has_no_pattern(share: float) -> None:
    made = (Traffic(np.random.default_rng(seed)) for seed in range(20))
    assert [traffic.patterns(traffic.chance(share)) for traffic in made] == [[]] * 20


@pytest.mark.parametrize("flows", ["long", "short", "in two outages alone"])
def test_an_outage_comes_with_nothing_else(flows: str) -> None:
    """Not with the flows that come and go, all of whose packets outages may take."""
    for seed in range(20):
        traffic = Traffic(np.random.default_rng(seed))
        lost = bursts(traffic)
        if flows == "short":
            traffic.flow = (np.arange(PACKETS) // 1000 + traffic.flow % 3) % 40
        elif flows != "long":
            traffic.flow %= 39
            traffic.flow[np.flatnonzero(lost)[:80:4]] = 39
        assert {one.kind for one in traffic.patterns(lost)} == {"bursts"}


@pytest.mark.parametrize(
    ("kind", "generated", "code", "advice"),
    [
        ("load", True, "overload", "; lower traffic.rate, or let `tailtap search` find"),
        ("load", False, "overload", None),
        ("flow", True, "heavy-loss", None),
        ("flow", False, "heavy-loss", None),
        (
            "bursts",
            True,
            "heavy-loss",
            "; a lower traffic.rate, or `tailtap search`, shows",
        ),
        ("bursts", False, "heavy-loss", None),
    ],
)
def test_only_loss_with_load_is_overload(
    kind: str, *, generated: bool, code: str, advice: str | None
) -> None:
    pattern = LossPattern(kind=kind, lost=342, text="what was seen")  # type: ignore[arg-type]
    found = heavy_loss(342, 10_000, [pattern], generated=generated, dropped=7)
    assert found is not None and found.code == code
    assert ": what was seen; the kernel dropped 7 packets in full queues" in found.message
    assert ("traffic.rate" in found.message) == (advice is not None)
    assert advice is None or advice in found.message


@pytest.mark.parametrize(("patterns", "says"), [([], True), (None, False)])
def test_loss_without_a_pattern_says_how_much(
    patterns: list[LossPattern] | None, *, says: bool
) -> None:
    found = heavy_loss(11, 10_000, patterns, generated=False)
    assert found is not None and found.message.startswith("more than 0.1 % of the packets were")
    assert ("the lost packets have nothing in common" in found.message) == says
    assert heavy_loss(10, 10_000, patterns, generated=False) is None

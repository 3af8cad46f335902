"""What makes a run invalid or doubtful: each condition just beyond its limit, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from made_records import counts, side

from tailtap.experiment.model import Experiment
from tailtap.lab.instruments.taps.inline import of_links
from tailtap.lab.topology.graphs import FORWARD, REVERSE
from tailtap.measure.quality import Measured, Sent, external_rate, lost_heavily, warnings_of
from tailtap.measure.roles import OfFlow
from tailtap.records.datapath import GeneratorRecord, Tapped
from tailtap.records.record import Notice, Open, opened
from tailtap.records.run import Found
from tailtap.records.warnings import is_valid
from tests.simulation.draw import Draw
from tests.simulation.trial import Trial

PACKETS = 10_000
SAID_ONCE = {"generator-slip", "stamps-lost", "tap-drops"}
"""What follows where a generator does not reach its rate is said with that."""
OF_GENERATORS = {"generator-rate", "generator-slip", "failed-sends", "without-id"}
OF_TAPS: Mapping[str, Mapping[str, Any]] = {
    "stamps-lost": {"lost": 1},
    "tap-drops": {"dropped": 1},
    "egress-deferred": {"late": 1},
    "tap": {"warnings": ["its clock is another one"]},
}
IDLE = {"dropped": 0, "received_rps": 0, "softirq_net_rx": 9}


def generator(draw: Draw, wrong: set[str], limit_ns: int) -> Open[GeneratorRecord]:
    """What it says of itself, with these faults by one packet, one packet a second or 1 ns."""
    hundredth = draw.magnitude("hundredth of the rate", 10, 50_000)
    late = limit_ns + ("generator-slip" in wrong)
    content = {
        "sent": PACKETS,
        "rate": 1_000_000,  # that of a pattern's bursts: it is held to its schedule
        "scheduled_rate": 100.0 * hundredth,
        "achieved_rate": 99.0 * hundredth + (-1 if "generator-rate" in wrong else 1),
        "failed": int("failed-sends" in wrong),
        "with_id": PACKETS - int("without-id" in wrong),
        "slip_ns": {"percentiles": [{"p": 0.99, "value": late}]},
    }
    return opened("generator.json", content, GeneratorRecord)


def measured_run(draw: Draw) -> None:
    """A run of one flow or two, over a device or a wire."""
    flows = (FORWARD, REVERSE) if draw.has("two directions", 0.3) else (FORWARD,)
    wire, steal = draw.has("no device", 0.2), draw.has("steal", 0.2)
    shared, elsewhere = draw.has("shared-cpu", 0.2), draw.has("work-elsewhere", 0.2)
    limit_ns = draw.magnitude("slip limit", 1_000, 1_000_000)
    experiment = Experiment.model_validate({
        "name": "made",
        "dut": {"platform": "wire" if wire else "bare-metal", "cpus": [1, 2]},
        "traffic": {"cpu": 2 if shared else 0, "slip_limit": f"{limit_ns} ns"},
    })  # fmt: skip
    here = draw.between("received by the first", 0, PACKETS)
    processed = (PACKETS, here, PACKETS * len(flows) - here - elsewhere)
    softnet = {str(cpu): {**IDLE, "processed": count} for cpu, count in enumerate(processed)}
    said: dict[str, Sent] = {}
    expected: dict[str, set[str]] = {}
    for flow in flows:
        every = sorted(OF_GENERATORS | OF_TAPS.keys())
        wrong = {code for code in every if draw.has(f"{code} {flow}", 0.2)}
        of_generator = generator(draw, wrong, limit_ns)
        if draw.has(f"a generator that says nothing {flow}", 0.2):
            untold = dict.fromkeys(("sent", "failed", "scheduled_rate", "achieved_rate", "slip_ns"))
            of_generator = opened("generator.json", {**untold, "rate": 1}, GeneratorRecord)
            wrong -= OF_GENERATORS
        taps: dict[str, dict[str, Any]] = {
            name: {"file": name, "seen": PACKETS, "lost": 0} for name in ("ingress", "egress")
        }
        for code in sorted(wrong & OF_TAPS.keys()):
            taps[draw.choice(f"tap of {code}", tuple(taps))] |= OF_TAPS[code]
        read = {name: opened(name, tap, Tapped) for name, tap in taps.items()}
        known = {name: tap.known for name, tap in read.items()}
        told = list(of_links(known, experiment.graph().flow("forward")))
        of_flow = OfFlow(taps=read, warnings=told, files=[], points=[])
        said[flow] = Sent(of_generator, of_flow)
        expected[flow] = wrong - (SAID_ONCE if "generator-rate" in wrong else set())
    of_run = {"steal"} if steal else set()
    of_run |= {"shared-cpu"} if shared and not wire else set()
    of_run |= {"work-elsewhere"} if elsewhere and not wire else set()
    run_ = Measured(said, Found(softnet=softnet), [Notice("steal", "")] * steal)
    for flow, codes in expected.items():
        found = warnings_of(experiment, run_, flow)
        assert sorted(one.code for one in found) == sorted(codes | of_run)
        assert is_valid(found) == codes.isdisjoint({"generator-rate", "generator-slip"})


def external(draw: Draw) -> None:
    """The generator of others is held to a tenth of the rate by the tap before the device."""
    rate = draw.magnitude("asked", 1_000, 1_000_000)
    off = float(draw.stream("off").choice([0.89, 0.91, 1.0, 1.09, 1.11]))
    gaps = draw.choice("gaps", (10, PACKETS))
    last = round(1e9 * gaps / (rate * off))
    content = {"generator": "external", "external": {"command": "x"}, "rate": f"{rate} pkt/s"}
    experiment = Experiment.model_validate({"name": "a", "dut": {}, "traffic": content})
    said = external_rate(experiment.traffic, side(gaps + 1, 10**9, 10**9 + last))
    assert [one.code for one in said] == ["generator-rate"] * (not 0.9 < off < 1.1)


def lost(draw: Draw) -> None:
    """One packet in a thousand may be lost, besides those that were taken from elsewhere."""
    known, beyond = draw.between("stamps that taps lost", 0, 5), draw.between("too many", 0, 1)
    taps = {"egress": {"file": "egress", "seen": PACKETS, "lost": known}}
    read = {name: opened(name, tap, Tapped) for name, tap in taps.items()}
    of_flow = OfFlow(taps=read, warnings=[], files=[], points=[])
    around = draw.between("lost around events", 0, 5)
    gone = PACKETS // 1_000 + known + around + beyond
    platform = draw.choice("platform", ("wire", "bare-metal"))
    experiment = Experiment.model_validate(
        {"name": "a", "dut": {"platform": platform}, "traffic": {}}
    )
    found = lost_heavily(
        experiment, Sent(generator(draw, set(), 1), of_flow),
        counts(lost=gone, matched=PACKETS - gone), [], {}, around,
    )  # fmt: skip
    assert [one.code for one in found] == ["heavy-loss"] * beyond
    for one in found:
        assert ("there is no device" in one.message) == (platform == "wire")
    assert is_valid(found)


def run(draw: Draw, folder: Path) -> None:
    """One of each."""
    measured_run(draw)
    external(draw)
    lost(draw)


TRIAL = Trial("quality", run, every=2)

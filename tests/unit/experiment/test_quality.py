"""Each warning appears when its limit is passed, and not before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailtap.experiment.counters import Counters
from tailtap.experiment.model import Dut, Experiment
from tailtap.experiment.quality import (
    Measured,
    Sent,
    external_rate,
    is_valid,
    overloaded,
    reverse_warnings,
    warnings_of,
)
from tailtap.traffic.model import Traffic

SLIP_LIMIT_NS = 100_000
EXPERIMENT = Experiment(name="a", dut=Dut(), traffic=Traffic())


def counters(processed: int = 2000, dropped: int = 0, steal_ns: int = 0) -> Counters:
    row = {"processed": processed, "dropped": dropped, "received_rps": 0, "softirq_net_rx": 9}
    return Counters({0: {**row, "dropped": 0}, 1: row}, {0: 0, 1: steal_ns})


def generator(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "rate": 10_000,
        "scheduled_rate": 10_000.0,
        "achieved_rate": 9_950.0,
        "failed": 0,
    }
    content["slip_ns"] = {"percentiles": [{"p": 0.99, "value": SLIP_LIMIT_NS}]}
    return {**content, **changes}


GOOD = Measured(
    generator(), {"ingress": {"seen": 1000, "lost": 0}}, counters(), 1_000_000_000, {}, {}, {}
)


def codes(measured: Measured, experiment: Experiment = EXPERIMENT) -> list[str]:
    return [warning["code"] for warning in warnings_of(experiment, measured)]


def test_a_good_run_has_none() -> None:
    assert codes(GOOD) == []
    assert is_valid(warnings_of(EXPERIMENT, GOOD))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"generator": generator(failed=1)}, "failed-sends"),
        ({"generator": generator(achieved_rate=9_899.0)}, "generator-rate"),
        (
            {
                "generator": generator(
                    slip_ns={"percentiles": [{"p": 0.99, "value": SLIP_LIMIT_NS + 1}]}
                )
            },
            "generator-slip",
        ),
        ({"taps": {"ingress": {"seen": 1000, "lost": 1}}}, "stamps-lost"),
        (
            {"taps": {**GOOD.taps, "egress": {"seen": 1000, "lost": 0, "late": 1}}},
            "egress-deferred",
        ),
        ({"taps": {**GOOD.taps, "egress": {"seen": 1000, "lost": 0, "dropped": 1}}}, "tap-drops"),
        ({"counters": counters(steal_ns=10_000_001)}, "steal"),
        ({"counters": counters(dropped=1)}, "backlog-drops"),
        ({"counters": counters(processed=999)}, "work-elsewhere"),
    ],
)
def test_each_limit(change: dict[str, Any], code: str) -> None:
    measured = replace(GOOD, **change)
    assert codes(measured) == [code]
    assert is_valid(warnings_of(EXPERIMENT, measured)) == (not code.startswith("generator-"))


def test_time_stolen_from_the_other_generator_counts_in_both_directions() -> None:
    there = Sent(generator(), {"ingress": {"seen": 1000, "lost": 0}})
    rows = GOOD.counters.softnet[1]
    stolen = Counters({0: rows, 1: rows}, {0: 0, 1: 0, 2: 10_000_001})
    measured = replace(GOOD, counters=stolen, reverse=there)
    content = {"bidirectional": True, "reverse_cpu": 2}
    both = Experiment(name="a", dut=Dut(), traffic=Traffic.model_validate(content))
    assert codes(measured, both) == ["steal"]
    assert [doubt["code"] for doubt in reverse_warnings(both, there, measured)] == ["steal"]
    assert codes(replace(measured, reverse=None)) == []


def test_the_slip_limit_is_the_experiments() -> None:
    strict = Experiment(name="a", dut=Dut(), traffic=Traffic.model_validate({"slip_limit": "1 us"}))
    assert codes(GOOD, strict) == ["generator-slip"]


def test_a_pattern_is_held_to_its_own_rate() -> None:
    # On for a tenth of the time: a tenth of the rate is what was asked for.
    on_off = generator(scheduled_rate=1_000.0, achieved_rate=999.0)
    assert codes(replace(GOOD, generator=on_off)) == []


@pytest.mark.parametrize(
    ("last_ns", "said"),
    [
        (1_100_000_000, []),
        (1_050_000_000, ["generator-rate"]),
        (1_300_000_000, ["generator-rate"]),
    ],
)
def test_another_generator_is_judged_by_the_ingress_tap(last_ns: int, said: list[str]) -> None:
    content = {"generator": "external", "external": {"command": "x"}, "rate": "10 kpkt/s"}
    experiment = Experiment(name="a", dut=Dut(), traffic=Traffic.model_validate(content))
    nothing = dict.fromkeys(("sent", "failed", "scheduled_rate", "achieved_rate", "slip_ns"))
    assert codes(replace(GOOD, generator=nothing), experiment) == []
    ingress = {"packets": 1001, "first_ns": 1_000_000_000, "last_ns": last_ns}
    assert [doubt["code"] for doubt in external_rate(experiment, ingress)] == said
    assert external_rate(EXPERIMENT, ingress) == []


def test_shared_cpu() -> None:
    shared = Experiment(name="a", dut=Dut(cpus=(0, 1)), traffic=Traffic(cpu=0))
    assert codes(GOOD, shared) == ["shared-cpu"]
    wire = Experiment(name="a", dut=Dut(platform="wire", cpus=(0,)), traffic=Traffic(cpu=0))
    assert codes(GOOD, wire) == []


def test_the_wire_does_no_work_of_its_own() -> None:
    wire = Experiment(name="a", dut=Dut(platform="wire"), traffic=Traffic())
    assert codes(replace(GOOD, counters=counters(processed=0, steal_ns=10**9)), wire) == []


@pytest.mark.parametrize(
    ("lost", "stamps_lost", "platform", "expected"),
    [
        (10, 0, "bare-metal", None),
        (11, 0, "bare-metal", "the device was overloaded"),
        (11, 0, "wire", "there is no device"),
        (11, 1, "bare-metal", None),
    ],
)
def test_an_overloaded_device_is_told_from_taps_without_room(
    lost: int, stamps_lost: int, platform: str, expected: str | None
) -> None:
    """One packet in a thousand may be lost; those whose stamp was lost do not count."""
    sent = Sent(generator(), {"ingress": {"lost": 0}, "egress": {"lost": stamps_lost}})
    experiment = Experiment(name="a", dut=Dut(platform=platform), traffic=Traffic())
    counts = {"lost": lost, "matched": 10_000 - lost}
    found = overloaded(experiment, sent, counts)
    assert [warning["code"] for warning in found] == ([] if expected is None else ["overload"])
    assert is_valid(found)
    if expected is not None:
        assert expected in found[0]["message"]

"""Warnings about measurements beside those that seeds try, and clocks that broke."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tailtap.experiment.dut import Dut
from tailtap.experiment.model import Experiment
from tailtap.lab.generators.model import Traffic
from tailtap.lab.instruments.taps.inline import of_deferral, of_links
from tailtap.lab.topology.graph import Node
from tailtap.lab.topology.graphs import FORWARD, dut_names, line
from tailtap.measure.quality import (
    FOLLOWING,
    Measured,
    Sent,
    warnings_of,
)
from tailtap.measure.roles import OfFlow
from tailtap.records.datapath import GeneratorRecord, Tapped
from tailtap.records.record import Notice, Open, opened
from tailtap.records.run import Found, Handled

SLIP_LIMIT_NS = 100_000
EXPERIMENT = Experiment(name="a", dut=Dut(), traffic=Traffic())


def softnet(processed: int = 2000, dropped: int = 0) -> dict[str, dict[str, int]]:
    row = {"dropped": 0, "received_rps": 0, "softirq_net_rx": 9}
    return {"0": {**row, "processed": 0}, "1": {**row, "processed": processed, "dropped": dropped}}


def stamped(*notes: str, **taps: dict[str, int]) -> OfFlow:
    """What the taps of a flow say: warnings of these codes, and counts."""
    counts = {name: {"file": name, "seen": 0, "lost": 0, **tap} for name, tap in taps.items()}
    return OfFlow(
        taps={name: opened(name, tap, Tapped) for name, tap in counts.items()},
        warnings=[Notice(code, code) for code in notes],
        files=[],
        points=[],
    )


def generator(**changes: Any) -> Open[GeneratorRecord]:
    content: dict[str, Any] = {
        "sent": 1000,
        "rate": 10_000,
        "scheduled_rate": 10_000.0,
        "achieved_rate": 9_950.0,
        "failed": 0,
    }
    content["slip_ns"] = {"percentiles": [{"p": 0.99, "value": SLIP_LIMIT_NS}]}
    return opened("generator.json", {**content, **changes}, GeneratorRecord)


SENT = Sent(generator(), stamped(ingress={"seen": 1000}))
GOOD = Measured({FORWARD: SENT}, Found(softnet=softnet()))


def codes(measured: Measured, experiment: Experiment = EXPERIMENT) -> list[str]:
    found = warnings_of(experiment, measured, list(measured.sent)[-1])
    return [warning.code for warning in found]


def test_a_generator_that_is_too_slow_has_one_warning_with_all_that_follows() -> None:
    slip = {"percentiles": [{"p": 0.99, "value": 14_935_000_000}]}
    said = generator(
        scheduled_rate=5e6, achieved_rate=586_245.0, slip_ns=slip, sent=4_100_000, interrupted=True
    )
    said_by_taps = stamped(
        *sorted(FOLLOWING),
        "steal",
        ingress={"seen": 4_100_000, "lost": 1_000},
        egress={"lost": 234, "dropped": 30},
    )
    found = Found(softnet=softnet(processed=10_000_000, dropped=63_000))
    experiment = Experiment(
        name="a", traffic=Traffic.model_validate({"rate": "5 Mpkt/s", "duration": "2 s"})
    )
    measured = Measured({FORWARD: Sent(said, said_by_taps)}, found)
    assert codes(measured, experiment) == ["generator-rate", "steal"]
    [warning, _] = warnings_of(experiment, measured, FORWARD)
    assert warning.message == (
        "the generator reached 586.245 kpkt/s of 5 Mpkt/s and was ended long after its time, with "
        "4,100,000 of 10,000,000 packets sent: the run is invalid; set traffic.rate below "
        "586.245 kpkt/s, or give the generator its own CPU; it sent 1 % of the packets more than "
        "14.935 s late, the taps had no room for 1,234 stamps, the kernel dropped "
        "63,030 packets in full queues (net.core.netdev_max_backlog)"
    )


def test_drops_before_a_node_are_told_once() -> None:
    """Both taps before a queue count them; before the first one there is only that behind it."""
    nodes = [Node(name, "dut", "namespace") for name in dut_names(2)]
    [flow] = line(nodes, hops=True, queues=True).flows
    links = {point.name: Tapped(file=point.name, seen=1000, lost=0) for point in flow.points}
    assert list(of_links(links, flow)) == []
    for node, taps, loser in (
        ("dut1", ["dut1.received"], "by the queue of dut1"),
        ("dut2", ["dut2", "dut2.received"], "by dut1"),
    ):
        dropped = {name: structs.replace(links[name], dropped=7) for name in taps}
        [warning] = of_links({**links, **dropped}, flow)
        assert warning.code == "backlog-drops"
        assert warning.message.startswith(f"{node} dropped 7 packets")
        assert warning.message.endswith(f"they count as lost {loser}")


def test_stamps_behind_a_cable_are_deferred() -> None:
    assert [warning.code for warning in of_deferral(cables=True)][:1] == ["egress-deferred"]


@pytest.mark.parametrize(
    ("sent_to", "handled", "said"),
    [
        ([], {"0": 9, "1": 1}, ["work-elsewhere"]),
        ([], {"1": 10}, []),
        ([], {}, []),
        ([1], {"0": 10}, []),  # the instrument says so itself
    ],
)
def test_cards_work_where_they_interrupt(
    sent_to: list[int], handled: dict[str, int], said: list[str]
) -> None:
    """As what an XDP program takes in the driver is counted nowhere else."""
    dut = {"cpus": [1], "ports": ["eth1", "eth2"]}
    tap = {"ports": ["eth0", "eth3"]}
    cards = Experiment.model_validate({"name": "a", "dut": dut, "traffic": {}, "tap": tap})
    row = Handled(port="tt-in", cpus=sent_to, handled=handled)
    found = Found(softnet=softnet(processed=0), card_interrupts={"42": row})
    assert codes(replace(GOOD, found=found), cards) == said

"""What the page says of a device that was there before."""

from __future__ import annotations

from made_records import made

from tailtap.analysis.runs.run import Run
from tailtap.records.live import Observed, ObservedCost, ObservedPoint, ObservedServer
from tailtap.show.report.audit import topology
from tailtap.show.report.machine import DUT, placement_of


def point(target: str) -> ObservedPoint:
    return ObservedPoint(
        target=target,
        interface="eth0",
        at="arrival",
        kind="veth, a port of the bridge br0",
        namespace="network namespace blue",
        inode=7,
        stamped="As the interface is handed a packet.",
    )


def observed(cost: ObservedCost | None) -> Run:
    seen = Observed(
        points=[point("blue/eth0"), point("blue/eth1")],
        servers=[
            ObservedServer(by="task", cpus=[2, 3], threads={"81": "nginx"}, share=0.96),
            ObservedServer(by="softirq", cpus=[3]),
        ],
        found=["one thing", "another"],
        unknown=["who sends"],
        cost=cost,
    )
    return Run("001-observed", record=made(observed=seen))


def test_the_page_says_where_packets_were_stamped_and_who_served() -> None:
    cost = ObservedCost(budget=0.02, taps=0.0061, trace=0.012, measured_ns=1)
    told = topology(observed(cost))["wiring"]
    assert told["before the device"] == (
        "blue/eth0: veth, a port of the bridge br0, in network namespace blue"
    )
    assert told["stamped behind the device"] == "As the interface is handed a packet."
    assert told["server 1"] == "task nginx (81) on CPUs 2-3, 96 % of the packets"
    assert told["server 2"] == "softirq on CPUs 3"
    assert (told["found"], told["not known"]) == ("one thing; another", "who sends")
    assert told["observing took"] == (
        "of the serving cores' time, 0.61 % for the taps and 1.2 % for the trace"
    )
    assert "observing took" not in topology(observed(None))["wiring"]


def test_the_device_is_where_it_was_seen_at_work() -> None:
    run = observed(None)
    assert run.device_cpus == (2, 3)
    assert [work.cpus for work in placement_of(run).works if work.kind == DUT] == [(2, 3)]

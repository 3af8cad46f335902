"""What taps say against the stamps that they took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailtap.lab.instruments.observing import Warning
from tailtap.lab.instruments.taps.inline import stamps_after_queueing
from tailtap.lab.topology.graph import Flow


def of_links(links: Mapping[str, Mapping[str, Any]], flow: Flow) -> Iterator[Warning]:
    """What the counts of each link tell. Links are called as in `Flow.points`."""
    within = {point.name: point for point in flow.points[1:-1]}
    for link, counts in links.items():
        if counts["lost"] and link in within:
            point = within[link]
            where = "behind the queue of" if point.received else "before"
            yield _warning(
                "stamps-lost",
                f"the tap {where} {point.before} had no room for {counts['lost']} of "
                f"{counts['seen']} stamps: these packets seem lost in the hop before it",
            )
        elif counts["lost"]:
            yield _warning(
                "stamps-lost",
                f"the {link} tap had no room for {counts['lost']} of {counts['seen']} stamps: "
                "these packets count as lost or unmatched though they may have passed",
            )
        if link in within and within[link].received:
            node = within[link].before
            # Of the nodes behind it the tap before their queues counts the same drops.
            if counts.get("dropped") and node == flow.passed[0]:
                yield _warning(
                    "backlog-drops",
                    f"{node} dropped {counts['dropped']} packets as they came from the ingress "
                    "tap, warm-up included, as a queue of its CPUs was full "
                    f"(net.core.netdev_max_backlog): they count as lost by the queue of {node}",
                )
        elif counts.get("dropped") and link in within:
            before = flow.passed[flow.passed.index(link) - 1]
            yield _warning(
                "backlog-drops",
                f"{link} dropped {counts['dropped']} packets as they came from {before}, warm-up "
                "included, as a queue of its CPUs was full (net.core.netdev_max_backlog): they "
                f"count as lost by {before}",
            )
        elif counts.get("dropped"):
            yield _warning(
                "tap-drops",
                f"the kernel dropped {counts['dropped']} packets between the DuT and the {link} "
                "tap, warm-up included, as a queue of the DuT's CPUs was full "
                "(net.core.netdev_max_backlog): they count as lost though the DuT sent them",
            )
        if counts.get("late"):
            yield _deferred(
                f"the kernel did not record when {counts['late']} packets reached the {link} tap: "
                "they were stamped on receipt, later by an unknown time"
            )
        for message in counts.get("warnings", ()):
            yield _warning("tap", f"the {link} tap says: {message}")


def of_hops(flow: Flow) -> Iterator[Warning]:
    """That taps between the nodes are part of what is measured."""
    count = len(flow.points) - 2
    if count:
        taps = "1 tap" if count == 1 else f"{count} taps"
        yield _warning(
            "taps-within",
            f"the latency includes {taps} between the nodes, and each delays every packet: measure "
            "with dut.taps: ends to know the line's own",
        )


def of_deferral(*, cables: bool, passive: bool = False) -> Iterator[Warning]:
    """Whether stamps are later than the moment at which packets enter or leave the DuT."""
    if passive:
        yield _warning(
            "stamped-on-interrupt",
            "both stamps of a packet are taken when the interrupt of a card behind a splitter is "
            "served: what delays one of the two (interrupt moderation, `ethtool -c`, or other work "
            "of the timestamper) counts as the DuT's latency, or shortens it",
        )
    elif cables:
        yield _deferred(
            "packets are stamped when the interrupt of the card behind the DuT is served: the "
            "cable, the card's interrupt moderation (`ethtool -c`) and the interrupt count as the "
            "DuT's latency, which no clock here could tell apart"
        )
    if stamps_after_queueing():
        yield _deferred(
            "packets are stamped when they are received, and not when the DuT hands them over: "
            "set net.core.netdev_tstamp_prequeue to 1"
        )


def _deferred(message: str) -> Warning:
    return _warning("egress-deferred", message)


def _warning(code: str, message: str) -> Warning:
    return {"code": code, "message": message}

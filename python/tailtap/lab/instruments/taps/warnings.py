"""What taps say against the stamps that they took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailtap.lab.instruments.observing import Warning
from tailtap.lab.instruments.taps.inline import stamps_after_queueing
from tailtap.lab.topology.graph import Flow, TapPoint
from tailtap.records.taps import Tapped


def of_links(links: Mapping[str, Tapped], flow: Flow) -> Iterator[Warning]:
    """What the counts of each link tell. Links are called as in `Flow.points`."""
    within = {point.name: point for point in flow.points[1:-1]}
    for link, tap in links.items():
        if link in within:
            yield from _of_node(tap, within[link], flow)
        elif tap.dropped:
            yield warning(
                "tap-drops",
                f"the kernel dropped {tap.dropped} packets between the DuT and the {link} tap, "
                "warm-up included, as a queue of the DuT's CPUs was full "
                "(net.core.netdev_max_backlog): they count as lost though the DuT sent them",
            )
        yield from of_tap(link, tap, is_end=link not in within)


def _of_node(tap: Tapped, point: TapPoint, flow: Flow) -> Iterator[Warning]:
    """What those between two nodes count of what these lose."""
    if tap.lost:
        where = "behind the queue of" if point.received else "before"
        yield warning(
            "stamps-lost",
            f"the tap {where} {point.before} had no room for {tap.lost} of {tap.seen} stamps: "
            "these packets seem lost in the hop before it",
        )
    if not tap.dropped:
        return
    if not point.received:
        before = flow.passed[flow.passed.index(point.name) - 1]
        yield warning(
            "backlog-drops",
            f"{point.name} dropped {tap.dropped} packets as they came from {before}, warm-up "
            "included, as a queue of its CPUs was full (net.core.netdev_max_backlog): they "
            f"count as lost by {before}",
        )
    # Of the nodes behind it the tap before their queues counts the same drops.
    elif point.before == flow.passed[0]:
        yield warning(
            "backlog-drops",
            f"{point.before} dropped {tap.dropped} packets as they came from the ingress tap, "
            "warm-up included, as a queue of its CPUs was full (net.core.netdev_max_backlog): "
            f"they count as lost by the queue of {point.before}",
        )


def of_tap(name: str, tap: Tapped, *, is_end: bool = True) -> Iterator[Warning]:
    """What any tap's counts tell; those of one that is no end of a way do not make packets lost."""
    if tap.lost and is_end:
        yield warning(
            "stamps-lost",
            f"the {name} tap had no room for {tap.lost} of {tap.seen} stamps: these packets count "
            "as lost or unmatched though they may have passed",
        )
    if tap.late:
        yield _deferred(
            f"the kernel did not record when {tap.late} packets reached the {name} tap: they were "
            "stamped on receipt, later by an unknown time"
        )
    for message in tap.warnings:
        yield warning("tap", f"the {name} tap says: {message}")


def of_hops(flow: Flow) -> Iterator[Warning]:
    """That taps between the nodes are part of what is measured."""
    count = len(flow.points) - 2
    if count:
        taps = "1 tap" if count == 1 else f"{count} taps"
        yield warning(
            "taps-within",
            f"the latency includes {taps} between the nodes, and each delays every packet: measure "
            "with dut.taps: ends to know the line's own",
        )


def of_deferral(*, cables: bool, passive: bool = False) -> Iterator[Warning]:
    """Whether stamps are later than the moment at which packets enter or leave the DuT."""
    if passive:
        yield warning(
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
    return warning("egress-deferred", message)


def warning(code: str, message: str) -> Warning:
    """A warning as instruments tell it."""
    return {"code": code, "message": message}

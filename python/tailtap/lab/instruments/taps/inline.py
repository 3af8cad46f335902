"""eBPF programs on links of their own on both sides of the DuT, and what they say against stamps.

``tailtap tap`` is the same program.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path, PurePosixPath

from tailtap.base.errors import Check, InputError, MachineError, TailtapError
from tailtap.base.files import read_text
from tailtap.base.units import format_count
from tailtap.host.facts.needs import missing_capabilities
from tailtap.host.net.inside import inside
from tailtap.host.net.nic import Timestamping, timestamping
from tailtap.lab.generators.external import MOONSNIFF
from tailtap.lab.instruments.taps.hardware import judge
from tailtap.lab.instruments.taps.kinds import NEVER, NOWHERE, PCAP, STAMP_BYTES, STAMPS, Stamped
from tailtap.lab.instruments.taps.links import At, TapLink
from tailtap.lab.topology.graph import EGRESS, INGRESS, Flow, TapPoint
from tailtap.lab.topology.graphs import FORWARD, TAPS, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.records.datapath import Tapped, TapsOfFlows
from tailtap.records.record import Notice, Open, opened
from tailtap.remote import Host
from tailtap.remote.local import STOP_SECONDS, Process

MAX_ROOM = 8 * 2**20
"""Stamps that the kernel keeps at most for all tap points together (128 MiB); they are emptied all
the time."""

LEAST_ROOM = 4096
"""Stamps of a tap point that there is room for however many points there are (64 KiB)."""

QUIET_SHARE = 2
"""While less than half of its room is used, the tap writes nothing and disturbs nobody."""

PACKET_HEAD = 24
"""Bytes before those of a packet in its slot (``struct packet`` in bpf/tap.bpf.c)."""

READY_SECONDS = 120.0
"""How long loading the programs and reserving room for the stamps may take."""

_PREQUEUE = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
"""Where 0 has the kernel stamp packets behind its receive queues, not before (the default). Only
the machine's first network namespace shows it; elsewhere it is taken for 1."""


class InlineTap:
    """One process that stamps ingress packets and hands them on, and absorbs egress packets.

    An ingress stamp is of the moment at which the packet is handed on to the DuT, an egress stamp
    of the moment at which the DuT handed it over. Between the nodes of a line packets go on their
    way, and a stamp is of the moment at which the node before handed them over; a second one, where
    that is asked for, is of the moment at which the next node receives them. Of two programs on one
    port the one that came last sees packets first: the tap of the second moment, which thus does
    not wait for the other one.
    """

    summary = "eBPF programs on links of their own on both sides of the DuT."
    documentation = (
        "They stamp a packet when it is handed to the DuT, and when the DuT hands it over. "
        "`tailtap tap` is the same tap. Needs Linux 5.8 with CONFIG_BPF_SYSCALL and "
        "CONFIG_NET_CLS_BPF."
    )

    def diagnose(self) -> Iterator[Check]:
        area, name = "taps", "inline"
        if os.geteuid() != 0 or missing_capabilities():
            found = "only root can try it"
            yield Check(area, name, "untested", found, "run it with sudo", required=True)
            return
        try:
            with contextlib.ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-"))
                lab = stack.enter_context(Lab(smallest()))
                lab.wait_until_up()
                stamped = [Stamped(lab.graph.flow(FORWARD), 1024)]
                process = self.start(lab.host(TAPS), Path(folder), stamped)
                stack.callback(process.close)
                self.stop(process)
        except TailtapError as error:
            remedy = "Linux 5.8 or newer with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF"
            yield Check(area, name, "missing", str(error), remedy, required=True)
            return
        found = "both taps were loaded, attached and stopped"
        yield Check(area, name, "ok", found, required=True)

    def start(
        self,
        host: Host,
        folder: Path,
        flows: Sequence[Stamped],
        key: str = MOONSNIFF,
        namespaces: Mapping[str, str] = NOWHERE,
        snap: int | None = None,
        flush: str = NEVER,
    ) -> Process:
        words = self.words(flows, namespaces, rooms(flows, slot_of(snap)))
        # Writing wakes up a CPU that may be the generator's: nothing is written unless asked for.
        return started(host, folder, [*words, "--key", key, "--flush", flush], snap)

    def words(
        self,
        flows: Sequence[Stamped],
        namespaces: Mapping[str, str],
        rooms: Iterable[int | None] = repeat(None),
    ) -> list[str]:
        """The links of all flows, in the folders of these and with room, as they are typed."""
        return [
            word
            for (flow, _, place), room in zip(flows, rooms, strict=False)
            for link in self.links(flow, namespaces)
            for word in replace(
                link, name=f"{PurePosixPath(place, link.name)}", records=room
            ).words()
        ]

    def links(self, flow: Flow, namespaces: Mapping[str, str]) -> list[TapLink]:
        """The links of ``tailtap tap`` for the tap points of a flow."""
        return [
            TapLink(INGRESS, flow.ingress.name, onward=flow.onward.name),
            *(
                TapLink(
                    one.name,
                    one.port.name,
                    namespaces[one.port.node],
                    At.RECEIPT if one.received else At.INGRESS,
                )
                for one in flow.points[1:-1]
            ),
            TapLink(EGRESS, flow.egress.name, at=At.ARRIVAL, onward=flow.ingress.name)
            if flow.answered
            else TapLink(EGRESS, flow.egress.name, absorb=True),
        ]

    def stop(self, process: Process) -> TapsOfFlows:
        return stopped(process)


def started(host: Host, folder: Path, words: Sequence[str], snap: int | None = None) -> Process:
    """``tailtap tap`` with these words, which writes into `folder`, when it is ready.

    With `snap` it writes pcaps with so many bytes of each packet, on the clock of stamps. Raises
    `MachineError`.
    """
    write = ["--write", str(folder / f"{{link}}.{STAMPS if snap is None else PCAP}")]
    if snap is not None:
        write += ["--snap-length", f"{snap} B", "--clock", "monotonic"]
    process = host.start([*host.program, "tap", *write, "--json", *words])
    return process.ready(READY_SECONDS)


def stopped(process: Process) -> TapsOfFlows:
    """Let ``tailtap tap`` write what it holds, and end it; what it counted, by the folder in which
    each file is and the tap's name. Raises `MachineError`.
    """
    process.interrupt()
    done = process.expect("done", STOP_SECONDS)
    process.close()
    flows: dict[str, dict[str, Open[Tapped]]] = {}
    for name, link in done["links"].items():
        path = PurePosixPath(name)
        # Relative to the run folder, so that the folder can be moved; there is one file.
        link["file"] = Path(link.pop("files")[0]).name
        told = opened(f"the {path.name} tap", link, Tapped)
        flows.setdefault(str(path.parent), {})[path.name] = told
    return flows


def slot_of(snap: int | None) -> int:
    """How many stamps take the room of a packet's first `snap` bytes, or of a stamp."""
    return 1 if snap is None else -(-(PACKET_HEAD + snap) // STAMP_BYTES)


def rooms(flows: Sequence[Stamped], slot: int = 1) -> list[int]:
    """How many packets each tap point of each flow has room for, each as much as `slot` stamps.

    That is `QUIET_SHARE` times what it will take, so that nothing is written meanwhile. Where that
    is more than `MAX_ROOM` together, the flows share it out as they have packets.
    """
    packets = sum(flow.packets * len(flow.flow.points) for flow in flows)
    most = MAX_ROOM // slot
    if QUIET_SHARE * packets <= most:
        return [max(LEAST_ROOM, QUIET_SHARE * flow.packets) for flow in flows]
    # A tap rounds up to a power of two, so that this rounds down to one.
    shares = [max(LEAST_ROOM, flow.packets * most // packets) for flow in flows]
    return [1 << (share.bit_length() - 1) for share in shares]


class PassiveTap(InlineTap):
    """One process that stamps and absorbs what both splitters copy.

    Both stamps are taken in the same way, when the interrupt of a card is served.
    """

    summary = "eBPF programs at network cards behind splitters, or at mirror ports."
    documentation = (
        "They stamp the copies that splitters or mirror ports send to two cards, and "
        "absorb them: no tap is in the way through the DuT. A testbed "
        "(docs/howto/testbed.md) says which cables have splitters. Stamps come as late as "
        "the cards' interrupts: switch moderation off (`ethtool -C`), or take `tap.clock: "
        "hardware` (docs/howto/hardware.md)."
    )

    def diagnose(self) -> Iterator[Check]:
        return iter(())

    def links(self, flow: Flow, namespaces: Mapping[str, str]) -> list[TapLink]:
        return [
            TapLink(INGRESS, flow.ingress.name, absorb=True),
            TapLink(EGRESS, flow.egress.name, absorb=True),
        ]


class CardTap(PassiveTap):
    """One process that reads what two cards stamped, and their clocks where these are two.

    The copies go on into the kernel, which drops them: they are addressed to others. A program that
    absorbed them would keep a card's driver from counting them.
    """

    def start(
        self,
        host: Host,
        folder: Path,
        flows: Sequence[Stamped],
        key: str = MOONSNIFF,
        namespaces: Mapping[str, str] = NOWHERE,
        snap: int | None = None,
        flush: str = NEVER,
    ) -> Process:
        """Have both cards stamp every packet: `snap` is None, and stamps are written at once.

        Raises `InputError`, `MachineError`.
        """
        if key != MOONSNIFF:
            raise InputError(
                "tap.clock: hardware: stamps of cards are stored with MoonSniff's ids, and the "
                f"packets of this generator have {key}: take tap.clock: monotonic"
            )
        return started(host, folder, [*self.words(flows, namespaces), "--clock", "hardware"])

    def links(self, flow: Flow, namespaces: Mapping[str, str]) -> list[TapLink]:
        return [TapLink(INGRESS, flow.ingress.name), TapLink(EGRESS, flow.egress.name)]


def require_cards(namespace: str, cards: Mapping[str, str]) -> None:
    """Raises `MachineError` unless both cards stamp every packet, by clocks that can be read.

    `cards` are by the port that each is in the network namespace of this name.
    """
    answers = inside((namespace, partial(timestamping, port)) for port in cards)
    require_clocks(dict(zip(cards.values(), answers, strict=True)))


def require_clocks(answers: Mapping[str, Timestamping]) -> None:
    """`require_cards` for the answers by card. A pure function."""
    for card, answer in answers.items():
        verdict = judge(answer)
        if verdict.method is None:
            raise MachineError(
                f"tap.clock: hardware: {card} cannot stamp every received packet: "
                f"{verdict.reason}: choose another card, or tap.clock: monotonic"
            )
    unknown = [card for card, answer in answers.items() if answer.clock is None]
    if unknown:
        raise MachineError(
            f"tap.clock: hardware: the clock of {' and of '.join(unknown)} has no device "
            "(/dev/ptpN), so that nobody can say how the clocks of both stand to each other: "
            "choose another card, or tap.clock: monotonic"
        )


def of_links(links: Mapping[str, Tapped], flow: Flow) -> Iterator[Notice]:
    """What the counts of each link tell. Links are called as in `Flow.points`."""
    within = {point.name: point for point in flow.points[1:-1]}
    for link, tap in links.items():
        if link in within:
            yield from _of_node(tap, within[link], flow)
        elif tap.dropped:
            yield Notice(
                "tap-drops",
                f"the kernel dropped {format_count(tap.dropped, 'packet')} between the DuT and "
                f"the {link} tap, warm-up included, as a queue of the DuT's CPUs was full "
                "(net.core.netdev_max_backlog): they count as lost though the DuT sent them",
            )
        yield from of_tap(link, tap, is_end=link not in within)


def _of_node(tap: Tapped, point: TapPoint, flow: Flow) -> Iterator[Notice]:
    """What those between two nodes count of what these lose."""
    if tap.lost:
        where = "behind the queue of" if point.received else "before"
        yield Notice(
            "stamps-lost",
            f"the tap {where} {point.before} had no room for {tap.lost} of {tap.seen} stamps: "
            "these packets seem lost in the hop before it",
        )
    if not tap.dropped:
        return
    if not point.received:
        before = flow.passed[flow.passed.index(point.name) - 1]
        yield Notice(
            "backlog-drops",
            f"{point.name} dropped {format_count(tap.dropped, 'packet')} from {before}, warm-up "
            "included, as a queue of its CPUs was full (net.core.netdev_max_backlog): they "
            f"count as lost by {before}",
        )
    # Of the nodes behind it the tap before their queues counts the same drops.
    elif point.before == flow.passed[0]:
        yield Notice(
            "backlog-drops",
            f"{point.before} dropped {format_count(tap.dropped, 'packet')} from the ingress tap, "
            "warm-up included, as a queue of its CPUs was full (net.core.netdev_max_backlog): "
            f"they count as lost by the queue of {point.before}",
        )


def of_tap(name: str, tap: Tapped, *, is_end: bool = True) -> Iterator[Notice]:
    """What any tap's counts tell; those of one that is no end of a way do not make packets lost."""
    if tap.lost and is_end:
        yield Notice(
            "stamps-lost",
            f"the {name} tap had no room for {tap.lost} of {tap.seen} stamps: these packets count "
            "as lost or unmatched though they may have passed",
        )
    if tap.late:
        yield _deferred(
            f"the kernel did not record when {format_count(tap.late, 'packet')} reached the "
            f"{name} tap: stamped on receipt, later by an unknown time"
        )
    for message in tap.warnings:
        yield Notice("tap", f"the {name} tap says: {message}")


def of_hops(flow: Flow) -> Iterator[Notice]:
    """That taps between the nodes are part of what is measured."""
    count = len(flow.points) - 2
    if count:
        taps = "1 tap" if count == 1 else f"{count} taps"
        yield Notice(
            "taps-within",
            f"the latency includes {taps} between the nodes, and each delays every packet: measure "
            "with dut.taps: ends to know the line's own",
        )


def of_deferral(*, cables: bool, passive: bool = False) -> Iterator[Notice]:
    """Whether stamps are later than the moment at which packets enter or leave the DuT."""
    if passive:
        yield Notice(
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
    if read_text(_PREQUEUE) == "0":
        yield _deferred(
            "packets are stamped when they are received, and not when the DuT hands them over: "
            "set net.core.netdev_tstamp_prequeue to 1"
        )


def _deferred(message: str) -> Notice:
    return Notice("egress-deferred", message)

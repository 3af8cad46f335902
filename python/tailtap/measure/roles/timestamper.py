"""The role that stamps: taps before and after the DuT, and between its nodes, for all flows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tailtap.base.errors import MachineError
from tailtap.base.units import ranges
from tailtap.host.facts import environment
from tailtap.host.facts.machine import boot_id
from tailtap.host.net.namespaces import net_dev
from tailtap.lab.generators.external import MOONSNIFF
from tailtap.lab.instruments.taps.inline import (
    CardTap,
    of_deferral,
    of_hops,
    of_links,
    require_cards,
    slot_of,
)
from tailtap.lab.instruments.taps.kinds import HARDWARE, STAMP_BYTES, TAPS, Stamped, Tap
from tailtap.lab.instruments.taps.recorder import ExternalTap
from tailtap.lab.topology.graph import Flow
from tailtap.measure.roles import (
    COUNT,
    DESCRIBE,
    RESTART,
    START,
    STOP,
    Asked,
    AskedToDescribe,
    Counted,
    Described,
    Done,
    OfFlow,
    Passed,
    Request,
    Workbench,
)
from tailtap.measure.roles import Stamped as StampedFlows
from tailtap.records.datapath import Tapped
from tailtap.records.machine import Station
from tailtap.records.record import Notice, Open
from tailtap.records.run import StampedPoint
from tailtap.remote.local import Process
from tailtap.remote.session import FAILED, RoleEvent, RolePlan

ROOM = 1.05
AROUND_SECONDS = 300
"""How much longer than packets a program of others has to record."""
SPARE_ROOM = 65_536
"""Stamps that the taps have room for, beyond the packets that are sent: duplicates, strays. The
flows share it out."""


class Timestamper:
    """The stamp files of a flow go into its folder below the plan's; they are written as often as
    `flush` says, or when they must.

    Events: `failed`, when the taps ended on their own.
    """

    def __init__(self, bench: Workbench, plan: RolePlan) -> None:
        assert plan.folder is not None  # it writes
        self._folders, self._folder, self._flush = plan.flows, Path(plan.folder), plan.flush
        self._flows = [bench.lab.graph.flow(name) for name in self._folders]
        [node] = {flow.ingress.node for flow in self._flows}
        self._host = bench.lab.host(node)
        self._namespaces = {
            point.port.node: bench.lab.name_of(point.port.node)
            for flow in self._flows
            for point in flow.points[1:-1]
        }
        self._by_cards = bench.experiment.tap.clock == HARDWARE
        self._kind: Tap = CardTap() if self._by_cards else TAPS[bench.experiment.tap.kind]
        self._recorder: ExternalTap | None = None
        self._counted: Counted | None = None
        self._blind = False
        if (external := bench.experiment.tap.external) is not None:
            seconds = bench.experiment.seconds + AROUND_SECONDS
            self._kind = self._recorder = ExternalTap(external, bench.lab, seconds)
            self._blind = external.driver is not None
        elif self._by_cards:
            ports = {port.name for flow in self._flows for port in (flow.ingress, flow.egress)}
            behind = bench.lab.graph.cards_behind(node)
            require_cards(bench.lab.name_of(node), {port: behind[port] for port in sorted(ports)})
        # All flows have the same generator, and so the same key.
        self._key = bench.experiment.traffic_of(self._flows[0].name).key
        self._snap = bench.experiment.snap
        spare = SPARE_ROOM // len(self._flows)
        sent = {flow.name: bench.experiment.traffic_of(flow.name).packets for flow in self._flows}
        self._stamped = [
            Stamped(flow, int(sent[flow.name] * ROOM) + spare, self._folders[flow.name])
            for flow in self._flows
        ]
        self._bytes = (
            STAMP_BYTES
            * slot_of(self._snap)
            * sum(sent[flow.name] * len(flow.points) for flow in self._flows)
        )
        self._cables = bool(bench.experiment.cables())
        self._passive = bench.experiment.tap.kind == "passive" and not self._by_cards
        self._lab = bench.lab
        self._process: Process | None = None
        self._ended = False

    def requests(self) -> Mapping[str, Request]:
        return dict(
            (
                DESCRIBE.by(self._describe),
                START.by(self._start),
                RESTART.by(self._restart),
                COUNT.by(self._count),
                STOP.by(self._stop),
            )
        )

    def sources(self) -> Sequence[Process]:
        return [self._process] if self._process is not None and not self._ended else []

    def look(self) -> Sequence[RoleEvent]:
        for process in self.sources():
            if process.readable():
                self._ended = True
                return [RoleEvent(event=FAILED, reason=process.failure())]
        return []

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        if self._recorder is not None:
            self._recorder.close()

    def _describe(self, asked: AskedToDescribe) -> Described:
        """Its machine (`station`), as that of a generator is described; nothing is judged there.

        None where it is the DuT's machine.
        """
        if asked.boot_id is not None and asked.boot_id == boot_id():
            return Described(station=None)
        return Described(station=Station(environment=environment.describe()))

    def _start(self, _: Asked) -> Done:
        """Begin to stamp, once the links are up. The disk must have room for the stamps."""
        require_space(self._folder, self._bytes)
        self._lab.wait_until_up()
        if self._recorder is None:
            self._stamp(MOONSNIFF)
        return Done()

    def _restart(self, _: Asked) -> Done:
        """Forget the packets of the probe: where ids lie elsewhere they have one as well, and a
        pcap has them all. A program of others records from now on, as it may take the cards.
        """
        if self._recorder is not None:
            self._counted = self._count(Asked()) if self._blind else None
            self._stamp(self._key)
        elif self._key != MOONSNIFF or self._snap is not None:
            process, self._process = self._process, None
            assert process is not None  # asked in order
            for flow, links in self._kind.stop(process).items():
                for link in links.values():  # a tap writes over no file
                    (self._folder / flow / link.known.file).unlink()
            self._stamp(self._key, self._snap)
        return Done()

    def _stamp(self, key: str, snap: int | None = None) -> None:
        for folder in self._folders.values():
            (self._folder / folder).mkdir(exist_ok=True)
        # Those of others may know of stamps only, and cards write as they stamp.
        asked: dict[str, Any] = {} if snap is None else {"snap": snap}
        if self._flush is not None and not self._by_cards:
            asked["flush"] = self._flush
        self._process = self._kind.start(
            self._host, self._folder, self._stamped, key, namespaces=self._namespaces, **asked
        )

    def _count(self, _: Asked) -> Counted:
        """By flow (`flows`), packets that have come to `ingress` and `egress` since their links
        exist; also after the taps' end. None come to see where the kernel has no cards any more.
        """
        if self._counted is not None:
            return self._counted
        # The egress first: what passes both taps in between counts in favour of the device.
        egress = net_dev(self._net_dev())
        ingress = net_dev(self._net_dev())
        return Counted(
            flows={
                flow.name: Passed(
                    # A port that vanished is told of by somebody else.
                    ingress=ingress.get(flow.ingress.name, [0])[0],
                    egress=egress.get(flow.egress.name, [0])[0],
                )
                for flow in self._flows
            }
        )

    def _net_dev(self) -> str:
        if self._ended or self._process is None:
            return self._host.run(["cat", "/proc/self/net/dev"]).stdout
        return Path(f"/proc/{self._process.pid}/net/dev").read_text(encoding="ascii")

    def _stop(self, _: Asked) -> StampedFlows:
        """End the taps: the `cpus` that they might run on, and of each of the `flows` what its taps
        counted (`taps`), `warnings`, and its `files`.

        Its `points` are the tap points in the order in which packets pass them. `before` of each is
        the node of the DuT that they enter next, and `received` says whether that has received
        them there.
        """
        assert self._process is not None  # asked in order
        self._ended = True
        cpus = _allowed(self._process.pid)
        stopped = self._kind.stop(self._process)
        of_all = list(of_deferral(cables=self._cables, passive=self._passive))
        told = {
            flow.name: self._told(flow, stopped[self._folders[flow.name]], of_all)
            for flow in self._flows
        }
        return StampedFlows(cpus=cpus, flows=told)

    def _told(
        self, flow: Flow, links: Mapping[str, Open[Tapped]], of_all: Sequence[Notice]
    ) -> OfFlow:
        known = {name: link.known for name, link in links.items()}
        return OfFlow(
            taps=dict(links),
            warnings=[*of_links(known, flow), *of_all, *of_hops(flow)],
            files=sorted(link.file for link in known.values()),
            points=[
                StampedPoint(
                    name=point.name,
                    port=str(point.port),
                    file=known[point.name].file,
                    before=point.before,
                    received=point.received,
                )
                for point in flow.points
            ],
        )


def require_space(folder: Path, needed: int) -> None:
    """Raises `MachineError` when the disk of `folder` has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise MachineError(
            f"the stamps of this run need {needed / 1e6:.1f} MB and the disk has "
            f"{free / 1e6:.1f} MB: make room there"
        ).at(folder)


def _allowed(pid: int) -> str | None:
    try:
        return ranges(os.sched_getaffinity(pid))
    except ProcessLookupError:
        return None

"""The role that stamps: taps before and after the DuT, and between its nodes, for one flow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailtap.cpulist import ranges
from tailtap.instruments.taps import TAPS
from tailtap.instruments.taps.warnings import of_deferral, of_hops, of_links
from tailtap.machine import environment
from tailtap.machine.journal import boot_id
from tailtap.roles.role import Request, Workbench
from tailtap.stations.process import Process
from tailtap.stations.session import FAILED, Json
from tailtap.traffic.external import MOONSNIFF

ROOM = 1.05
SPARE_ROOM = 65_536
"""Stamps that the taps have room for, beyond the packets that are sent: duplicates, strays."""


class Timestamper:
    """Plan: ``{"flow", "folder"}``. Stamp files go into the folder.

    Events: `failed`, when the taps ended on their own.
    """

    def __init__(self, bench: Workbench, plan: Json) -> None:
        """Taps that do not stamp yet."""
        self._flow = bench.lab.graph.flow(plan["flow"])
        self._host = bench.lab.host(self._flow.ingress.node)
        within = self._flow.stamped[1:-1]
        self._namespaces = {port.node: bench.lab.name_of(port.node) for port in within}
        self._kind = TAPS[bench.experiment.tap.kind]
        self._traffic = bench.traffic(plan["flow"])
        self._cables = bench.experiment.cables() is not None
        self._passive = bench.experiment.tap.kind == "passive"
        self._lab = bench.lab
        self._folder = Path(plan["folder"])
        self._process: Process | None = None
        self._ended = False

    def requests(self) -> Mapping[str, Request]:
        """What it can be asked: each one's answer is told by its method."""
        return {
            "describe": self._describe,
            "start": self._start,
            "restart": self._restart,
            "count": self._count,
            "stop": self._stop,
        }

    def sources(self) -> Sequence[Process]:
        """The process of the taps, which says nothing before its end."""
        return [self._process] if self._process is not None and not self._ended else []

    def look(self) -> Sequence[Json]:
        """Its end."""
        for process in self.sources():
            if process.readable():
                self._ended = True
                return [{"event": FAILED, "reason": process.failure()}]
        return []

    def close(self) -> None:
        """End the taps if they still run."""
        if self._process is not None:
            self._process.close()

    def _describe(self, content: Json) -> Json:
        """Its machine (`station`), as that of a generator is described; nothing is judged there.

        None where it is the DuT's machine, whose boot the question comes with (`boot_id`).
        """
        if content["boot_id"] is not None and content["boot_id"] == boot_id():
            return {"station": None}
        return {"station": {"environment": environment.describe(), "tuning": None}}

    def _start(self, content: Json) -> Json:
        """Begin to stamp, once the links are up."""
        self._lab.wait_until_up()
        self._stamp(MOONSNIFF)
        return {}

    def _restart(self, content: Json) -> Json:
        """Forget the packets of the probe: where ids lie elsewhere they have one as well."""
        if self._traffic.key != MOONSNIFF:
            assert self._process is not None  # asked in order
            self._kind.stop(self._process)
            self._stamp(self._traffic.key)
        return {}

    def _stamp(self, key: str) -> None:
        room = int(self._traffic.packets * ROOM) + SPARE_ROOM
        self._process = self._kind.start(
            self._host, self._folder, room, self._flow, key, namespaces=self._namespaces
        )

    def _count(self, content: Json) -> Json:
        """Packets that have come to `ingress` and `egress` since their links exist."""
        assert self._process is not None  # asked in order
        # The egress first: what passes both taps in between counts in favour of the device.
        egress = received(self._process.pid, self._flow.egress.name)
        ingress = received(self._process.pid, self._flow.ingress.name)
        return {"ingress": ingress, "egress": egress}

    def _stop(self, content: Json) -> Json:
        """End the taps: what each of them counted, warnings, their files, and where they ran.

        `points` has the tap points in the order in which packets pass them, and `before` of each is
        the node of the DuT that they enter next.
        """
        assert self._process is not None  # asked in order
        self._ended = True
        cpus = _allowed(self._process.pid)
        links = self._kind.stop(self._process)
        warnings = [
            *of_links(links, self._flow),
            *of_deferral(cables=self._cables, passive=self._passive),
            *of_hops(self._flow),
        ]
        points = [
            {"name": name, "port": str(port), "file": links[name]["file"], "before": before}
            for name, port, before in self._flow.points
        ]
        return {
            "taps": links,
            "warnings": warnings,
            "files": sorted(link["file"] for link in links.values()),
            "cpus": cpus,
            "points": points,
        }


def _allowed(pid: int) -> str | None:
    """The CPUs that a process may run on; None when it is gone."""
    try:
        return ranges(os.sched_getaffinity(pid))
    except ProcessLookupError:
        return None


def received(pid: int, port: str) -> int:
    """Packets that `port` has received since it exists, as the process `pid` sees it."""
    for line in Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii").splitlines():
        name, _, columns = line.partition(":")
        if name.strip() == port:
            return int(columns.split()[1])
    return 0  # it vanished: somebody else tells

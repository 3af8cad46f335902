"""How much memory the forwarder has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tailtap.base.units import format_size, ranges
from tailtap.lab.instruments.observing import Quiet, Reading, Scope, Warning
from tailtap.records.run import Facts

PROC = Path("/proc")
FAR_SHARE = 0.1
"""Less memory on other nodes than this is that of libraries and tables, which everybody has."""


def forwarder_memory(scope: Scope) -> OfForwarder | None:
    """The memory of the forwarder's processes when the packets have been sent."""
    return None if scope.forwarder is None else OfForwarder(scope.forwarder, scope)


class OfForwarder(Quiet):
    """What one process and its children have."""

    def __init__(self, pid: int, scope: Scope) -> None:
        """Of the process `pid`."""
        self._pid, self._scope = pid, scope

    def stop(self) -> Reading:
        """The memory that they have now in bytes; on a machine with several NUMA nodes by node."""
        facts = Facts(forwarder_memory=memory_of(self._pid))
        numa = self._scope.numa
        if numa is None or len(numa.nodes) < 2:
            return Reading(facts)
        nodes = nodes_of(self._pid)
        facts.forwarder_memory_nodes = {str(node): size for node, size in nodes.items()}
        return Reading(facts, tuple(far(nodes, numa.of_cpus(self._scope.dut_cpus))))


def far(nodes: Mapping[int, int], near: Sequence[int]) -> Iterator[Warning]:
    """A warning when the memory in `nodes` is not on those that are `near`."""
    away = {node: size for node, size in nodes.items() if near and node not in near}
    if sum(away.values()) > FAR_SHARE * sum(nodes.values()):
        yield {
            "code": "numa-crossing",
            "message": f"{format_size(sum(away.values()))} of the forwarder's memory are on NUMA "
            f"node {ranges(away)}, and dut.cpus on {ranges(near)}",
        }


def nodes_of(pid: int, proc: Path = PROC) -> dict[int, int]:
    """Bytes of memory of a process and all that it started, without files, by NUMA node.

    ``numa_maps`` of proc(5): ``N1=3 kernelpagesize_kB=4`` are three pages of 4 KiB on node 1.
    """
    found: dict[int, int] = {}
    for one in _family(pid, proc):
        text = ""
        with contextlib.suppress(OSError):
            text = (proc / str(one) / "numa_maps").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            words = dict(word.partition("=")[::2] for word in line.split())
            if "anon" not in words and "huge" not in words:
                continue
            size = 1024 * int(words.get("kernelpagesize_kB", "4"))
            for name, pages in words.items():
                if name[:1] == "N" and name[1:].isdecimal():
                    found[int(name[1:])] = found.get(int(name[1:]), 0) + size * int(pages)
    return dict(sorted(found.items()))


def memory_of(pid: int, proc: Path = PROC) -> int | None:
    """Bytes of memory of a process and all that it started, pages that are shared in shares.

    None when it is gone.
    """
    found: list[int] = []
    for one in _family(pid, proc):
        with contextlib.suppress(OSError):
            text = (proc / str(one) / "smaps_rollup").read_text(encoding="ascii")
            rows = (line.split() for line in text.splitlines())
            found.append(sum(1024 * int(row[1]) for row in rows if row[0] == "Pss:"))
    return sum(found) if found else None


def _family(pid: int, proc: Path) -> Iterator[int]:
    """A process and all that it started."""
    children: dict[int, list[int]] = {}
    for path in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # processes come and go
            # The name stands in parentheses and may hold any letters, parentheses too.
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        yield one

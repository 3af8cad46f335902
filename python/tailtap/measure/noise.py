"""What takes cores that nobody asks for anything: the floor of a core, as `wire` is that of links.

A loop on each core reads the clock, as oslat's does; a gap is a time between two reads that was
longer than asked. The tracer follows the cores meanwhile, so that each nanosecond of a gap has the
name that it would have in a late packet. The tracer takes time too, in each interrupt and switch.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailtap import _core
from tailtap.analysis.causes.taxonomy import SERVING_NAME, Named, Rows, sort
from tailtap.analysis.causes.trace import trace_in
from tailtap.base.units import format_count
from tailtap.host.facts import machine as facts
from tailtap.host.facts.needs import require_root
from tailtap.lab.instruments.observing import Tracing
from tailtap.lab.instruments.tracer import Following, warnings_of
from tailtap.lab.served import Server
from tailtap.records.causes import CausePart, NoiseCause, NoiseRecord, NoisyCpu, WorstGap
from tailtap.records.record import Notice

ROOM = 1 << 18
"""Gaps of each CPU of which both ends are kept."""
WORST = 10
PER_SECOND = 10_000
"""Records for which the tracer has room, for each second and CPU: an idle core makes a tenth."""
NOWHERE = Named("gap", "")
"""The loop had the core by all that the kernel tells, and did not run."""


def noise(cpus: Sequence[int], lasts_ns: int, above_ns: int) -> NoiseRecord:
    """Watch `cpus` for `lasts_ns`; gaps are longer than `above_ns`.

    SIGINT and SIGTERM end it early. Raises `InputError` for a CPU that cannot be used,
    `MachineError` where the kernel cannot be traced.
    """
    require_root()
    with tempfile.TemporaryDirectory(prefix="tt-") as folder:
        following: list[Following] = []

        def follow(threads: Sequence[int]) -> None:
            loops = ",".join(map(str, threads))
            packets = PER_SECOND * -(-lasts_ns // 1_000_000_000)
            tracing = Tracing("thin", Path(folder), packets, (Server.parse(f"poll:{loops}"),))
            following.append(Following(cpus, tracing))

        try:
            found = _core.noise(list(cpus), lasts_ns, above_ns, ROOM, follow)
            taken = following[0].taken()
        finally:
            for one in following:
                one.close()
        trace = trace_in(Path(folder))
        cores, _ = _core.Cores.read(trace.events, list(cpus), trace.record.ended_ns)
        rows = sort(cores.owners, trace.names, trace.served)
        owners = _Owners()
        for seen in found:
            for start, end in seen["gaps"]:
                parts = _parts(cores, rows, seen["cpu"], start, end)
                owners.add(seen["cpu"], start, end - start, parts)
    return NoiseRecord(
        above_ns=above_ns,
        boot_id=facts.boot_id() or "",
        kernel=facts.kernel_release(),
        cpus=[_cpu(one) for one in found],
        causes=owners.causes(sum(one["elapsed_ns"] for one in found)),
        named=owners.named,
        worst=sorted(owners.all, key=lambda gap: -gap.ns)[:WORST],
        warnings=[*warnings_of(taken), *_unkept(found)],
    )


def _parts(
    cores: _core.Cores, rows: Rows, cpu: int, start: int, end: int
) -> list[tuple[Named, int]]:
    """What had the core from `start` to `end` (ns), and for how long; the most first."""
    parts: Counter[Named] = Counter()
    for since, until, owner in cores.between(cpu, start, end):
        named = rows.names[rows.of_owners[owner]]
        known = named not in (SERVING_NAME, Named("unexplained", ""))
        parts[named if known else NOWHERE] += min(until, end) - max(since, start)
    return parts.most_common()


@dataclass
class _Owners:
    ns: Counter[Named] = field(default_factory=Counter)
    gaps: Counter[Named] = field(default_factory=Counter)
    most: dict[Named, int] = field(default_factory=lambda: defaultdict(int))
    all: list[WorstGap] = field(default_factory=list)

    def add(self, cpu: int, start: int, lasts: int, parts: Sequence[tuple[Named, int]]) -> None:
        for named, ns in parts:
            self.ns[named] += ns
            self.most[named] = max(self.most[named], ns)
        if parts:
            self.gaps[parts[0][0]] += 1
        told = [CausePart(cause=one.cause, detail=one.detail, ns=ns) for one, ns in parts]
        self.all.append(WorstGap(cpu=cpu, start_ns=start, ns=lasts, parts=told))

    @property
    def named(self) -> float | None:
        """The share of the time in gaps that something is known to have had."""
        whole = sum(gap.ns for gap in self.all)
        return (self.ns.total() - self.ns[NOWHERE]) / whole if whole else None

    def causes(self, elapsed_ns: int) -> list[NoiseCause]:
        return [
            NoiseCause(
                cause=named.cause,
                detail=named.detail,
                gaps=self.gaps[named],
                ns=ns,
                worst_ns=self.most[named],
                share=ns / elapsed_ns,
            )
            for named, ns in self.ns.most_common()
        ]


def _cpu(found: _core._Noise) -> NoisyCpu:
    lasted = sorted(end - start for start, end in found["gaps"])

    def percentile(p: float) -> int | None:
        """The exact nearest-rank percentile."""
        return lasted[max(0, -(-len(lasted) * round(100 * p) // 100) - 1)] if lasted else None

    return NoisyCpu(
        cpu=found["cpu"],
        elapsed_ns=found["elapsed_ns"],
        reads=found["reads"],
        least_ns=found["least_ns"],
        gaps=len(lasted) + found["unkept"],
        gap_ns=found["gap_ns"],
        unkept=found["unkept"],
        median_ns=percentile(0.5),
        p99_ns=percentile(0.99),
        worst_ns=lasted[-1] if lasted else None,
    )


def _unkept(found: Sequence[_core._Noise]) -> list[Notice]:
    return [
        Notice(
            "noise-unkept",
            f"CPU {one['cpu']}: of {format_count(one['unkept'], 'gap')} after the first {ROOM:,} "
            "only number and time are known",
        )
        for one in found
        if one["unkept"]
    ]

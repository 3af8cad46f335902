"""Taking a trace: ``trace.events``, and ``trace.json`` that says what it is.

The latter is written when the former is complete: a trace without it was cut off. A trace in a row
of files is one pair after the other: ``trace-00001.events``, ``trace-00001.json``, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tailtap.base.files import write_json
from tailtap.host.facts.timekeeping import require_kernel_clock
from tailtap.lab.forwarders.served import Server, records_of
from tailtap.records.record import as_json
from tailtap.records.trace import Taken, TraceFacts, TraceNames, TraceRecord, UsualPasses

EVENTS, RECORD = "trace.events", "trace.json"
THIN_FLOOR_NS = 1000
"""Interrupts and softirqs that are shorter are added up in a thin trace."""


def take(
    folder: Path,
    cpus: Sequence[int],
    on_ready: Callable[[], object],
    *,
    senders: Sequence[int] = (),
    mode: str,
    floor_ns: int | None = None,
    served: Sequence[Server] = (),
    networks: Sequence[int] = (),
    steered: bool = False,
    records: int | None = None,
    rotate_ns: int | None = None,
    flush_ns: int | None = None,
    duration_ns: int | None = None,
    cpu: int | None = None,
    budget: float | None = None,
    measure_cost: bool = False,
) -> Taken:
    """Trace `cpus` into `folder` until SIGINT, SIGTERM or the duration.

    There is room for `records` of each CPU. `networks` are the inodes of the network
    namespaces whose packets softirqs serve, as far as that is known; `steered` says that they come
    by function calls of other CPUs alone. With `rotate_ns` a row of files is written, each for so
    long, and the last one is what is returned. Where the programs take more than `budget` of one
    core's time, nothing is traced for a part of the time. Raises `InputError`, `MachineError`.
    """
    from tailtap import _core

    require_kernel_clock()
    told = records_of(served, cpus)
    floor = (THIN_FLOOR_NS if mode == "thin" else 0) if floor_ns is None else floor_ns
    (folder / RECORD).unlink(missing_ok=True)
    keep = partial(
        _keep,
        mode=mode,
        cpus=list(cpus),
        senders=sorted(set(senders) - set(cpus)),
        floor_ns=floor,
        served=told,
    )
    report = _core.trace(
        folder / EVENTS,
        list(cpus),
        on_ready,
        senders=list(senders),
        mode=mode,
        floor_ns=floor,
        served=sorted({pid for one in served for pid in one.served.pids}),
        networks=list(networks),
        steered=steered,
        records=records,
        rotate_ns=rotate_ns,
        on_file=keep,
        flush_ns=flush_ns,
        duration_ns=duration_ns,
        cpu=cpu,
        budget=budget,
        measure_cost=measure_cost,
    )
    return keep(report)


def _keep(report: Mapping[str, Any], **asked: Any) -> Taken:
    """Write what a complete file has beside it."""
    facts = TraceFacts(
        clock="monotonic",
        boot_id=report["boot_id"],
        started_ns=report["started_ns"],
        ended_ns=report["ended_ns"],
        records=sum(report["kinds"].values()),
        lost={str(cpu): count for cpu, count in report["lost"].items()},
        missing=report["missing"],
        substitutes=report["substitutes"],
        steal=report["steal"],
        usual={
            str(cpu): UsualPasses(passes=passes, half_ns=half)
            for cpu, (passes, half) in report["passes"].items()
        },
        writes=report["writes"],
        paused_ns=report["paused_ns"],
        share=report["share"],
        kernel=report["kernel"],
        **asked,
    )
    names = TraceNames(
        pids={str(pid): name for pid, name in report["pids"].items()},
        irqs={str(irq): name for irq, name in report["irqs"].items()},
        functions={f"{at:#x}": name for at, name in report["functions"].items()},
    )
    own = msgspec.structs.asdict(facts)
    record = Path(report["path"]).with_suffix(Path(RECORD).suffix)
    write_json(record, as_json(TraceRecord(**own, names=names)))
    return Taken(**own, kinds=report["kinds"], hooks=report["hooks"])

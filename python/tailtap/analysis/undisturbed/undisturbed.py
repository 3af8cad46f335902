"""`undisturbed_of`: the latencies of a run without the time in which its machine was away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailtap import _core
from tailtap.analysis.causes.late import SAMPLE_BYTES, capture_of, packets_of
from tailtap.analysis.causes.trace import (
    GUEST_EVENTS,
    Events,
    Spans,
    Trace,
    has_trace,
    load,
    load_guest,
)
from tailtap.analysis.clocks.host import guest_clock
from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.evaluate import of_evaluation
from tailtap.analysis.evaluation.model import SIDES, Evaluation
from tailtap.analysis.evaluation.values import Column, column, label
from tailtap.analysis.runs.run import Run
from tailtap.analysis.undisturbed.stretches import (
    LEAST_P,
    SEED,
    SHIFTS,
    Left,
    Pauses,
    independence,
    leave_out,
    of_generator,
    of_guest,
    of_trace,
)
from tailtap.base.errors import InputError
from tailtap.base.files import opened
from tailtap.base.units import format_count, format_share, format_time
from tailtap.records.evaluation import (
    By,
    Independence,
    Latency,
    PausesRow,
    Percentile,
    UndisturbedRecord,
)
from tailtap.records.record import Notice, mark, read_if_there

FOLDER = "undisturbed"
"""In a run folder: an evaluation of what is left, with the two files below."""
RECORD, STRETCHES = "undisturbed", "stretches"
MOST_OUT = 0.5
"""Where more of the time is left out than this, the rest is too short to speak for the run: what
takes the device longer than the time between two pauses would be missing in it."""
UNKNOWN = "its pauses are not recorded: measure with `trace: thin`, or at a constant pace"


@dataclass(frozen=True)
class Undisturbed:
    """A run without the stretches of time around pauses from outside."""

    record: UndisturbedRecord
    out: Spans
    """The stretches that are left out, by the clock of the stamps."""
    evaluation: Evaluation | None
    """Of the packets that are left; None where it is not shown."""

    def percentile(self, p: float) -> Percentile | None:
        """The percentile `p` (0 to 1) of the packets that are left; None where it is not shown.

        Exact, as that of an evaluation. Its 95 % interval is that of the binomial distribution of
        ranks for as many packets as are left. That takes packets as independent, as all such
        intervals here do, and the number of packets that are left as given: it follows from when
        pauses were, which does not depend on latencies.
        """
        return None if self.evaluation is None else self.evaluation.percentile(p)

    def write(self, folder: Path, *, below: Path | None = None) -> None:
        """Write it into the folder `FOLDER` of a run folder. Raises `MachineError`."""
        place = folder / FOLDER
        if self.evaluation is not None:
            self.evaluation.write(place, below=below)
        spans = {STRETCHES: tables.table(STRETCHES, self.out.start, self.out.end)}
        tables.write(place, spans, {RECORD: self.record}, below=below)


def undisturbed_of(run: Run) -> Undisturbed | None:
    """What is stored of a run or, where nothing is, found out now. Nothing is written.

    None where nothing tells of pauses: without a trace, and without a generator of ours that sends
    at a constant pace. Raises `InputError` when the run's files cannot be read, or its stamps are
    gone.
    """
    return _usable(run) or find_undisturbed(run)


def _usable(run: Run) -> Undisturbed | None:
    """As `stored_of`, for who finds out anew what cannot be read."""
    try:
        return stored_of(run)
    except InputError:
        return None


def stored_of(run: Run) -> Undisturbed | None:
    """What is stored of a run; None where nothing is, or where it is of another evaluation.

    Raises `InputError` when it is there and cannot be read.
    """
    if run.own_folder is None or run.record is None or run.evaluation is None or run.origin:
        return None
    return read_undisturbed(run.own_folder, run.stored)


def read_undisturbed(folder: Path, evaluation: Evaluation) -> Undisturbed | None:
    """What a run folder has of its `evaluation`; None where it has nothing, or of another one.

    Raises `InputError` when it is there and cannot be read.
    """
    place = folder / FOLDER
    try:
        record = read_if_there(place / f"{RECORD}.json", UndisturbedRecord)
        if record is None:
            return None
        spans = tables.pair(tables.read(place, STRETCHES, record.made), "start_ns", "end_ns")
        found = Evaluation.load(place) if record.shown else None
    except (InputError, OSError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"its undisturbed latencies cannot be read ({error}): run "
            f"tailtap explain {folder} again"
        ).at(place) from error
    whole = found is None or found.counts.matched == record.packets
    current = record.of == evaluation.record().made and whole
    return Undisturbed(record, Spans(*spans), found) if current else None


def keep_undisturbed(run: Run, trace: Trace | None = None) -> Undisturbed | None:
    """Find out what a run's folder has not yet, and write it there.

    `trace` is the run's, where it was read already.

    Raises `InputError` as `undisturbed_of` does, and where the folder would be read or written by
    a link, and `MachineError` when it cannot be written.
    """
    folder = run.own_folder
    if folder is None:
        return None
    place = folder / FOLDER
    if place.is_symlink() or place.exists():
        with opened(place, below=run.top):
            pass
    found = _usable(run)
    if found is None:
        found = find_undisturbed(run, trace)
        if found is not None:
            found.write(folder, below=run.top)
    return found


def find_undisturbed(run: Run, trace: Trace | None = None) -> Undisturbed | None:
    """The same, found out now; see `undisturbed_of`."""
    folder = run.own_folder
    if folder is None or run.record is None or run.origin or run.stored.clocks is not None:
        return None
    stored = run.stored
    before, after = (capture_of(side, folder) for side in stored.inputs.both)
    events: Events | None = None
    senders: Sequence[int] = ()
    found: list[Pauses] = []
    known: list[str] = []
    if has_trace(run):
        trace = trace or load(run)
        found, events = of_trace(trace)
        senders = trace.record.senders
        known.append("trace")
    elif (folder / GUEST_EVENTS).is_file():
        found = of_guest(load_guest(folder), guest_clock(folder))
        known.append("guest-trace")
    generator = of_generator(run, before, events, senders)
    if generator is not None:
        found += generator
        known.append("generator")
    if not known:
        return None
    ingress, latency = all_packets(run, before, after)
    return leave_out_of(run, found, known, ingress, latency)


def leave_out_of(
    run: Run, found: Sequence[Pauses], known: Sequence[str], ingress: Column, latency: Column
) -> Undisturbed:
    """What is left of a run around the pauses that were `found`. Packets ascend by `ingress`."""
    plain = run.stored.record()
    first, last = int(ingress[0]), int(ingress[-1]) + 1
    spans = [one.spans for one in found]
    pauses = Spans.merged(
        np.concatenate([np.empty(0, np.int64), *(one.start for one in spans)]),
        np.concatenate([np.empty(0, np.int64), *(one.end for one in spans)]),
    ).within(first, last)
    left = leave_out(pauses, ingress, latency)
    out = left.out.within(first, last)
    p = independence(pauses, left, ingress)
    reason = _reason(p, out.total_ns, last - first, int(left.kept.sum()))
    evaluation = None if reason else _evaluation(run.stored, left, out, ingress, latency)
    record = UndisturbedRecord(
        run=run.slug,
        shown=not reason,
        reason=reason or None,
        words="",
        known_by=list(known),
        pauses=[_row(one, first, last) for one in found],
        of_ns=last - first,
        left_out_ns=out.total_ns,
        stretches=int(out.start.size),
        while_ns=left.while_ns,
        packets=int(left.kept.sum()),
        left_out=int((~left.kept).sum()),
        independence=Independence(p_value=p, least_p=LEAST_P, shifts=SHIFTS, seed=SEED),
        latency_ns=None if evaluation is None else evaluation.record().latency_ns,
        plain_ns=plain.latency_ns,
        of=plain.made,
    )
    record.words = words_of(record, _unknown(run, known))
    if evaluation is not None:
        notice = Notice("undisturbed", record.words)
        evaluation = replace(evaluation, warnings=[*evaluation.warnings, notice])
    record.made = mark(record)
    return Undisturbed(record, out, evaluation)


def _reason(p: float | None, out_ns: int, of_ns: int, packets: int) -> str:
    """Why what is left does not speak for the device; empty where it does."""
    if out_ns > MOST_OUT * of_ns or not packets:
        return (
            f"pauses take {format_share(out_ns / of_ns)} of the time: the rest is too short to "
            "stand for the run"
        )
    if p is not None and p < LEAST_P:
        return (
            f"pauses come with load (p = {p:.3g}): without them the rest would have a lighter load "
            "than the run"
        )
    return ""


def _unknown(run: Run, known: Sequence[str]) -> str:
    """What may be missing among the pauses; empty where nothing is known to be."""
    if "guest-trace" in known:
        return (
            "its host was not traced: stolen time is recorded, stops of the virtual machine are not"
        )
    if "trace" not in known:
        return "without a trace only the generator's lateness is known"
    taken = run.record and run.record.trace
    if not taken:
        return ""
    if lost := sum(taken.lost.values()):
        return f"the trace lost {format_count(lost, 'record')}, and pauses with them"
    hypervisor = run.environment.cpu.hypervisor
    if hypervisor and taken.steal is False:
        return "the hypervisor does not tell what it takes"
    return ""


def _row(one: Pauses, first: int, last: int) -> PausesRow:
    spans = one.spans.within(first, last)
    return PausesRow(
        by=one.by,
        cpu=one.cpu,
        pauses=int(spans.start.size),
        pause_ns=spans.total_ns,
        longest_ns=int((spans.end - spans.start).max(initial=0)),
    )


def _evaluation(
    stored: Evaluation, left: Left, out: Spans, ingress: Column, latency: Column
) -> Evaluation:
    """The evaluation of the packets that are left.

    Packets that were lost count where they came in what is left, if all of them are known. Other
    counts are those of the run; there are no gaps and no rates.
    """
    ingress, latency = ingress[left.kept], latency[left.kept]
    order = np.argsort(ingress + latency, kind="stable")
    ingress, latency = ingress[order], latency[order]
    floor_ns, width_ns = stored.exceedances.floor_ns, stored.blocks.width_ns
    large = np.flatnonzero(latency > floor_ns)
    block = (ingress + latency) // width_ns
    first = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
    worst, lost = stored.worst_packets, stored.lost_packets
    here, missing = ~out.has(worst.ingress_ns), ~out.has(lost.ingress_ns)
    counts = stored.counts
    gone = int((~missing).sum()) if lost.ingress_ns.size == counts.lost else 0
    fewer = counts.matched - latency.size
    empty = np.empty(0, np.int64)
    return replace(
        stored,
        counts=msgspec.structs.replace(
            counts,
            ingress=counts.ingress - fewer - gone,
            egress=counts.egress - fewer,
            matched=latency.size,
            lost=counts.lost - gone,
        ),
        mean=float(latency.mean()),
        columns={
            "distribution": np.unique(latency, return_counts=True),
            "worst": _those(stored.columns("worst"), here),
            "exceedances": (floor_ns, large, ingress[large], latency[large]),
            "blocks": (
                width_ns,
                block[first] * width_ns,
                np.diff(np.append(first, latency.size)),
                np.add.reduceat(latency, first),
                np.maximum.reduceat(latency, first),
            ),
            "gaps": dict.fromkeys(SIDES, (empty, empty)),
            "rates": dict.fromkeys(SIDES, (empty, empty)),
            "losses": _those(stored.columns("losses"), missing),
        }.__getitem__,
        hops=None,
        back=None,
    )


def _those(columns: Sequence[Any], chosen: npt.NDArray[np.bool_]) -> list[Any]:
    places = np.flatnonzero(chosen)
    return [
        [one[place] for place in places] if isinstance(one, list | tuple) else column(one)[places]
        for one in columns
    ]


def undisturbed_run(run: Run) -> Run:
    """The run with the latencies that are undisturbed in place of its own.

    Where these are not shown, or nobody knows, it is a run without a result, which says why. A run
    without a result of its own stays as it is.
    """
    if run.evaluation is None:
        return run
    return replace(run, read=lambda: _read(run))


def _read(run: Run) -> Evaluation:
    found = undisturbed_of(run)
    if found is None:
        raise InputError(str(UNKNOWN)).at(run.slug)
    if found.evaluation is None:
        raise InputError(f"its undisturbed percentiles are not shown: {found.record.reason}").at(
            run.slug
        )
    return found.evaluation


def all_packets(run: Run, before: Path, after: Path) -> tuple[Column, Column]:
    """Ingress stamps, ascending, and latencies of all matched packets of a run, in ns.

    The captures are matched piece by piece; each piece is so small that all of it is kept. Needs
    16 bytes of memory a packet, and as much to sort them. Raises `InputError` when the captures are
    not those that were evaluated.
    """
    stored = run.stored
    # No packet was matched later than the largest latency, and pieces are read so much further.
    settings = of_evaluation(stored, worst=0, losses=False, window_ns=stored.max + 1)
    pieces = _core.plan(before, after, settings.matching, chunk_bytes=SAMPLE_BYTES)
    ingress, latency = packets_of(pieces)
    values, counts = stored.distribution
    again, numbers = np.unique(latency, return_counts=True)
    if not (np.array_equal(again, values) and np.array_equal(numbers, counts)):
        raise InputError(
            "the stamps are not those that were evaluated: run `tailtap evaluate "
            f"{before.parent}` again"
        ).at(before)
    order = np.argsort(ingress, kind="stable")
    return ingress[order], latency[order]


_WHAT: dict[By, str] = {
    "steal": "stolen",
    "stop": "stopped",
    "generator": "generator late",
}


def words_of(record: UndisturbedRecord, unknown: str) -> str:
    """How much time is left out, and why; `unknown` is what may be missing."""
    if record.stretches:
        share = record.left_out_ns / record.of_ns
        why = ", ".join(map(_pauses, record.pauses))
        told = (
            f"{format_time(record.left_out_ns)} of {format_time(record.of_ns)} "
            f"({format_share(share)}), {format_count(record.left_out, 'packet')}, around pauses "
            f"from outside ({why})"
        )
        told = f"left out: {told}" if record.shown else f"would be left out: {told}"
    else:
        told = "nothing is left out: no pause from outside is known"
    return "; ".join(part for part in (told, record.reason, unknown) if part)


def _pauses(row: PausesRow) -> str:
    where = "" if row.cpu is None else f" on CPU {row.cpu}"
    return f"{_WHAT[row.by]}{where}: {format_time(row.pause_ns)} in {row.pauses:,}"


def beside(plain: Latency, undisturbed: Latency) -> str:
    """The supported percentiles of all packets, and of those that are left."""
    left = {row.p: row for row in undisturbed.percentiles if row.supported}
    pairs = [(row, left[row.p]) for row in plain.percentiles if row.supported and row.p in left]
    told = [
        f"{label(row.p)} {format_time(row.value)} -> {format_time(one.value)}"
        for row, one in pairs
        if row.value != one.value
    ]
    rises = any(one.value > 1.05 * row.value for row, one in pairs)
    higher = " (higher: most packets left out were quick)" * rises
    return ", ".join(told) + higher or "no percentile changes"

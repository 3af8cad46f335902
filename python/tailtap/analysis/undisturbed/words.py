"""What was left out of a run, and what that changed, in sentences."""

from __future__ import annotations

from tailtap.analysis.evaluation.percentiles import label
from tailtap.base.units import format_count, format_share, format_time
from tailtap.records.evaluation import By, Latency, PausesRow, UndisturbedRecord

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
    told = [
        f"{label(row.p)} {format_time(row.value)} -> {format_time(left[row.p].value)}"
        for row in plain.percentiles
        if row.supported and row.p in left
    ]
    return ", ".join(told)

"""What `tailtap improve` tried, where the folder is one of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.analysis.evaluation.percentiles import label
from tailtap.analysis.runs.text import with_micro_sign
from tailtap.base.units import format_share, format_time
from tailtap.records.record import read
from tailtap.records.search import ImproveRecord, KnobTrial, Measured

NAME = "improve.json"
DASH = "–"


@dataclass(frozen=True)
class Improvement:
    """The section of the page."""

    words: str
    """What was required, and what holds now."""
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    """Of each trial: the knob, and a cell for each head."""
    left: Sequence[tuple[str, str]]
    """Knobs that were not tried, and why."""


def improvement_of(folder: Path) -> Improvement | None:
    """What `tailtap improve` wrote into `folder`; None if nothing. Raises `InputError`."""
    path = folder / NAME
    if not path.is_file():
        return None
    found = read(path, ImproveRecord)
    p = label(found.p)
    heads = ("against", "late before", "late after", f"{p} without it", f"{p} with it",
             "late packets", "pairs", "answer")  # fmt: skip
    return Improvement(
        words=with_micro_sign(_words(found)),
        heads=heads,
        rows=[(row.knob, tuple(map(with_micro_sign, _cells(row)))) for row in found.trials],
        left=[(one.name, one.why) for one in found.left],
    )


def _words(found: ImproveRecord) -> str:
    if not found.stages:
        return f"{found.requirement}: nothing was measured"
    first, last = found.stages[0], found.stages[-1]
    undisturbed = " of undisturbed latencies" if found.settings.undisturbed else ""
    kept = f"; kept: {', '.join(found.kept)}" if found.kept else ""
    return (
        f"{found.requirement}{undisturbed}: {first.answer} before "
        f"({format_time(first.percentile.ns)}), {last.answer} in the end "
        f"({format_time(last.percentile.ns)}); ended: {found.stopped or found.status}{kept}"
    )


def _cells(row: KnobTrial) -> Sequence[str]:
    against = ", ".join(
        one.cause + (f" ({one.detail})" if one.detail else "") for one in row.causes
    )
    after = DASH if row.share_after is None else format_share(row.share_after)
    return (
        against,
        format_share(row.share_before),
        after,
        measured_text(row.before),
        measured_text(row.after),
        ratio_text(row) or DASH,
        str(len(row.pairs)),
        row.answer + (", kept" if row.kept else ""),
    )


def measured_text(found: Measured | None) -> str:
    """A percentile over runs, with its interval if it has one."""
    if found is None:
        return DASH
    if found.low_ns is None or found.high_ns is None:
        return format_time(found.ns)
    return f"{format_time(found.ns)} ({format_time(found.low_ns)} to {format_time(found.high_ns)})"


def ratio_text(row: KnobTrial) -> str:
    """The ratio of the late packets, with its interval; empty without any."""
    if row.ratio is None:
        return ""
    low = "0" if row.low is None else f"{row.low:.2g}"
    high = "any" if row.high is None else f"{row.high:.2g}"
    return f"x {row.ratio:.2g} ({low} to {high})"

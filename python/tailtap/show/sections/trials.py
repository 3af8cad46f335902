"""What was tried, and what it showed: knobs, rates."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.analysis.evaluation.percentiles import label
from tailtap.analysis.runs.text import as_words
from tailtap.base.units import format_rate, format_share, format_time
from tailtap.records.search import ImproveRecord, KnobTrial, Measured, SearchAnswer
from tailtap.show.sections import COUNT, SHARE, Column, Row, Section, Table, row, table


def improvement_section(record: ImproveRecord) -> Section:
    """The knobs that `tailtap improve` tried."""
    p = label(record.p)
    columns = (
        Column("knob", wrap=14),
        Column("against", wrap=20),
        Column("late before", SHARE, wrap=6),
        Column("late after", SHARE, wrap=5),
        Column(f"{p} without it", right=True, wrap=14),
        Column(f"{p} with it", right=True, wrap=14),
        Column("late packets", right=True, wrap=16),
        Column("pairs", COUNT),
        Column("answer", wrap=8),
    )
    return Section(
        "What was tried",
        [_outcome(record)],
        [table("what was tried", columns, map(_trial, record.trials))],
        [f"not tried: {one.name}: {one.why}" for one in record.left],
    )


def _outcome(record: ImproveRecord) -> str:
    if not record.stages:
        return f"{record.requirement}: nothing was measured"
    first, last = record.stages[0], record.stages[-1]
    undisturbed = " of undisturbed latencies" if record.settings.undisturbed else ""
    kept = f"; kept: {', '.join(record.kept)}" if record.kept else ""
    return (
        f"{record.requirement}{undisturbed}: {first.answer} before "
        f"({format_time(first.percentile.ns)}), {last.answer} in the end "
        f"({format_time(last.percentile.ns)}); ended: {record.stopped or record.status}{kept}"
    )


def _trial(one: KnobTrial) -> Row:
    causes = (f"{name.cause} ({name.detail})" if name.detail else name.cause for name in one.causes)
    return row(
        one.knob,
        ", ".join(causes),
        one.share_before,
        one.share_after,
        _measured(one.before),
        _measured(one.after),
        ratio_text(one.ratio, one.low, one.high),
        len(one.pairs),
        one.answer + (", kept" if one.kept else ""),
    )


def _measured(found: Measured | None) -> str | None:
    """A percentile over runs, with its interval if it has one."""
    if found is None:
        return None
    if found.low_ns is None or found.high_ns is None:
        return format_time(found.ns)
    return f"{format_time(found.ns)} ({format_time(found.low_ns)} to {format_time(found.high_ns)})"


def ratio_text(ratio: float | None, low: float | None, high: float | None) -> str | None:
    """A ratio with its interval, whose ends may not be known."""
    if ratio is None:
        return None
    least, most = ("0" if low is None else f"{low:.2g}", "any" if high is None else f"{high:.2g}")
    return f"x {ratio:.2g} ({least} to {most})"


def rates_table(answers: Sequence[SearchAnswer]) -> Table:
    """The highest rate for each loss and each combination of what varies."""
    varied = list(answers[0].variables) if answers else []
    columns = (
        *(Column(key.rpartition(".")[2]) for key in varied),
        Column("loss allowed", right=True),
        Column("highest rate", right=True, wrap=9),
        Column("up to", right=True, wrap=11),
        Column("width", SHARE),
        Column("trials at it", right=True, wrap=7),
        Column("packets", COUNT),
        Column("lost", COUNT),
        Column("loss below", SHARE, wrap=8),
    )
    return table("the highest rate", columns, map(_rate, answers))


def _rate(answer: SearchAnswer) -> Row:
    upper = "not tried" if answer.upper is None else format_rate(answer.upper)
    if answer.reason == "generator":
        upper += " (the generator's limit)"
    names = (*map(as_words, answer.variables.values()), format_share(answer.loss, 3))
    if (at := answer.at_rate) is None:
        return row(*names, "none", upper, *[""] * 5)
    each = format_time(at.duration_ns // max(1, at.trials))
    trials = f"{at.trials - at.exceeding} of {at.trials} × {each}"
    return row(*names, format_rate(at.rate), upper, _or_nothing(answer.width), trials, at.packets,
               at.lost, _or_nothing(answer.loss_limit))  # fmt: skip


def _or_nothing(value: float | None) -> object:
    return "" if value is None else value

"""What `tailtap improve` showed of remedies, beside the run that is explained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.evaluation.percentiles import label
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.units import format_time
from tailtap.records.causes import ProvenKnob
from tailtap.records.record import Notice, read_if_there
from tailtap.records.search import ImproveRecord, KnobTrial


def trials_of(run: Run) -> tuple[tuple[KnobTrial, ...], float, list[Notice]]:
    """The trials of an improvement that this is a run of, and the percentile that they lowered.

    None where it is no such run, or where nobody can read what was shown, which a warning says.
    """
    try:
        found = read_if_there(run.home / "improve.json", ImproveRecord)
    except InputError as error:
        return (), 0.0, [Notice("file-damaged", f"{error}: what was tried here is not known")]
    return (tuple(found.trials), found.p, []) if found is not None else ((), 0.0, [])


def decided(trials: Iterable[KnobTrial]) -> frozenset[str]:
    """The knobs of which it is known what they do: they are no candidates any more."""
    return frozenset(one.knob for one in trials if one.answer != "not shown")


def proven(trials: Iterable[KnobTrial], p: float, causes: Iterable[Named]) -> list[ProvenKnob]:
    """Those that helped against some of these causes."""
    there = set(causes)
    return [
        ProvenKnob(knob=one.knob, p=p, before_ns=one.before.ns, after_ns=one.after.ns)
        for one in trials
        if one.kept and one.before is not None and one.after is not None
        if any(Named(cause.cause, cause.detail) in there for cause in one.causes)
    ]


def proven_words(knobs: Sequence[ProvenKnob]) -> str:
    """What they did; nothing without any."""
    told = ", ".join(
        f"{one.knob} ({label(one.p)} from {format_time(one.before_ns)} to "
        f"{format_time(one.after_ns)})"
        for one in knobs
    )
    return f"proven: {told}" if told else ""

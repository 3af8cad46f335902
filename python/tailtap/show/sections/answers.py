"""What was asked of runs, what was tried, and the answers: requirements, claims, knobs, rates."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailtap.analysis.evaluation.values import label
from tailtap.analysis.runs.text import as_words
from tailtap.analysis.verdict.requirement import PROFILES
from tailtap.base.units import format_count, format_rate, format_share, format_time, format_us
from tailtap.records.compare import GateRecord, RepeatRow
from tailtap.records.record import Notice
from tailtap.records.search import ImproveRecord, KnobTrial, Measured, SearchAnswer
from tailtap.records.site import PublishRecord, RedactedKind, ReproductionRecord
from tailtap.records.verdict import ClaimRow, VerdictRecord, VerdictRow
from tailtap.records.warnings import FEW, by_kind
from tailtap.show.sections import (
    COUNT,
    SHARE,
    Cell,
    Column,
    Part,
    Row,
    Section,
    Shown,
    Table,
    row,
    table,
)

LOOKS = {
    **dict.fromkeys(("holds", "held", "better", "no worse", "reproduced"), "good"),
    **dict.fromkeys(("violated", "contradicted", "worse"), "alarm"),
    "not shown": "unshown",
}
"""How each answer stands out."""


def answered(answer: str) -> Cell:
    """An answer as a cell."""
    return Cell(answer, LOOKS[answer])


def verdict_table(verdicts: Iterable[VerdictRow]) -> Table:
    """Each requirement of each configuration."""
    columns = (
        Column("requirement", wrap=14),
        Column("answer"),
        Column("decided by", wrap=12),
        Column("measured", wrap=10),
        Column("why", wrap=24),
    )
    parts = [
        Part(
            [
                row(
                    found.requirement,
                    answered(found.answer),
                    found.decided_by if found.runs[1:] else "",
                    found.measured,
                    Cell(found.reason, "why"),
                )
                for found in rows
            ],
            configuration,
        )
        for configuration, rows in itertools.groupby(verdicts, lambda one: one.configuration)
    ]
    return Table("what was required", columns, parts)


def verdict_parts(found: VerdictRecord) -> Iterator[Shown]:
    """Answers with their reasons, profiles' sources, warnings, claims."""
    kinds = by_kind((Notice(one.code, one.message), one.run) for one in found.warnings)
    yield verdict_table(found.verdicts)
    for profile in dict.fromkeys(one.profile for one in found.verdicts if one.profile is not None):
        known = PROFILES[profile]
        yield f"profile {profile}: {known.source}" + f"; {known.reading}" * bool(known.reading)
    for kind in kinds:
        runs = kind.runs if len(kind.runs) <= FEW else [f"{len(kind.runs)} runs"]
        yield f"warning: {', '.join(runs)}: {kind.message} [{kind.code}]"
    yield claims_table(found.claims)
    yield verdict_text(found)


def verdict_text(found: VerdictRecord) -> str:
    """The answer, and how many requirements and claims have which."""
    counted = sorted(Counter(one.answer for one in found.claims).items())
    claims = f"claims: {', '.join(f'{count} {answer}' for answer, count in counted)}"
    if not found.verdicts:  # there are claims alone
        return claims
    told = ", ".join(f"{count} {answer}" for answer, count in found.answers.items() if count)
    of = " of undisturbed latencies" if found.undisturbed else ""
    return f"verdict{of}: {found.answer} ({told}{f'; {claims}' if counted else ''})"


def claims_table(claims: Iterable[ClaimRow]) -> Table:
    """Each claim of an experiment file."""
    columns = (Column("claim", wrap=20), Column("test", wrap=20), Column("answer"),
               Column("why", wrap=24))  # fmt: skip
    rows = [
        row(one.says, one.test, answered(one.answer), Cell(one.reason, "why")) for one in claims
    ]
    return table("what was claimed", columns, rows)


def gate_table(found: GateRecord) -> Table:
    """Each configuration before and after a change; latencies are medians of so many runs."""
    columns = (
        Column("configuration", wrap=16),
        Column("load", wrap=10),
        Column("at"),
        Column("before, us", right=True, spare=2),
        Column("after, us", right=True, spare=1),
        Column("ratio (95 %)", spare=3, wrap=8),
        Column("answer"),
        Column("why", wrap=24),
    )
    rows = []
    for one in found.rows:
        ratio = "" if one.ratio is None else f"x{one.ratio:.2f}"
        if one.ratio_low is not None and one.ratio_high is not None:
            ratio += f" ({one.ratio_low:.2f} to {one.ratio_high:.2f})"
        before, after = (_middle(runs) for runs in (one.base, one.new))
        rows.append(row(one.configuration, one.load, one.percentile_text, before, after, ratio,
                        answered(one.answer), one.reason))  # fmt: skip
    return table(f"{found.new} against {found.base}", columns, rows)


def gate_parts(found: GateRecord) -> tuple[Shown, ...]:
    """A row for each configuration, and the answer."""
    return gate_table(found), f"answer: {found.answer}"


def _middle(runs: Sequence[RepeatRow]) -> str:
    """The median of one side's runs, with their number."""
    known = sorted(run.latency for run in runs if run.latency is not None)
    if len(known) < len(runs) or not known:
        return "unknown"
    return f"{format_us(known[len(known) // 2])} of {len(known)}"


def reproduction_parts(found: ReproductionRecord) -> Iterator[Shown]:
    """What was repeated: each step, what differs, claims, machines, the answer."""
    kinds = {"site": "site", "crate": "crate of the RISE profile", "results": "result files"}
    yield f"{found.name or found.place}: {kinds[found.kind]}"
    yield from (f"  {line}" for line in found.about)
    yield from reproduction_tables(found)
    if found.folder is not None:
        yield f"runs of this machine: {found.folder}"
    yield f"answer: {found.answer}"


def reproduction_tables(found: ReproductionRecord) -> list[Table]:
    """What repeating something published showed, step by step, claim by claim."""
    why = Column("why", wrap=24)
    steps = Column("what", wrap=24), Column("answer"), Column("of it", wrap=24)
    missed = Column("what", wrap=24), Column("answer"), why
    claims = (
        Column("claim", wrap=20),
        Column("test", wrap=12, spare=1),
        Column("answer"),
        Column("published"),
        Column("here"),
        why,
    )
    machine = Column("what", wrap=16), Column("there", wrap=24), Column("here", wrap=24)
    return [
        table("steps", steps, [row(one.what, answered(one.answer), one.reason)
                               for one in found.steps]),
        table("not found again", missed, [row(one.what, answered(one.answer), one.reason)
                                          for step in found.steps for one in step.findings]),
        table("claims", claims, [
            row(one.says, one.test, answered(one.answer), one.published.answer,
                one.here and one.here.answer, one.reason)
            for one in found.claims
        ]),
        table("machines", machine, [row(one.what, one.there, one.here)
                                    for one in found.differences]),
    ]  # fmt: skip


def leaving_tables(record: PublishRecord, words: Mapping[RedactedKind, str]) -> list[Table]:
    """What leaves with a site by folder, what was replaced in it, and what is left out."""
    places: Counter[str] = Counter()
    for name in record.files:
        parts = name.split("/")
        place = "/".join(parts[: 2 if parts[0] == "runs" else 1])
        places[place + "/" * (place != name)] += 1
    replaced = Column("kind", wrap=3), Column("values", COUNT), Column("places", COUNT)
    return [
        table("", (Column("path", wrap=1), Column("files", COUNT)),
              (row(*one) for one in places.items())),
        table("replaced", (*replaced, Column("by names such as", wrap=3)),
              (row(words[one.kind], one.values, one.places, one.example)
               for one in record.site.redacted)),
        table("left out", (Column("file", wrap=1), Column("why", wrap=1)),
              (row(*one) for one in record.site.left_out.items())),
    ]  # fmt: skip


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
        f"({format_time(last.percentile.ns)}); ended: {_ended(record)}{kept}"
    )


def _ended(record: ImproveRecord) -> str:
    """Why no more was tried."""
    if record.stopped != "nothing left" or record.kept:
        return record.stopped or record.status
    if not record.trials:
        return "there was no candidate to try"
    answers = Counter(one.answer for one in record.trials)
    counts = ", ".join(f"{count} {answer}" for answer, count in answers.most_common())
    return f"none of {format_count(len(record.trials), 'candidate')} helped: {counts}"


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

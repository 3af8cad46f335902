"""What was asked of runs, and the answers: requirements, claims, changes, what is published."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tailtap.base.units import format_us
from tailtap.records.compare import GateRecord, RepeatRow
from tailtap.records.site import PublishRecord, RedactedKind, ReproductionRecord
from tailtap.records.verdict import ClaimRow, VerdictRow
from tailtap.show.sections import COUNT, Cell, Column, Part, Table, row, table

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


def _middle(runs: Sequence[RepeatRow]) -> str:
    """The median of one side's runs, with their number."""
    known = sorted(run.latency for run in runs if run.latency is not None)
    if len(known) < len(runs) or not known:
        return "unknown"
    return f"{format_us(known[len(known) // 2])} of {len(known)}"


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

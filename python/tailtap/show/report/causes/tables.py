"""The tables of causes as rows of finished text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailtap.analysis.causes.record import estimate_words
from tailtap.analysis.causes.remedies import proven_words
from tailtap.analysis.causes.stored import shares
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.runs.text import count_text, share_text, time_text, with_micro_sign
from tailtap.records.causes import CauseRow, CausesRecord, Remove, Unexplained
from tailtap.show.report.causes import Story
from tailtap.show.report.causes.palette import COLOURS, Colour
from tailtap.show.report.tables import DASH, Cell

HEADS = (
    ("late packets", "Late packets with this cause, or behind a stall with this cause"),
    ("share", "Of all late packets of the run"),
    ("behind", "Of these, how many waited behind others that a stall had held up"),
    ("stalls", "Times without service, while packets waited, that it made"),
    ("worst", "The largest latency of these packets"),
    ("delay", "What it added to late packets, in all"),
    ("beyond chance", "How much more it overlaps with late packets than by chance, as a share"),
    ("p", "How probable so much overlap is by chance"),
    ("candidates", "Knobs of tailtap host that answer it and can be set there, not tried"),
)
"""Columns, and what they count."""
SHOWN_KNOBS = 3
SHOWN_PRESENT = 4
"""Rows of what is only present."""


@dataclass(frozen=True)
class ShownCause:
    """A cause of a run."""

    name: str
    detail: str
    colour: Colour
    look: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class RunCauses:
    """What the page says of a run's causes in words and in a table."""

    story: Story
    title: str
    summary: str
    lines: tuple[str, ...]
    """What to type for the candidate remedies."""
    proven: str
    """Which remedies were shown to help, and by how much; nothing without any."""
    estimate: str
    """What would be left of the tail without the causes that these answer."""
    rows: tuple[ShownCause, ...]
    omitted: int
    """How many rows of what is only present are left out."""
    notes: tuple[str, ...]
    """Periods, and what keeps packets unexplained."""


def run_causes(stories: Sequence[Story]) -> list[RunCauses]:
    """What the page says of each run."""
    return [_run(story, story.causes.record) for story in stories if story.causes is not None]


def used(stories: Sequence[Story]) -> dict[str, Colour]:
    """The causes that figures show, with their colours, those of most late packets first."""
    counts: dict[str, int] = {}
    for story in stories:
        if story.causes is not None and story.drawn:
            for cause in story.causes.late["blamed"].to_pylist():
                counts[cause] = counts.get(cause, 0) + 1
            for part in shares(story.causes).by_cause:  # of a packet with another cause, say
                counts.setdefault(part, 0)
    ordered = sorted(counts, key=lambda cause: (cause == "unexplained", -counts[cause]))
    return {cause: COLOURS[cause] for cause in ordered}


def _run(story: Story, record: CausesRecord) -> RunCauses:
    late, remove, unexplained = record.late, record.remove, record.unexplained
    causes = [row for row in record.causes if row.claim != "present"]
    present = [row for row in record.causes if row.claim == "present"]
    rows = [_row(row) for row in [*causes, *present[:SHOWN_PRESENT]]]
    if unexplained.packets:
        rows.insert(len(causes), _unexplained(unexplained, late.packets))
    return RunCauses(
        story,
        story.member.label,
        with_micro_sign(
            f"{count_text(late.packets, 'packet')} took longer than {late.words}. "
            f"{count_text(late.stalls, 'stall')} held them up. The median is "
            f"{time_text(late.median_ns)}."
        ),
        tuple(remove.lines),
        with_micro_sign(proven_words(remove.proven)),
        _estimate(remove),
        tuple(rows),
        len(present[SHOWN_PRESENT:]),
        tuple(with_micro_sign(note) for note in _notes(record)),
    )


def _estimate(remove: Remove) -> str:
    if remove.without is None or not remove.without.falls:
        return ""
    names = [Named(name.cause, name.detail) for name in remove.causes]
    words = estimate_words(names, remove.without)
    return with_micro_sign(f"{words[:1].upper()}{words[1:]}.")


def _row(row: CauseRow) -> ShownCause:
    knobs = row.knobs
    shown = ", ".join(knobs[:SHOWN_KNOBS]) + (", …" if knobs[SHOWN_KNOBS:] else "")
    p = row.p_value
    cells = (
        Cell(count_text(row.packets)),
        Cell(share_text(row.share)),
        Cell(count_text(row.behind), "" if row.behind else "zero"),
        Cell(count_text(row.stalls), "" if row.stalls else "zero"),
        Cell(time_text(row.worst_ns)),
        Cell(time_text(row.delay_ns)),
        Cell(DASH if row.beyond_chance is None else share_text(row.beyond_chance)),
        Cell(
            ("by exclusion" if row.claim == "by-exclusion" else DASH) if p is None else f"{p:.2g}"
        ),
        Cell(
            shown or ("" if row.claim == "present" else "no knob known"),
            "text",
            ", ".join(knobs) if knobs[SHOWN_KNOBS:] else "",
        ),
    )
    look = "present" if row.claim == "present" else ""
    return ShownCause(row.cause, row.detail, COLOURS[row.cause], look, cells)


def _unexplained(unexplained: Unexplained, late: int) -> ShownCause:
    cells = [Cell(DASH) for _ in HEADS]
    cells[0] = Cell(count_text(unexplained.packets))
    cells[1] = Cell(share_text(unexplained.packets / late))
    cells[5] = Cell(time_text(unexplained.delay_ns))
    cells[8] = Cell("", "text")
    return ShownCause("unexplained", "", COLOURS["unexplained"], "", tuple(cells))


def _notes(record: CausesRecord) -> Iterator[str]:
    if untraced := record.unexplained.untraced:
        packets = count_text(untraced, "unexplained packet")
        yield f"{packets} passed while nothing was traced."
    if len(record.segments) > 1:
        for segment in record.segments:
            yield f"{count_text(segment.packets, 'packet')} late in {segment.words}."
    for period in record.periods:
        yield f"Period of {period.words}."
    looked = record.late.looked
    if looked is not None:
        yield (
            f"These stalls are few: what merely coincides was tested on the "
            f"{count_text(looked.packets, 'packet')} later than {looked.words}, of "
            f"{count_text(looked.stalls, 'stall')}."
        )
    for warning in record.warnings:
        yield f"{warning.message} ({warning.code})."

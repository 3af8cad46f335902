"""Why packets of a run were late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailtap.analysis.causes.record import estimate_words
from tailtap.analysis.causes.taxonomy import Named
from tailtap.base.units import format_count, format_time
from tailtap.records.causes import CauseRow, CausesRecord, Remove
from tailtap.show.sections import (
    COUNT,
    P_VALUE,
    SHARE,
    TIME,
    Cell,
    Column,
    Mark,
    Row,
    Section,
    row,
    table,
)
from tailtap.show.sections.latency import flows_table

COLUMNS = (
    Column("cause", wrap=24),
    Column("late packets", COUNT, "Late packets with this cause, or behind a stall with it"),
    Column("share", SHARE, "Of all late packets of the run"),
    Column("behind", COUNT, "Of these, how many waited behind others that a stall had held up",
           spare=2),
    Column("stalls", COUNT, "Times without service, while packets waited, that it made"),
    Column("worst", TIME, "The largest latency of these packets"),
    Column("delay", TIME, "What it added to late packets, in all", spare=1),
    Column("beyond chance", SHARE,
           "How much more it overlaps with late packets than by chance, as a share",
           wrap=7, spare=4),
    Column("p", P_VALUE, "How probable so much overlap is by chance", spare=3),
    Column("candidates", hint="Knobs of tailtap host that answer it and can be set there, "
           "not tried", wrap=16),
)  # fmt: skip
TASKS = (
    Column("task", wrap=20),
    Column("pid", right=True, hint="Of its processes, the one that had most of its stalls"),
    Column("processes", COUNT, "How many of one name, policy and group had its stalls", spare=3),
    Column("command", hint="Empty where it ended before anybody looked", wrap=24),
    Column("scheduling", hint="Policy, and priority in real time or nice value"),
    Column("control group", wrap=20, spare=1),
)
KNOBS = 3
"""So many candidates are named of a cause."""
SHORT = 3
"""So many causes are named in one sentence."""
WITHOUT = 3
"""Causes without which the tail is estimated in words."""


def causes_section(
    record: CausesRecord,
    title: str,
    colours: Mapping[str, Mark] | None = None,
    mark: Mark | None = None,
    *,
    flows: bool = True,
) -> Section:
    """The causes of a run's late packets.

    In the figures of the page, causes have `colours`, and the run has `mark`. Its `flows` have a
    table of their own there.
    """
    late = record.late
    causes = [one for one in record.causes if one.claim != "present"]
    present = [one for one in record.causes if one.claim == "present"]
    marks = colours or {}
    rows = [_cause(one, marks.get(one.cause)) for one in causes]
    if (left := record.unexplained).packets:
        share = left.packets / late.packets
        cells = (left.packets, share, None, None, None, left.delay_ns, None, None, "")
        rows.append(row("unexplained", *cells, mark=marks.get("unexplained")))
    rows += [_cause(one, marks.get(one.cause)) for one in present]
    summary = (
        f"{format_count(late.packets, 'packet')} took longer than {late.words}. "
        f"{format_count(late.stalls, 'stall')} held them up. The median is "
        f"{format_time(late.median_ns)}."
    )
    tables = [table(f"causes of {title}", COLUMNS, rows)]
    if tasks := [_task(one) for one in causes if one.task is not None]:
        tables.append(table(f"tasks that made packets of {title} late", TASKS, tasks))
    if flows and record.flows:
        tables.append(flows_table([one.whole for one in record.flows if one.whole], record.flows))
    return Section(title, [summary], tables, list(_notes(record)), mark)


def in_short(record: CausesRecord) -> str:
    """What made the late packets of a run late, the cause of most of them first."""
    late, left = record.late, record.unexplained
    told = [(one.packets, f"{cause_name(one)}, up to {format_time(one.worst_ns)}")
            for one in record.causes if one.claim != "present"]  # fmt: skip
    told += [(left.untraced, "while nothing was traced"),
             (left.packets - left.untraced, "unexplained")]  # fmt: skip
    told = sorted((one for one in told if one[0]), key=lambda one: -one[0])
    if rest := told[SHORT:]:
        told[SHORT:] = [(sum(count for count, _ in rest), format_count(len(rest), "other cause"))]
    packets = format_count(late.packets, "packet")
    if not told:
        return f"{packets} later than {late.words}"
    (count, most), *others = told
    return "; ".join(
        (
            f"{count:,} of {packets} later than {late.words}: {most}",
            *(f"{count:,}: {what}" for count, what in others),
        )
    )


def estimate(remove: Remove) -> str:
    """What would be left of the tail without what candidates answer; empty where nothing would."""
    if remove.without is None or not remove.without.falls:
        return ""
    names = [Named(one.cause, one.detail) for one in remove.causes]
    return sentence(estimate_words(names, remove.without))


def cause_name(found: CauseRow) -> str:
    """A cause, and whether it is only present."""
    who = found.detail
    if found.task is not None:
        alone = found.processes == 1
        who += f"; pid {found.task.pid}" if alone else f"; {found.processes:,} processes"
    if found.raised_by:
        by = ", ".join(one.detail or one.cause for one in found.raised_by[:KNOBS])
        who += f"{'; ' if who else ''}raised by {by}"
    name = str(Named(found.cause, who))
    return f"present: {name}" if found.claim == "present" else name


def _task(found: CauseRow) -> Row:
    task = found.task
    assert task is not None
    return row(
        found.detail,
        str(task.pid),
        found.processes,
        task.command or "",
        task.scheduling,
        task.cgroup or "",
    )


def _cause(found: CauseRow, mark: Mark | None) -> Row:
    present, knobs = found.claim == "present", found.knobs
    named = ", ".join([*knobs[:KNOBS], *(["…"] if knobs[KNOBS:] else [])])
    return row(
        cause_name(found),
        found.packets,
        found.share,
        found.behind,
        found.stalls,
        found.worst_ns,
        found.delay_ns,
        found.beyond_chance,
        "by exclusion"
        if found.claim == "by-exclusion" and found.p_value is None
        else found.p_value,
        Cell(named or ("" if present else "no knob known"), "text", ", ".join(knobs[KNOBS:])),
        look="present" if present else "",
        mark=mark,
    )


def _notes(record: CausesRecord) -> Iterator[str]:
    late = record.late
    if untraced := record.unexplained.untraced:
        yield f"{format_count(untraced, 'unexplained packet')} passed while nothing was traced."
    if (looked := late.looked) is not None:
        yield (
            f"Coincidence is tested on {format_count(looked.packets, 'packet')} later than "
            f"{looked.words}, of {format_count(looked.stalls, 'stall')}: "
            f"{format_count(late.stalls, 'stall')} would be too few."
        )
    estimates = [
        estimate_words([Named(one.cause, one.detail)], one.without)
        for one in record.causes
        if one.without and one.without.falls
    ]
    whole = estimate(record.remove)  # which stands beside the candidates
    yield from (said for words in estimates[:WITHOUT] if (said := sentence(words)) != whole)
    if len(record.segments) > 1:
        for segment in record.segments:
            yield f"{format_count(segment.packets, 'packet')} late in {segment.words}."
    for period in record.periods:
        yield f"Period of {period.words}."
    for warning in record.warnings:
        yield f"warning: {warning.message} [{warning.code}]"


def sentence(words: str) -> str:
    """Words as a sentence: a capital letter, and a stop."""
    return f"{words[:1].upper()}{words[1:]}."

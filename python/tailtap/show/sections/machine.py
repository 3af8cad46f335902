"""What a machine can do, and what it is like where nobody asks it for anything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tailtap.base.check import Check
from tailtap.base.units import format_time
from tailtap.records.machine import NoiseRecord
from tailtap.show.sections import (
    COUNT,
    SHARE,
    TIME,
    Cell,
    Column,
    Part,
    Row,
    Section,
    Table,
    row,
    table,
)

CAUSES = 10
"""So many causes are listed, those with most time first."""
STATES = {"ok": "good", "poor": "unshown", "missing": "alarm", "untested": "unshown"}
"""How the states of checks stand out."""


def checks_table(checks: Sequence[Check]) -> Table:
    """What was looked at, area by area."""
    columns = (
        Column(wrap=12),
        Column("state", wrap=8),
        Column("found", wrap=16),
        Column("what to do", wrap=16),
    )
    areas = groupby(checks, lambda check: check.area)
    return Table("", columns, [Part(list(map(_check, found)), area) for area, found in areas])


def _check(check: Check) -> Row:
    state = f"{check.state}, needed" if check.required and check.state != "ok" else check.state
    return row(check.name, Cell(state, STATES[check.state]), check.found, check.remedy)


def noise_section(record: NoiseRecord) -> Section:
    """What takes idle cores."""
    cores = (
        Column("CPU"),
        Column("read every", TIME, "The shortest time between two reads"),
        Column("gaps", COUNT),
        Column("gaps/s", COUNT),
        Column("median", TIME),
        Column("p99", TIME),
        Column("worst", TIME),
        Column("taken", SHARE, "The share of all the time"),
    )
    causes = (
        Column("cause"),
        Column("what", wrap=30),
        Column("gaps", COUNT),
        Column("time", TIME),
        Column("worst", TIME),
        Column("taken", SHARE),
    )
    more = len(record.causes) - CAUSES
    return Section(
        "What takes idle cores",
        [f"Gaps of more than {format_time(record.above_ns)}, Linux {record.kernel}."],
        [
            table(
                "gaps of idle cores",
                cores,
                [
                    row(str(cpu.cpu), cpu.least_ns, cpu.gaps,
                        round(cpu.gaps * 1e9 / cpu.elapsed_ns), cpu.median_ns, cpu.p99_ns,
                        cpu.worst_ns, cpu.gap_ns / cpu.elapsed_ns)
                    for cpu in record.cpus
                    if cpu.elapsed_ns
                ],
            ),
            table(
                "what had the cores in gaps",
                causes,
                [
                    row(one.cause, one.detail, one.gaps, one.ns, one.worst_ns, one.share)
                    for one in record.causes[:CAUSES]
                ],
            ),
        ],
        notes=[f"and {more} more, which had less; --json has all"] if more > 0 else [],
    )  # fmt: skip

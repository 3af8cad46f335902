"""The tail of the runs of an experiment, as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.base.errors import MachineError
    from tailtap.records.evaluation import EvaluationRecord
    from tailtap.records.experiment import RunRow

PERCENTILES = (0.5, 0.99, 0.999, 0.9999, 0.99999)
"""The columns of the table unless asked otherwise."""


def print_runs(runs: Sequence[RunRow], folder: Path, ps: Sequence[float] = PERCENTILES) -> None:
    """Print the tail of every run; a percentile with too few samples above it is marked ``*``."""
    from tailtap.analysis.evaluation.percentiles import label
    from tailtap.cli.console import Column, Table

    # A narrow terminal has the tail: what lies before it, and the size of the sample, go first.
    table = Table(
        (
            Column("run", wrap=16),
            Column("packets", right=True, spare=len(ps) + 1),
            *(Column(label(p), right=True, spare=len(ps) - at) for at, p in enumerate(ps)),
            Column("max", right=True),
            Column("loss", right=True),
            Column("warnings", right=True, wrap=8),
        )
    )
    unsupported = False
    for row in runs:
        if row.evaluation is None:
            table.add(row.slug, (row.status, "red"))
            continue
        cells = _cells(row.evaluation, ps)
        unsupported = unsupported or any(cell.endswith("*") for cell in cells)
        warnings = len(row.warnings) + len(row.evaluation.warnings)
        mark = (f"{warnings}, invalid", "red") if row.valid is False else str(warnings)
        table.add(row.slug, *cells, mark if warnings else "")
    table.print()
    notes = "latencies in us"
    if unsupported:
        notes += "; *: fewer than ten packets above it, not to be relied on"
    say(notes)
    say(f"results: {folder}")


def problem_of(rows: Sequence[RunRow]) -> MachineError | None:
    """What a command ends with when some of these runs failed or are invalid."""
    from tailtap.base.errors import MachineError
    from tailtap.records.warnings import invalidating

    failed = [(row.slug, row.error) for row in rows if row.status != "done"]
    invalid = [row for row in rows if row.valid is False]
    # In a measurement of several flows, the generator of another one may be the reason.
    why = [(row.slug, one.message) for row in invalid for one in invalidating(row.warnings)[:1]]
    said = []
    if failed:
        said.append(
            f"{len(failed)} of {len(rows)} runs failed, {failed[0][0]} first: {failed[0][1]}"
        )
    if invalid:
        verb = "is" if len(invalid) == 1 else "are"
        slug, reason = why[0] if why else (invalid[0].slug, "another flow of it is")
        said.append(f"{len(invalid)} of {len(rows)} runs {verb} invalid, {slug} first: {reason}")
    return MachineError("; ".join(said)) if said else None


def _cells(evaluation: EvaluationRecord, ps: Sequence[float]) -> list[str]:
    from tailtap.base.units import format_us

    counts, latency = evaluation.counts, evaluation.latency_ns
    found = {row.p: row for row in latency.percentiles}
    cells = [f"{counts.matched:,}"]
    for p in ps:
        row = found[p]
        cells.append(format_us(row.value) + (" " if row.supported else "*"))
    return [*cells, format_us(latency.max), f"{counts.lost:,}"]

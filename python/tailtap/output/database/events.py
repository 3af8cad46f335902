"""The rows of `events`: what was done while packets were measured, and what these met with."""

from __future__ import annotations

import json

from tailtap.records.run import Passed, RunRecord


def event_rows(run: RunRecord) -> list[list[object]]:
    """A row for each event, and row 0 for the run's other time; less the run's number."""
    rows: list[list[object]] = []
    if run.beside_events is not None:
        rows.append([0, *[None] * 11, *_passed(run.beside_events)])
    for number, event in enumerate(run.events, 1):
        if event.around is None:
            continue
        block = event.blocked
        rows.append([
            number, event.name, event.where, json.dumps(event.command), event.at_ns,
            event.begin_ns, event.end_ns, event.status, event.output,
            *((None, None, None) if block is None else (block.ns, block.least_ns, block.most_ns)),
            *_passed(event.around),
        ])  # fmt: skip
    return rows


def _passed(passed: Passed) -> list[int | None]:
    values = {row.p: row.value for row in passed.percentiles}
    latencies = (values.get(0.5), values.get(0.99), values.get(0.999), passed.max_ns)
    return [passed.time_ns, passed.packets, passed.lost, *latencies]

"""The rows of `events`: what was done while packets were measured, and what these met with."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec.structs import asdict

from tailtap.records.run import Passed, RunRecord


def event_rows(run: RunRecord) -> Iterator[dict[str, object]]:
    """A row for each event, and row 0 for the run's other time; less the run's number."""
    if run.beside_events is not None:
        yield {"event": 0, **_passed(run.beside_events)}
    for number, event in enumerate(run.events, 1):
        if event.around is None:
            continue
        block = event.blocked
        yield {
            **asdict(event),
            "event": number,
            "place": event.where,
            "command": json.dumps(event.command),
            **(
                {}
                if block is None
                else {f"blocked_{name}": ns for name, ns in asdict(block).items()}
            ),
            **_passed(event.around),
        }


def _passed(passed: Passed) -> dict[str, object]:
    values = {row.p: row.value for row in passed.percentiles}
    latencies = {
        "p50_ns": values.get(0.5),
        "p99_ns": values.get(0.99),
        "p999_ns": values.get(0.999),
    }
    return {**asdict(passed), **latencies}

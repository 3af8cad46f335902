"""What perf prints: counts, and the two ways in which it says that there is none."""

from __future__ import annotations

import json

from tailtap.host.perf import EVENTS, counts


def line(event: str, value: str) -> str:
    return json.dumps({"counter-value": value, "unit": "", "event": event, "pcnt-running": 100.0})


def test_events_are_counted_under_their_names() -> None:
    values = [line(name, f"{number}000.000000") for number, name in enumerate(EVENTS, 1)]
    assert counts(values) == {name: number * 1000 for number, name in enumerate(EVENTS, 1)}


def test_what_the_machine_does_not_count_is_missing_and_not_zero() -> None:
    found = counts(
        [
            line("instructions", "<not supported>"),
            line("branches", "<not counted>"),
            line("cpu-migrations", "0.000000"),
        ]
    )
    assert found["instructions"] is None
    assert found["branches"] is None
    assert found["dTLB-loads"] is None
    assert found["cpu-migrations"] == 0


def test_modifiers_that_perf_adds_and_lines_that_are_no_rows_do_not_matter() -> None:
    assert counts(["Events enabled", line("instructions:u", "7.000000")])["instructions"] == 7

"""The table of what was done to the device while packets were measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pages import texts

from tailtap.records.run import Blocked, Event, Passed
from tailtap.show.report.readings import events


def test_an_event_of_another_machine_says_how_far_its_time_may_be_off() -> None:
    facts: dict[str, Any] = {
        "name": "reload", "where": "dut", "command": ["nft"], "at_ns": 5, "window_ns": 5,
        "begin_ns": 1_000_000, "end_ns": 3_000_000, "status": 0, "after_ns": 300_000_000,
        "blocked": Blocked(begin_ns=1, ns=40_000, least_ns=20_000, most_ns=60_000),
        "around": Passed(time_ns=10, packets=200, lost=0, max_ns=50_000),
    }  # fmt: skip
    told = [Event(**facts, within_ns=off) for off in (0, 114_000)]
    record = SimpleNamespace(events=told, beside_events=None)
    member = SimpleNamespace(label="001", run=SimpleNamespace(record=record, origin=None))
    group: Any = SimpleNamespace(members=[member], light="", dark="")
    at = [cells[2] for cells in texts(events([group]))]
    assert at == ["300 ms", "300 ms ± 114 µs"]

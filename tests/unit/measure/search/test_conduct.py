"""A whole search, each trial a run with its files, on a station that says what it sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_station import FakeStation, failed

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_rate
from tailtap.experiment.reading import read_experiment
from tailtap.measure.campaign import Campaign, Listener
from tailtap.measure.run import everywhere
from tailtap.measure.search import Plan, Search, search_experiment
from tailtap.measure.search.methods import settings_of
from tailtap.records.record import read
from tailtap.records.run import RunRecord

TEXT = "name: paper\ntraffic: {warm_up: 10 ms}\n"
MILLISECOND = 1_000_000
LONGEST = 12_000
"""The rate up to which the station's generator gets past its warm-up."""
UNREACHED: dict[str, Any] = {
    "sent": 0, "interrupted": True, "achieved_rate": None, "slip_ns": None,
}  # fmt: skip


class Slow(FakeStation):
    """Its generator sends packets that count up to `LONGEST`, and above it none."""

    def open(self, setup: Any) -> Any:
        rate = parse_rate(setup.experiment["traffic"]["rate"])
        self.sent = {"scheduled_rate": float(rate), "achieved_rate": float(rate)}
        if rate > LONGEST:
            self.sent |= UNREACHED
        return super().open(setup)


class Noted(Listener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def noted(self, sentence: str) -> None:
        """Keep it."""
        self.lines.append(sentence)


def search(tmp_path: Path, station: FakeStation, *, resume: bool = False) -> tuple[Search, str]:
    """The search, and the lines that it prints."""
    source, told = tmp_path / "e.yaml", Noted()
    source.write_text(TEXT)
    settings = settings_of(
        (0.0,), 4_000, 64_000, 0.3, method="binary", trial_ns=100 * MILLISECOND, trials=1,
        short_ns=50 * MILLISECOND,
    )  # fmt: skip
    campaign = Campaign(tmp_path / "out", resume, [told], everywhere(station))
    plan = Plan(read_experiment(source), source, settings, shares=())
    return search_experiment(plan, campaign), "\n".join(told.lines)


def test_a_rate_at_which_the_generator_only_warms_up_is_tried_and_left(tmp_path: Path) -> None:
    found, said = search(tmp_path, Slow())
    [answer] = found.record.answers
    assert answer.rate is not None and answer.upper is not None
    assert answer.rate <= LONGEST < answer.upper <= 16_000
    assert answer.reason == "generator"
    [limit] = answer.warnings
    assert limit.code == "generator-limit"
    assert "in each of 3 trials the generator did not reach it" in limit.message
    assert "64 kpkt/s for 100 ms: invalid: the generator did not reach it: it was still" in said
    stored = json.loads((tmp_path / "out/search.json").read_text())
    assert stored["status"] == "done"
    for row in stored["trials"]:
        record = read(tmp_path / "out/trials/runs" / row["slug"] / "run.json", RunRecord)
        unreached = row["rate"] > LONGEST
        assert (row["doubt"] is not None, row["packets"] == 0) == (unreached, unreached)
        assert record.status == ("failed" if unreached else "done")
        assert record.generator is not None
        assert record.generator.known.still_warming_up is unreached
    # The trials are what a resumed search goes on with.
    again, said = search(tmp_path, FakeStation(), resume=True)
    assert (again.record.answers, said) == (found.record.answers, "")


def test_a_trial_that_fails_otherwise_ends_the_search(tmp_path: Path) -> None:
    station = Slow(happens={"timestamper": failed("the tap ended")})
    with pytest.raises(MachineError, match="trial 1 failed: the tap ended"):
        search(tmp_path, station)
    assert json.loads((tmp_path / "out/search.json").read_text())["status"] == "failed"

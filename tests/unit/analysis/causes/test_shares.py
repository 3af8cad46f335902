"""What makes each percentile, from stored causes and from causes found now."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from told import write_told

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import FEWEST, Causes, causes_of, delays, shares
from tailtap.analysis.runs.reader import finished_runs
from tailtap.records.causes import ClaimKind
from tailtap.records.record import copied


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_told(tmp_path_factory.mktemp("told"))
    explain_runs([folder], late="150 us")
    return folder


@pytest.fixture(scope="module")
def causes(folder: Path) -> Causes:
    return causes_of(finished_runs(folder)[0])


def test_delays_are_the_excess_and_follow_the_claims(causes: Causes) -> None:
    names, cells = delays(causes)
    np.testing.assert_array_equal(cells.sum(axis=1), causes.column("late", "excess_ns"))
    assert (cells >= 0).all()
    claimed = [row.cause for row in causes.record.causes if row.claim == "cause"]
    assert set(claimed) == {"task", "kernel-thread"}
    # A direct packet of a cause has at least half of its delay from it.
    blamed = np.array(causes.late["blamed"].to_pylist())
    direct = np.array(causes.late["state"].to_pylist()) == "direct"
    for cause in claimed:
        mine = direct & (blamed == cause)
        assert (2 * cells[mine, names.index(cause)] >= cells[mine].sum(axis=1)).all()


@pytest.mark.parametrize(("claim", "explained"), [("by-exclusion", True), ("present", False)])
def test_what_is_a_cause_by_exclusion_is_explained(
    causes: Causes, claim: ClaimKind, explained: bool
) -> None:
    changed = copied(causes.record)
    for row in changed.causes:
        row.claim = claim if row.cause == "task" else row.claim
    names, cells = delays(replace(causes, record=changed))
    before, expected = delays(causes)
    np.testing.assert_array_equal(cells.sum(axis=1), expected.sum(axis=1))
    task = int(expected[:, before.index("task")].sum())
    found = dict(zip(names, cells.sum(axis=0).tolist(), strict=True))
    assert found.get("task", 0) == (task if explained else 0)


def test_the_slowest_packets_are_the_hogs(causes: Causes) -> None:
    found = shares(causes)
    assert found.above[0] == causes.late.num_rows and found.above[-1] == FEWEST
    np.testing.assert_allclose(found.p, 1 - found.above / causes.packets)
    np.testing.assert_allclose(sum(found.by_cause.values()), 1)
    # Kworkers take half a millisecond at most, and hogs more than twice that.
    assert found.by_cause["task"][-1] > 0.98
    assert found.by_cause["kernel-thread"][0] > 0.1 > found.by_cause["kernel-thread"][-1]
    # Counted anew for one percentile, by other means.
    place = found.above.size // 2
    latency = causes.column("late", "latency_ns")
    slow = np.argsort(-latency, kind="stable")[: found.above[place]]
    names, cells = delays(causes)
    task = sum(int(cells[at, names.index("task")]) for at in slow)
    whole = sum(int(causes.column("late", "excess_ns")[at]) for at in slow)
    assert found.by_cause["task"][place] == pytest.approx(task / whole)


def of_another_evaluation(content: dict[str, Any]) -> None:
    content["late"]["median_ns"] += 1


def without_segments(content: dict[str, Any]) -> None:
    """As before devices had several."""
    del content["segments"]


@pytest.mark.parametrize("change", [of_another_evaluation, without_segments])
def test_what_is_stored_is_taken_unless_it_is_old(
    folder: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    run = finished_runs(folder)[0]
    stored = causes_of(run)
    assert stored.record.late.words == "150 us"
    path = folder / "causes.json"
    text = path.read_text()
    content = json.loads(text)
    change(content)
    path.write_text(json.dumps(content))
    now = causes_of(run)
    path.write_text(text)
    assert now.record.late.words.startswith("p99.9")
    assert now.late.num_rows == now.record.late.packets < stored.late.num_rows

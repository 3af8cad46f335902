"""What an improvement showed is told of the runs that it made, and is no candidate any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from improvements import helped, improvement, trial
from traced import START, Block, arrivals, hog, simulate, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.record import record
from tailtap.analysis.causes.remedies import Knob
from tailtap.records.causes import CauseName, Remove
from tailtap.records.search import KnobTrial

MS = 1_000_000
KNOBS = [Knob("groups", ("task",), 1, "runtime"), Knob("isolated-cpus", ("task",), 1, "boot")]


def told(folder: Path, *trials: KnobTrial) -> Remove:
    """The remedies of a run of an improvement with these trials."""
    noise = np.random.default_rng(7)
    blocks = [Block(START + (3 + 100 * at) * MS, 2 * MS, hog) for at in range(19)]
    made = write_run(folder / "001-a", simulate(arrivals(20_000, 2.0, noise), blocks, noise))
    (folder / "improve.json").write_bytes(msgspec.json.encode(improvement(*trials)))
    [found] = explain_runs([made], knobs=KNOBS)
    return record(found).remove


def test_a_proven_remedy_says_so_and_others_are_candidates(tmp_path: Path) -> None:
    remove = told(tmp_path, helped("groups"))
    assert [row.knob for row in remove.proven] == ["groups"]
    assert remove.knobs == ["isolated-cpus"]
    assert remove.words.startswith(
        "proven: groups (p99.9 from 2.1 ms to 300 us); candidates, not tried here: "
    )


def test_what_did_nothing_is_no_candidate_and_what_was_not_shown_is_one(tmp_path: Path) -> None:
    remove = told(tmp_path, trial("isolated-cpus", answer="no effect"), trial("groups"))
    assert (remove.proven, remove.knobs) == ([], ["groups"])


def test_what_helped_against_other_causes_is_not_told(tmp_path: Path) -> None:
    remove = told(tmp_path, helped("groups", causes=[CauseName(cause="timer", detail="hog")]))
    assert remove.proven == []
    assert "proven" not in remove.words

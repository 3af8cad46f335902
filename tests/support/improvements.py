"""What `tailtap improve` stores, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailtap.base.files import write_json
from tailtap.records.causes import CauseName
from tailtap.records.record import as_json
from tailtap.records.search import (
    ImproveRecord,
    ImproveSettings,
    KnobTrial,
    Measured,
    Stage,
)
from tailtap.records.verdict import Answer


def trial(knob: str, **changes: Any) -> KnobTrial:
    """A trial against a hog, of nine pairs that show nothing."""
    fields: dict[str, Any] = {
        "knob": knob, "stage": 1, "causes": [CauseName(cause="task", detail="hog")],
        "share_before": 0.02, "share_after": None, "threshold_ns": 1_000_000,
        "pairs": [[0.01, 0.03]] * 9,
        "before": Measured(ns=2_100_000, low_ns=1_900_000, high_ns=2_300_000, runs=9),
        "after": Measured(ns=300_000, low_ns=None, high_ns=None, runs=9),
        "ratio": 0.333, "low": 0.2, "high": None, "spoiled": 0, "answer": "not shown",
        "kept": False, "runs": [],
    }  # fmt: skip
    return KnobTrial(**(fields | changes))


def helped(knob: str, **changes: Any) -> KnobTrial:
    """A trial of a knob that was kept."""
    return trial(knob, answer="helps", kept=True, share_after=0.0001, high=0.5, **changes)


def stage(ns: int, answer: Answer) -> Stage:
    return Stage(
        kept=[], run="001", threshold_ns=1_000_000, late=0.02, causes=[],
        percentile=Measured(ns=ns, low_ns=None, high_ns=None, runs=1), answer=answer, runs=[],
    )  # fmt: skip


def store(folder: Path, record: ImproveRecord) -> None:
    write_json(folder / "improve.json", as_json(record))


def improvement(*trials: KnobTrial, **changes: Any) -> ImproveRecord:
    """An improvement from 2.1 ms to 300 us, with these trials."""
    fields: dict[str, Any] = {
        "name": "a", "status": "done", "error": None, "requirement": "p99.9 < 1 ms", "p": 0.999,
        "settings": ImproveSettings(
            within_ns=1, margin=0.2, error=0.05, tests=10, disruptive=False
        ),
        "parameters": {}, "purpose": "--cpus 1 --role bare-metal", "started": "", "finished": "",
        "stopped": "holds", "answer": "holds",
        "stages": [stage(2_100_000, "violated"), stage(300_000, "holds")],
        "trials": list(trials), "left": [], "kept": [one.knob for one in trials if one.kept],
        "applied": False,
    }  # fmt: skip
    return ImproveRecord(**(fields | changes))

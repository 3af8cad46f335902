"""What to expect next: an extreme value model of a run's largest latencies.

The way of a latency through the modules: `stored` (what the evaluation kept) → `stamps` (ties of
coarse clocks undone) → `peaks` (thresholds) → `clusters` → `gpd` (fit and intervals) →
`goodness`, `stationarity`, `blocks` (warnings) → `assessment` (one threshold) → `analysis`
(a run) → `runs` (many). `papers` is the published method, `diagnostics` what the report draws.
"""

from __future__ import annotations

from tailtap.analysis.runs.tail import StoredTail, tail_of
from tailtap.analysis.tail.analysis import Options, TailModel, analyse
from tailtap.analysis.tail.runs import ModelledRuns, model_runs

__all__ = [
    "ModelledRuns",
    "Options",
    "StoredTail",
    "TailModel",
    "analyse",
    "model_runs",
    "tail_of",
]

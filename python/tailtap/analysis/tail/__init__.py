"""What to expect next: an extreme value model of a run's largest latencies.

The way of a latency through the modules: `peaks` (ties of coarse clocks undone, thresholds,
clusters) → `gpd` (fit, intervals, goodness) → `blocks` (is it stationary; a cross-check) →
`assessment` (one threshold) → `analysis` (a run, also by the published method) → `runs` (many).
`forecast` needs no model, and `diagnostics` is what figures draw.
"""

from __future__ import annotations

from tailtap.analysis.runs.tail import StoredTail, tail_of
from tailtap.analysis.tail.analysis import Options, TailModel, analyse
from tailtap.analysis.tail.runs import model_runs

__all__ = [
    "Options",
    "StoredTail",
    "TailModel",
    "analyse",
    "model_runs",
    "tail_of",
]

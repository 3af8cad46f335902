"""Which configuration is better, and whether the data can tell.

The way of a run through the modules: `reading` (run folders, evaluations, imported results) →
`aspects` (what it measured) → `configurations` (repeats, and those of one load) → `ranking`
with `significance` (tests over repeats) and `within` (a second view of each run) → `comparison`,
which adds `resources`, `isolation`, the tail models' predictability, the `checks` of published
recommendations and `advice`. `record` is the JSON. `gate` asks of two of them whether a change made
the tail worse; `gate_files` is that for programs that show test results.
"""

from __future__ import annotations

from tailtap.analysis.compare.comparison import compare_runs
from tailtap.analysis.compare.gate import judge_change

__all__ = ["compare_runs", "judge_change"]

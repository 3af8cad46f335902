"""Which configuration is better, and whether the data can tell.

The way of a run through the modules: `configurations` (what it measured; repeats, and those of one
load) → `ranking` with `significance` (tests over repeats, and a second view of each run) →
`comparison`, which adds `resources`, the tail models' predictability, the `checks` of published
recommendations and advice. `gate` asks of two of them whether a change made the tail worse, and
`history` of many commits.
"""

from __future__ import annotations

from tailtap.analysis.compare.comparison import compare_runs

__all__ = ["compare_runs"]

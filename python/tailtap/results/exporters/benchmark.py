"""The results that github-action-benchmark keeps and draws, from commit to commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median_high
from typing import Any

from tailtap.analysis.evaluation.percentiles import DEFAULT, label
from tailtap.analysis.runs.groups import group, label_parts
from tailtap.analysis.runs.run import Run
from tailtap.results.exporters.base import Common, write_text

NAME = "benchmark.json"


class Benchmark(Common):
    """One file, `benchmark.json`, for its tool `customSmallerIsBetter`."""

    summary = "What github-action-benchmark keeps: the percentiles of each configuration."
    documentation = (
        "One file for `tool: customSmallerIsBetter`. A value is the median of a configuration's "
        "valid repeats in ns, and its range reaches from the lowest to the highest of them. "
        "Percentiles are listed that every repeat has ten packets above. "
        "`tailtap compare --worse-than` tells noise from changes, which a "
        "threshold of that action does not."
    )
    name = "github-action-benchmark"

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write the file into the folder `destination`."""
        text = json.dumps(list(rows(runs)), indent=1) + "\n"
        return [write_text(Path(destination), NAME, text)]


def rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """The values of all configurations."""
    good = [run for run in runs if not run.excluded]
    for members in group(good, lambda run: (sorted(run.variables.items()), run.rate)):
        first = members[0]
        name = " · ".join(label_parts(first)) or first.experiment
        for p in DEFAULT:
            found = [row for run in members if (row := run.percentile(p)) and row.supported]
            if len(found) < len(members) or any(run.gone > 1 - p for run in members):
                break
            values = [row.value for row in found]
            yield {
                "name": f"{first.experiment}: {name}, {label(p)}",
                "unit": "ns",
                "value": median_high(values),
                "range": f"{min(values)} to {max(values)}",
                "extra": f"{len(values)} runs",
            }

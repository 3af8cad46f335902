"""What a trace cost the run that has it, as runs of the same experiment without a trace say."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tailtap.analysis.runs.reader import run_folders, run_in
from tailtap.analysis.runs.run import Run
from tailtap.base.units import format_time
from tailtap.records.causes import Control, TraceCost

MODE = "trace"
"""The key of an experiment that says what is traced."""
SHOWN = {0.5: "median", 0.999: "p99.9"}


def controls(runs: Collection[Run]) -> dict[Path | None, Control | None]:
    """The control of each run, by the run's folder; None where the experiment has none.

    A control is a run with the same varied values, of the same repeat, that was measured without a
    trace; invalid runs are none, and have none. All such pairs of the run's mode count: of the
    median and of the 99.9th percentile, what is told is the median over the pairs.
    """
    read = {run.own_folder.absolute(): run for run in runs if run.own_folder is not None}
    experiments: dict[Path, Sequence[Run]] = {}
    found: dict[Path | None, Control | None] = {}
    for run in runs:
        if run.home not in experiments:
            experiments[run.home] = _beside(run.home, read)
        found[run.own_folder] = _control(run, experiments[run.home])
    return found


def _beside(home: Path, read: Mapping[Path, Run]) -> Sequence[Run]:
    """The runs of an experiment, those that were read already among them. No evaluation is loaded
    yet.
    """
    runs = (read.get(path.absolute()) or run_in(path, home) for path in run_folders(home))
    return [run for run in runs if run.origin is None]


def _control(run: Run, beside: Iterable[Run]) -> Control | None:
    if _mode(run) == "none":
        return None
    like = [one for one in beside if _but_for_trace(one) == _but_for_trace(run)]
    traced, plain = (
        {one.repeat: one for one in like if _mode(one) == mode} for mode in (_mode(run), "none")
    )
    both = [(traced[repeat], plain[repeat]) for repeat in sorted(traced.keys() & plain.keys())]
    pairs = [pair for pair in both if not any(one.excluded for one in pair)]
    return Control(runs=len(pairs), percentiles=list(_rows(pairs))) if pairs else None


def _rows(pairs: list[tuple[Run, Run]]) -> Iterator[TraceCost]:
    for p in SHOWN:
        values = []
        for pair in pairs:
            both = [one.percentile(p) for one in pair]
            values += [[one.value for one in both if one is not None and one.supported]]
        if not all(len(both) == 2 and min(both) > 0 for both in values):
            continue
        more = [with_trace / without - 1 for with_trace, without in values]
        traced, plain = (round(statistics.median(column)) for column in zip(*values, strict=True))
        yield TraceCost(
            p=p,
            traced_ns=traced,
            plain_ns=plain,
            more=statistics.median(more),
            least=min(more),
            most=max(more),
        )


def _but_for_trace(run: Run) -> Mapping[str, str]:
    return {name: value for name, value in run.variables.items() if name != MODE}


def _mode(run: Run) -> str:
    return run.parameters.trace


def control_words(control: Control | None) -> str:
    """What the control of a run says, as people read it."""
    if control is None:
        return (
            "cost of the trace: not known, as there is no valid pair of runs with and without it "
            "(vary: {trace: [none, thin]})"
        )
    runs, rows = control.runs, control.percentiles
    pairs = "a run without it" if runs == 1 else f"{runs} pairs of runs with and without it"
    if not rows:
        return f"cost of the trace: not known, as {pairs} had too few packets"
    parts = [f"{SHOWN[row.p]} {row.more:+.1%}{_spread(row, runs)}" for row in rows]
    usual = format_time(rows[0].plain_ns)
    return f"cost of the trace, by {pairs}: {', '.join(parts)}; median without it {usual}"


def _spread(row: TraceCost, runs: int) -> str:
    return "" if runs == 1 else f" ({row.least:+.1%} to {row.most:+.1%})"

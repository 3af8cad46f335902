"""Published result files: held against each other, and against what an article prints of them.

The nine files of a run were made from one table, so that each tells something of the others: the
percentiles lie where the counts of the histogram put them, and the worst packets are its end. What
an article prints of the trees is in `PRINTED`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from tailtap.analysis.compare.comparison import read
from tailtap.analysis.compare.configurations import Configuration, gather
from tailtap.analysis.runs.run import Run
from tailtap.base.units import format_count, format_rate
from tailtap.records.site import Finding, RepeatedStep, ReproductionRecord
from tailtap.results.importers.importer import import_tree
from tailtap.results.importers.published import PublishedRun, find_published
from tailtap.show.reproduce.steps import contradicted, not_shown, step, worst

PRINTED = (
    ("container", "kernel space", 1, 9969.08, 100.19),
    ("container", "kernel space", 2, 744.72, 414.52),
    ("container", "user space", 1, 659.25, 108.86),
    ("container", "user space", 2, 373.73, 36.98),
    ("vm", "user space", 1, 840.63, 124.12),
    ("vm", "user space", 2, 1560.47, 37.02),
    ("bare-metal", "user space", 1, 1077.44, 101.81),
    ("bare-metal", "user space", 2, 716.16, 36.74),
)
"""What table 6 of the article prints, in us: technology and networking, scenario, vanilla without
optimisation, real-time kernel with it. "Packet processing in virtualized environments", sec. 7."""
SYSTEMS = (("vanilla", "non-optimized"), ("rt", "optimized"))
RATE = 1_000_000
"""The rate of the runs that it is about, in pkt/s, as the article's figures are."""
FIRST_SCENARIO = "containerized-low-latency"
"""The tree of the first scenario, by the folder that its runs lie in."""


@dataclass(frozen=True)
class Cell:
    """A cell of table 6: what is printed, and the worst run of what was imported (us)."""

    technology: str
    networking: str
    scenario: int
    system: tuple[str, str]
    printed: float
    worst: Run | None
    runs: int

    @property
    def ours(self) -> float | None:
        """The largest latency of the worst run."""
        top = self.worst.maximum if self.worst else None
        return None if top is None else top / 1000

    @property
    def reading(self) -> str:
        """How the two compare: same, higher, lower, or nothing to compare with."""
        if self.ours is None:
            return "not imported"
        if abs(self.ours - self.printed) < 0.0051:
            return "same"
        return "higher" if self.ours > self.printed else "lower"

    @property
    def where(self) -> str:
        """The worst run: its rate and its repeat, as the names of files number it."""
        run = self.worst
        if run is None or run.rate is None:
            return ""
        runs = format_count(self.runs, "run")
        return f"{format_rate(round(run.rate))}, repeat {run.repeat - 1}, of {runs}"


def table6(runs: Sequence[Run]) -> list[Cell]:
    """Table 6 from imported runs of its rate: the worst repeat by its largest latency."""
    found = [configuration for load in gather(runs) for configuration in load.configurations]
    cells = []
    for technology, networking, scenario, *values in PRINTED:
        for system, printed in zip(SYSTEMS, values, strict=True):
            wanted = {"platform": technology, "networking": networking,
                      "kernel": system[0], "tuning": system[1]}  # fmt: skip
            fitting = [
                run
                for configuration in found
                if _scenario(configuration) == scenario
                and wanted.items() <= configuration.aspects.items()
                for run in configuration.runs
                if run.maximum is not None and run.rate and round(run.rate) == RATE
            ]
            top = max(fitting, key=lambda run: run.maximum or 0, default=None)
            cells.append(Cell(technology, networking, scenario, system, printed, top, len(fitting)))
    return cells


def _scenario(configuration: Configuration) -> int | None:
    """Which of the article's scenarios a configuration is of; None for other experiments."""
    run = (*configuration.runs, *configuration.excluded)[0]
    if run.origin is None or "irq" in Path(run.origin.place).parts:
        return None
    if run.origin.tree == FIRST_SCENARIO:
        return 1
    # The layer 3 forwarder is another application.
    place = Path(run.origin.place).parts
    return 2 if "scenario2" in place else None


def reproduce_results(
    tree: Path, place: str, progress: Callable[[str], None] = lambda _: None
) -> ReproductionRecord:
    """Hold the result files of a tree against each other, and against the printed table."""
    runs = [run for run in find_published(tree) if run.files]
    steps = [_files(runs, tree.resolve(), progress)]
    printed = _printed(tree, progress)
    steps += [printed] if printed else []
    return ReproductionRecord(
        place=place,
        kind="results",
        name=tree.resolve().name,
        about=[f"result files of {len(runs):,} runs"],
        answer=worst(one.answer for one in steps),
        steps=steps,
    )


def _printed(tree: Path, progress: Callable[[str], None]) -> RepeatedStep | None:
    """Table 6, as far as the tree has its runs; None where it has none of them."""
    progress("computing the printed table")
    with TemporaryDirectory() as folder:
        import_tree(tree, Path(folder))
        cells = [cell for cell in table6(read([("", Path(folder))])) if cell.worst]
    findings = []
    for cell in cells:
        name = f"{cell.technology}, {cell.networking}, {', '.join(cell.system)}"
        said = f"{cell.ours:,.2f} us where {cell.printed:,.2f} is printed ({cell.where})"
        if cell.reading == "higher":
            why = "the printed value is not of the worst repeat, as the article says it is"
            findings.append(contradicted(name, f"{said}: {why}"))
        elif cell.reading == "lower":
            findings.append(not_shown(name, f"{said}: its run is not among the files"))
    what = "table 6 of 'Packet processing in virtualized environments'"
    return step("figures", what, len(cells), findings) if cells else None


def _files(
    runs: Sequence[PublishedRun], root: Path, progress: Callable[[str], None]
) -> RepeatedStep:
    findings: list[Finding] = []
    for run in runs:
        name = str(Path(run.place) / run.name)
        progress(f"reading {name}")
        tables = run.tables()
        said = "; ".join(_disagreements(tables, run.bucket_ns or 0))
        damaged = [one.message for one in run.warnings if one.code == "file-damaged"]
        if said or damaged:
            findings.append(contradicted(name, "; ".join([*damaged, *([said] if said else [])])))
        elif not {"percentiles", "hist"} <= tables.keys():
            findings.append(not_shown(name, "it has no percentiles and histogram to compare"))
    return step("figures", "files of each run, held against each other", len(runs), findings)


def _disagreements(tables: Mapping[str, pa.Table], width: int) -> Iterator[str]:
    """What the files of one run say differently; `width` is that of the histogram's buckets."""
    columns = {
        kind: {name: table.column(name).to_numpy() for name in table.column_names
               if not pa.types.is_string(table.schema.field(name).type)}
        for kind, table in tables.items()
    }  # fmt: skip
    hist, ps, late = (columns.get(kind) for kind in ("hist", "percentiles", "worst"))
    if hist is not None and width:
        upto = np.cumsum(hist["count"])
        packets = int(upto[-1])
        if ps is not None:
            off = sum(
                not _in_bucket(p, int(value), hist["latency_bucket"], upto, width)
                for p, value in zip(ps["percentile"], ps["value"], strict=True)
            )
            if off:
                yield f"{off} of {len(ps['value'])} percentiles are not where its histogram ends"
        if late is not None and not _is_end(late["latency"], hist, width):
            yield "the worst packets are not the end of its histogram"
        stats = columns.get("stats")
        if stats is not None and packets > int(stats["post_received_trimmed"][0]):
            yield "its histogram has more packets than were received"
    if ps is not None and late is not None and ps["value"][-1] > late["latency"].max():
        yield "a percentile of it is later than its worst packet"


def _in_bucket(p: float, value: int, buckets: Any, upto: Any, width: int) -> bool:
    """Whether a percentile by nearest rank may have this value.

    A fraction in floating point may be one rank off.
    """
    packets = int(upto[-1])
    rank = min(max(math.ceil(p * packets), 1), packets)
    place = int(np.searchsorted(buckets, value // width * width))
    if place >= len(buckets) or buckets[place] != value // width * width:
        return False
    before = int(upto[place - 1]) if place else 0
    return before - 1 < rank <= int(upto[place]) + 1


def _is_end(latencies: Any, hist: Mapping[str, Any], width: int) -> bool:
    """Whether the largest latencies have the counts of the histogram's last buckets.

    The lowest of their buckets may have more packets than the list has room for.
    """
    values, counts = np.unique(latencies // width * width, return_counts=True)
    wanted = dict(zip(hist["latency_bucket"].tolist(), hist["count"].tolist(), strict=True))
    lowest = int(values[0])
    inner = {bucket: count for bucket, count in wanted.items() if bucket > lowest}
    listed = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return listed.pop(lowest) <= wanted.get(lowest, 0) and listed == inner

"""docs/explanation/published.md and its figures, made from the published trees.

Usage: python -m benches.published TREE… (the folders of clones of the published repositories, which
are imported into a database of its own). Only numbers and figures that were computed here go into
the page, next to the values that an article prints.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tailtap.analysis.compare.comparison import compare_loaded, read
from tailtap.analysis.compare.configurations import aspects_of
from tailtap.analysis.compare.significance import rank_text
from tailtap.analysis.runs.groups import Configuration as Group
from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment, select
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.units import format_count, format_rate
from tailtap.records.compare import CompareRecord
from tailtap.records.printed import ImportRecord
from tailtap.results.importers.importer import import_tree
from tailtap.show.report.figures import hdr
from tailtap.show.report.printing import write_figure
from tailtap.show.reproduce.results import Cell, table6

DOCS = Path(__file__).parents[1] / "docs/explanation"
#: Name, caption, what `tailtap report --runs` would be told.
FIGURES = (
    (
        "technologies",
        "Vanilla kernels without optimisation and real-time kernels with it, at 1 Mpkt/s",
        (
            "containerized-low-latency, 1 Mpkt/s, vanilla-non-optimized",
            "containerized-low-latency, 1 Mpkt/s, vanilla, non-optimized",
            "containerized-low-latency, 1 Mpkt/s, rt-optimized",
            "containerized-low-latency, 1 Mpkt/s, rt, optimized",
        ),
    ),
    (
        "kernels",
        "A container on three kernels, with and without optimisation, at 10 kpkt/s",
        ("containerized-low-latency, 10 kpkt/s, container",),
    ),
    ("cgroups", "The two versions of control groups, at 1.4 Mpkt/s", ("cgroups-nfv",)),
)


def tell(trees: Sequence[Path], page: Path, folder: Path) -> None:
    """Write the page, and its figures into `folder`, from published `trees`."""
    with tempfile.TemporaryDirectory() as name:
        database = Path(name) / "results.duckdb"
        imported = [(tree, import_tree(tree, database)) for tree in trees]
        runs = read([("", database)])
        comparison = compare_loaded(runs)
        drawn = _draw(Path(name), folder)
        page.write_text("\n".join(_page(imported, runs, comparison, drawn)) + "\n", "utf-8")


def _draw(database: Path, folder: Path) -> list[tuple[str, str]]:
    """Draw the figures whose runs were imported; their names and captions."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, caption, selections in FIGURES:
        try:
            chosen = select(load_experiment(database), selections)
        except InputError:
            continue  # nothing of it was imported
        groups = [replace(group, label=_label(group)) for group in configurations(chosen)]
        # A few packets before the median are early by more than any device is: they would take
        # half of the axis.
        medians = [
            row.value for group in groups for member in group.members
            for row in member.evaluation.listed if row.p == 0.5
        ]  # fmt: skip
        figure = hdr(groups, bottom=0.8 * min(medians, default=1.0))
        write_figure(figure, folder, name, ("png", "svg"))
        drawn.append((name, caption))
    return drawn


def _label(group: Group) -> str:
    """What was measured, in the page's words; the heading names the tree and the rate."""
    assert group.origin is not None  # all are imported
    aspects = aspects_of(Run("", origin=group.origin))
    names = ("platform", "networking", "kernel", "tuning")
    parts = [aspects[name] for name in names if name in aspects]
    parts = [part for part in parts if part != "user space"]
    if "cgroup" in aspects:
        parts.append(f"cgroup v{aspects['cgroup']}")
    return ", ".join(parts) or group.label


def _page(
    imported: Sequence[tuple[Path, ImportRecord]],
    runs: Sequence[Run],
    comparison: CompareRecord,
    drawn: Sequence[tuple[str, str]],
) -> Iterator[str]:
    yield "# The published data, compared"
    yield ""
    yield "For readers of the articles: published results, compared with what is printed, and"
    yield "ranked. `make docs-published TREES='TREE…'` writes this page. It imports result trees"
    yield "(`tailtap import`), draws them (`tailtap report`) and compares them (`tailtap compare`);"
    yield "here these folders, which may be excerpts of the repositories of their names:"
    yield ""
    for tree, found in imported:
        yield f"- `{tree.name}`: {found.runs} runs"
    yield ""
    repeats = max(
        len(configuration.repeats)
        for load in comparison.loads
        for configuration in (*load.configurations, *load.floors)
    )
    yield f"with at most {repeats} repeat{'s' if repeats > 1 else ''} of a configuration at a rate."
    yield "All latencies are in microseconds, from the published percentiles and worst packets."
    for name, caption in drawn:
        yield from ("", f"## {caption}", "", f"![{name}](published/{name}.png)")
    yield from ("", *_table6(table6(runs)))
    yield from ("", *_tails(comparison))
    yield from ("", *_warnings(runs, comparison))


def _table6(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Table 6: the largest latency of each technology"
    yield ""
    yield "Table 6 of *Packet processing in virtualized environments* prints the tail latency of"
    yield "the worst repeat, for two machines (scenarios); its text is about 1 Mpkt/s. *Imported*"
    yield "is the largest latency of any imported repeat at this rate, numbered from 0 as in the"
    yield "files' names. Cells without imported runs [are printed only](papers/README.md)."
    yield ""
    yield "| technology | networking | scenario | system | printed | imported | run | comparison |"
    yield "|---|---|---:|---|---:|---:|---|---|"
    for cell in cells:
        if cell.ours is None:
            continue
        system = f"{cell.system[0]}, {cell.system[1]}"
        yield (
            f"| {cell.technology} | {cell.networking} | {cell.scenario} | {system} | "
            f"{cell.printed:,.2f} | {cell.ours:,.2f} | {_worst(cell)} | {cell.reading} |"
        )
    yield ""
    yield from _why(cells)


def _worst(cell: Cell) -> str:
    assert cell.worst is not None
    return f"repeat {cell.worst.repeat - 1}, of {format_count(cell.runs, 'run')}"


def _why(cells: Sequence[Cell]) -> Iterator[str]:
    higher = [cell for cell in cells if cell.reading == "higher"]
    lower = [cell for cell in cells if cell.reading == "lower"]
    same = sum(cell.reading == "same" for cell in cells)
    missing = sum(cell.reading == "not imported" for cell in cells)
    yield f"{same} cells agree to the printed digit. For {missing} cells nothing was imported."
    for cell in higher:
        assert cell.ours is not None and cell.worst is not None and cell.worst.rate is not None
        yield ""
        yield (
            f"**{cell.technology}, {cell.networking}, {cell.system[0]}, {cell.system[1]}: "
            f"{cell.ours:,.2f} where {cell.printed:,.2f} is printed.** Repeat "
            f"{cell.worst.repeat - 1} at {format_rate(round(cell.worst.rate))} is later: the "
            "printed value is not of the worst repeat, as the article says it is."
        )
    for cell in lower:
        yield ""
        yield (
            f"**{cell.technology}, {cell.networking}, {cell.system[0]}, {cell.system[1]}: "
            f"{cell.ours:,.2f} where {cell.printed:,.2f} is printed.** The printed "
            f"run is not among those imported ({format_count(cell.runs, 'run')})."
        )


def _tails(comparison: CompareRecord) -> Iterator[str]:
    yield "## Ranks, as far as the data show them"
    yield ""
    for load in comparison.loads:
        if load.reason or load.percentile is None:
            continue
        yield f"### {load.load}"
        yield ""
        name = f"p{100 * load.percentile:.10g}"
        ranks = {rank_text(standing.rank) for standing in load.configurations}
        repeats = {len(standing.repeats) for standing in load.configurations}
        alike = len(ranks) == len(repeats) == 1
        if alike:
            yield f"Each has rank {ranks.pop()}, and {format_count(repeats.pop(), 'repeat')}."
            yield ""
        first = "" if alike else "| rank | repeats "
        yield f"{first}| configuration | {name}, worst repeat | max | most lost |"
        yield f"{'' if alike else '|---|---:'}|---|---:|---:|---:|"
        for standing in load.configurations:
            worst = standing.repeats[standing.worst_first[0]]
            value = "unknown" if worst.latency is None else f"{worst.latency / 1000:,.2f}"
            top = max(one.max or 0 for one in standing.repeats) / 1000
            loss = max(one.loss or 0.0 for one in standing.repeats)
            rank = "" if alike else f"| {rank_text(standing.rank)} | {len(standing.repeats)} "
            yield f"{rank}| {standing.label} | {value} | {top:,.2f} | {100 * loss:.2g} % |"
        yield ""
    for sentence in comparison.advice:
        yield f"- {sentence}"
    yield ""
    yield "### The recommendations of *How low can you go?*, checked against these results"
    yield ""
    for check in comparison.recommendations:
        yield f"- {check.name}: **{check.answer}**: {check.because}"


def _warnings(runs: Sequence[Run], comparison: CompareRecord) -> Iterator[str]:
    yield "## What is missing, and warnings"
    yield ""
    yield "- Tables 4 and 5, the tail models, cannot be computed: result files say how often"
    yield "  latencies occurred, not when. `tailtap model` needs the captures."
    yield "- CPU time, memory and the layout of the caches are not in the files."
    unmatched = [run for run in runs if any(note.code == "unmatched-egress" for note in run.notes)]
    if unmatched:
        yield (
            f"- {len(unmatched)} of {len(runs)} runs have no latency for more than 0.1 % of the "
            "packets after the device, and do not say why:"
        )
        for run in unmatched:
            assert run.origin is not None  # all are imported
            rate = format_rate(round(run.offered_rate)) if run.offered_rate else "unknown rate"
            yield f"  - `{run.origin.short}` at {rate}, repeat {run.repeat - 1}"
    for warning in comparison.warnings:
        if warning.code == "left-out":
            yield f"- {warning.message}"


def main() -> None:
    """Writes docs/explanation/published.md."""
    trees = [Path(argument) for argument in sys.argv[1:]]
    if not trees:
        sys.exit(f"usage: {__spec__.name} TREE…: the folders of published result trees")
    try:
        tell(trees, DOCS / "published.md", DOCS / "published")
    except InputError as error:
        sys.exit(f"published: {error}")


if __name__ == "__main__":
    main()

"""The report of an experiment: one self-contained page, and the same figures for print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.errors import InputError
from tailtap.results.reader import load_experiment, load_search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tailtap.cause.remedies import Knob
    from tailtap.evaluation import Evaluation

__all__ = ["Report", "figure", "write_report"]


@dataclass(frozen=True)
class Report:
    """What `write_report` wrote."""

    page: Path
    size: int
    """The size of the page in bytes."""
    figures: tuple[Path, ...]
    runs: int
    """How many own runs have a result."""
    failed: int
    imported: int
    """How many imported runs it shows."""


def figure(evaluation: Evaluation, name: str) -> Figure:
    """A figure of the report, of one evaluation, as a matplotlib `Figure`.

    ``hdr`` is latency over percentile, ``worst`` the worst packets over time, ``gaps`` the gaps
    before and after the device, ``rates`` the packets in each second, ``latency`` how often each
    latency occurred. Save it with `savefig`. Raises `InputError` when `name` is none of these.
    """
    from tailtap.report.figures import evaluation_figure

    return evaluation_figure(evaluation, name)


def write_report(
    folder: Path,
    out: Path | None = None,
    *,
    figures: bool = True,
    runs: Sequence[str] = (),
    knobs: Sequence[Knob] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Write the report of the experiment or search in `folder` to `out` (default: `folder`/report).

    `runs` are selections as `selection.select` reads them. `knobs` are those that may be named
    where causes of late packets are found out now (`tailtap.cause`). `progress` gets a short text
    before each step. Raises `InputError` when `folder` is no experiment, holds no finished run, no
    run fits a selection, or `out` cannot be written.
    """
    from tailtap.results.groups import configurations
    from tailtap.results.selection import select

    progress(f"reading {folder}")
    search = None
    if (folder / "search.json").is_file():
        experiment, search = load_search(folder)
    else:
        experiment = load_experiment(folder)
    experiment = select(experiment, runs)
    # After what can be wrong with the folder: loading what draws takes a second.
    from tailtap.report.causes import stories
    from tailtap.report.hops import lines
    from tailtap.report.interrupt_table import sampled_of
    from tailtap.report.page import render

    groups = configurations(experiment, every=bool(runs))
    drawn = [group for group in groups if group.drawn]
    if len(drawn) < len(groups):
        progress(f"{len(groups) - len(drawn)} imported configurations are in the tables alone; "
                 "choose what the figures show by --runs")  # fmt: skip
    target = out or folder / "report"
    told, sampled = stories(drawn, knobs, progress), sampled_of(drawn, progress)
    by_hop = lines(drawn)
    try:
        target.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        if figures:
            from tailtap.report.causes.figures import cause_figures
            from tailtap.report.figures import write_figures
            from tailtap.report.hops.figures import hop_figures

            progress("drawing the figures for print")
            more = {**cause_figures(told), **hop_figures(by_hop)}
            written = write_figures(drawn, target / "figures", more)
        progress("writing the page")
        page = target / "index.html"
        names = [path.stem for path in written if path.suffix == ".png"]
        text = render(experiment, groups, names, search, told, sampled, by_hop)
        page.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(
            f"{target}: cannot write the report: {error.strerror}; choose a folder with --out"
        ) from None
    finished = experiment.finished
    imported = sum(run.origin is not None for run in finished)
    return Report(
        page,
        page.stat().st_size,
        tuple(written),
        len(finished) - imported,
        len(experiment.failed),
        imported,
    )

"""The report of an experiment: one self-contained page, and the same figures for print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.errors import InputError
from tailtap.report.data import load_experiment, load_search
from tailtap.report.values import Experiment

__all__ = ["Experiment", "Report", "load_experiment", "write_report"]


@dataclass(frozen=True)
class Report:
    """What `write_report` wrote."""

    page: Path
    size: int
    """The size of the page in bytes."""
    figures: tuple[Path, ...]
    runs: int
    """How many of one's own runs have a result."""
    failed: int
    imported: int
    """How many imported runs it shows."""


def write_report(
    folder: Path,
    out: Path | None = None,
    *,
    figures: bool = True,
    runs: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Write the report of the experiment or search in `folder` to `out` (default: `folder`/report).

    `runs` are selections as `selection.select` reads them. `progress` gets a short text before
    each step. Raises `InputError` when `folder` is no experiment, holds no finished run, no run
    fits a selection, or `out` cannot be written.
    """
    from tailtap.report.figures import write_figures
    from tailtap.report.groups import configurations
    from tailtap.report.page import render
    from tailtap.report.selection import select

    progress(f"reading {folder}")
    search = None
    if (folder / "search.json").is_file():
        experiment, search = load_search(folder)
    else:
        experiment = load_experiment(folder)
    experiment = select(experiment, runs)
    groups = configurations(experiment, every=bool(runs))
    drawn = [group for group in groups if group.drawn]
    if len(drawn) < len(groups):
        progress(f"{len(groups) - len(drawn)} imported configurations are in the tables alone; "
                 "choose what the figures show by --runs")  # fmt: skip
    target = out or folder / "report"
    try:
        target.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        if figures:
            progress("drawing the figures for print")
            written = write_figures(drawn, target / "figures")
        progress("writing the page")
        page = target / "index.html"
        names = [path.stem for path in written if path.suffix == ".png"]
        text = render(experiment, groups, names, search)
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

"""The report of an experiment: one self-contained page, and the same figures for print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailtap.errors import InputError
from tailtap.report.data import Experiment, load_experiment

__all__ = ["Experiment", "Report", "load_experiment", "write_report"]


@dataclass(frozen=True)
class Report:
    """What `write_report` wrote."""

    page: Path
    size: int
    """The size of the page in bytes."""
    figures: tuple[Path, ...]
    runs: int
    failed: int


def write_report(
    folder: Path,
    out: Path | None = None,
    *,
    figures: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Write the report of the experiment in `folder` to `out` (default: `folder`/report).

    `progress` gets a short text before each step. Raises `InputError` when `folder` is no
    experiment, holds no finished run, or `out` cannot be written.
    """
    from tailtap.report.figures import write_figures
    from tailtap.report.groups import configurations
    from tailtap.report.page import render

    progress(f"reading {folder}")
    experiment = load_experiment(folder)
    groups = configurations(experiment)
    target = out or folder / "report"
    try:
        target.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        if figures:
            progress("drawing the figures for print")
            written = write_figures(groups, target / "figures")
        progress("writing the page")
        page = target / "index.html"
        text = render(experiment, groups, [path.stem for path in written if path.suffix == ".png"])
        page.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(
            f"{target}: cannot write the report: {error.strerror}; choose a folder with --out"
        ) from None
    return Report(
        page, page.stat().st_size, tuple(written), len(experiment.finished), len(experiment.failed)
    )

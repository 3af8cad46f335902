"""The report of an experiment: one self-contained page, and on demand its figures for print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.analysis.runs.reader import load_experiment, load_search, select
from tailtap.base.errors import Occupied
from tailtap.base.files import drafted, make_folder
from tailtap.base.foreign import read_head
from tailtap.base.writing import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tailtap.analysis.evaluation import Evaluation
    from tailtap.analysis.figures.specification import Specification
    from tailtap.analysis.runs.groups import Configuration
    from tailtap.analysis.runs.run import Experiment
    from tailtap.records.search import SearchRecord
    from tailtap.show.report.causes import Story
    from tailtap.show.report.hops import Line

__all__ = ["Material", "Report", "figure", "gather", "write_report"]

MARK = b"tailtap report</title>"
"""What a page of ours has among its first so many bytes."""


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
    requested: Mapping[str, str]
    """The headings of the figures that the experiment asks for, by their names."""
    drawn: Sequence[Specification]
    """The other figures."""


@dataclass(frozen=True)
class Material:
    """What a report is made of."""

    experiment: Experiment
    search: SearchRecord | None
    """The search for the highest rate that the experiment belongs to."""
    groups: list[Configuration]
    stories: list[Story]
    """Why packets of traced runs were late."""
    lines: list[Line]
    """Runs whose hops are known."""

    @property
    def drawn(self) -> list[Configuration]:
        """The configurations that figures show."""
        return [group for group in self.groups if group.drawn]

    @cached_property
    def figures(self) -> list[Specification]:
        """The figures that the experiment need not ask for."""
        from tailtap.show.report.causes import cause_figures
        from tailtap.show.report.figures import standard_figures
        from tailtap.show.report.hops import hop_figures

        return [
            *standard_figures(self.drawn),
            *cause_figures(self.stories),
            *hop_figures(self.lines),
        ]


def figure(evaluation: Evaluation, name: str) -> Figure:
    """A figure of the report, of one evaluation, as a matplotlib `Figure`.

    ``hdr`` is latency over percentile, ``worst`` the worst packets over time, ``losses`` how many
    packets were lost in a row over time, ``gaps`` the gaps before and after the device, ``rates``
    the packets in each second, ``latency`` how often each latency occurred. Save it with `savefig`.
    Raises `InputError` when `name` is none of these, and for ``losses`` where none are known.
    """
    from tailtap.show.report.figures import of_evaluation
    from tailtap.show.report.printing import as_matplotlib

    return as_matplotlib(of_evaluation(evaluation, name))


def gather(
    folder: Path,
    runs: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Material:
    """Read what the report of the experiment or search in `folder` shows.

    The arguments are those of `write_report`. Raises `InputError` as that does.
    """
    from tailtap.analysis.runs.groups import configurations
    from tailtap.analysis.verdict.runs import required_percentiles

    progress(f"reading {folder}")
    search = None
    if (folder / "search.json").is_file():
        experiment, search = load_search(folder)
    else:
        experiment = load_experiment(folder)
    experiment = select(experiment, runs)
    # After what can be wrong with the folder: loading these takes a while.
    from tailtap.show.report.causes import stories
    from tailtap.show.report.hops import lines
    from tailtap.show.report.readings import with_undisturbed

    groups, damage = with_undisturbed(
        configurations(experiment, every=bool(runs), asked=required_percentiles([folder]))
    )
    experiment = replace(experiment, warnings=(*experiment.warnings, *damage))
    drawn = [group for group in groups if group.drawn]
    if len(drawn) < len(groups):
        progress(
            f"{len(groups) - len(drawn)} imported configurations are in the tables alone; "
            "choose what the figures show by --runs"
        )
    return Material(experiment, search, groups, stories(drawn, progress), [*lines(drawn)])


def write_report(
    folder: Path,
    out: Path | None = None,
    *,
    figures: bool = False,
    runs: Sequence[str] = (),
    figures_from: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Write the report of the experiment or search in `folder` to `out` (default: `folder`/report).

    With `figures` these are drawn for print as well. `runs` are selections as `selection.select`
    reads them. The section `figures` is read from the file `figures_from`, or else from the
    experiment's own. `progress` gets a short text before each step. Raises `InputError` when
    `folder` is no experiment, holds no finished run, no run fits a selection, or there is a page in
    `out` that is none of ours, and `MachineError` when `out` cannot be written.
    """
    material = gather(folder, runs, progress)
    from tailtap.show.report.page import render
    from tailtap.show.report.readings import sampled_of
    from tailtap.show.report.requested import requested_figures, with_pictures, write_requested

    experiment = material.experiment
    target = out or folder / "report"
    sampled = sampled_of(material.drawn, progress)
    requested = requested_figures(experiment, figures_from, progress)
    below = out or folder
    page = target / "index.html"
    with writing(target, doing="write the report"):
        if page.is_file() and MARK not in read_head(page):
            raise Occupied("this is there, and no report", place=str(page))
        make_folder(target, below=below)
        written: list[Path] = []
        if figures:
            from tailtap.show.report.printing import write_figure

            progress("drawing the figures for print")
            make_folder(target / "figures", below=below)
            for one in material.figures:
                written += write_figure(one, target / "figures", one.name, below=below)
            written += write_requested(requested, target / "figures", below=below)
        progress("writing the page")
        printed = {path.stem: path for path in written if path.suffix == ".svg"}
        text = render(material, list(printed), sampled, with_pictures(requested, printed))
        with drafted(page, below=below) as file:
            file.write(text.encode("utf-8", "backslashreplace"))  # names that are no UTF-8
    imported = len(experiment.imported)
    return Report(
        page,
        page.stat().st_size,
        tuple(written),
        len(experiment.finished) - imported,
        len(experiment.failed),
        imported,
        {one.name: one.title for one in requested},
        material.figures,
    )

"""The report of an experiment: one self-contained page, and the same figures for print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.analysis.runs.reader import load_experiment, load_search
from tailtap.base.errors import Occupied
from tailtap.base.files import drafted, make_folder
from tailtap.base.foreign import read_head
from tailtap.base.writing import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tailtap.analysis.causes.remedies import Knob
    from tailtap.analysis.evaluation import Evaluation

__all__ = ["Report", "figure", "write_report"]

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
    asked: Mapping[str, str]
    """The headings of the figures that the experiment asks for, by their names."""


def figure(evaluation: Evaluation, name: str) -> Figure:
    """A figure of the report, of one evaluation, as a matplotlib `Figure`.

    ``hdr`` is latency over percentile, ``worst`` the worst packets over time, ``losses`` how many
    packets were lost in a row over time, ``gaps`` the gaps before and after the device, ``rates``
    the packets in each second, ``latency`` how often each latency occurred. Save it with `savefig`.
    Raises `InputError` when `name` is none of these, and for ``losses`` where none are known.
    """
    from tailtap.show.report.figures import evaluation_figure

    return evaluation_figure(evaluation, name)


def write_report(
    folder: Path,
    out: Path | None = None,
    *,
    figures: bool = True,
    runs: Sequence[str] = (),
    knobs: Sequence[Knob] = (),
    figures_from: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
    on_figure: Callable[[str, Figure], object] = lambda *_: None,
) -> Report:
    """Write the report of the experiment or search in `folder` to `out` (default: `folder`/report).

    `runs` are selections as `selection.select` reads them. `knobs` are those that may be named
    where causes of late packets are found out now (`tailtap.analysis.causes`). The section
    `figures` is read from the file `figures_from`, or else from the experiment's own. `progress`
    gets a short text before each step, and `on_figure` each figure for print with its name. Raises
    `InputError` when `folder` is no experiment, holds no finished run, no run fits a selection, or
    there is a page in `out` that is none of ours, and `MachineError` when `out` cannot be written.
    """
    from tailtap.analysis.runs.groups import configurations
    from tailtap.analysis.runs.selection import select

    progress(f"reading {folder}")
    search = None
    if (folder / "search.json").is_file():
        experiment, search = load_search(folder)
    else:
        experiment = load_experiment(folder)
    experiment = select(experiment, runs)
    # After what can be wrong with the folder: loading what draws takes a second.
    from tailtap.show.report.asked import asked_figures, write_asked
    from tailtap.show.report.asked.page import shown
    from tailtap.show.report.causes import stories
    from tailtap.show.report.hops import lines
    from tailtap.show.report.interrupt_table import sampled_of
    from tailtap.show.report.page import render
    from tailtap.show.report.undisturbed import with_undisturbed

    groups, damage = with_undisturbed(configurations(experiment, every=bool(runs)))
    experiment = replace(experiment, warnings=(*experiment.warnings, *damage))
    drawn = [group for group in groups if group.drawn]
    if len(drawn) < len(groups):
        progress(
            f"{len(groups) - len(drawn)} imported configurations are in the tables alone; "
            "choose what the figures show by --runs"
        )
    target = out or folder / "report"
    told, sampled = stories(drawn, knobs, progress), sampled_of(drawn, progress)
    by_hop = lines(drawn)
    asked = asked_figures(experiment, figures_from, progress)
    below = out or folder
    page = target / "index.html"
    with writing(target, doing="write the report"):
        if page.is_file() and MARK not in read_head(page):
            raise Occupied("this is there, and no report", place=str(page))
        make_folder(target, below=below)
        written: list[Path] = []
        if figures:
            from tailtap.show.report.causes.figures import cause_figures
            from tailtap.show.report.figures import write_figures
            from tailtap.show.report.hops.figures import hop_figures

            progress("drawing the figures for print")
            more = {**cause_figures(told), **hop_figures(by_hop)}
            written = write_figures(
                drawn, target / "figures", more, below=below, on_figure=on_figure
            )
            written += write_asked(asked, target / "figures", below=below)
        progress("writing the page")
        names = [path.stem for path in written if path.suffix == ".png"]
        printed = {path.stem: path for path in written if path.suffix == ".svg"}
        text = render(
            experiment, groups, names, search, told, sampled, by_hop, shown(asked, printed)
        )
        with drafted(page, below=below) as file:
            file.write(text.encode("utf-8", "backslashreplace"))  # names that are no UTF-8
    finished = experiment.finished
    imported = sum(run.origin is not None for run in finished)
    return Report(
        page,
        page.stat().st_size,
        tuple(written),
        len(finished) - imported,
        len(experiment.failed),
        imported,
        {one.name: one.title for one in asked},
    )

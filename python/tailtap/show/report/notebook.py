"""Results in a shell or a notebook: a few lines of text, or tables and a figure as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.transactions import Transactions
from tailtap.analysis.runs.groups import Configuration, configurations, finding
from tailtap.analysis.runs.reader import experiment_of
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.base.units import format_count
from tailtap.records.causes import CausesRecord
from tailtap.records.compare import CompareRecord, GateRecord
from tailtap.records.verdict import VerdictRecord
from tailtap.records.warnings import by_kind
from tailtap.show.report.figures import hdr
from tailtap.show.report.requested import picture
from tailtap.show.report.tables import summary
from tailtap.show.sections import Shown
from tailtap.show.sections.answers import gate_parts, verdict_parts, verdict_text
from tailtap.show.sections.causes import causes_section, in_short
from tailtap.show.sections.comparison import comparison_parts
from tailtap.show.sections.latency import evaluation_parts, transactions_parts
from tailtap.show.sections.renderers import templates

LINES = 3


@dataclass(frozen=True)
class View:
    """What is seen of a result."""

    lines: Iterable[str]
    """Of these, the first `LINES` are its text."""
    parts: Iterable[Shown]
    drawn: Sequence[Configuration] = field(default=())
    """What the figure shows; without any there is none."""


def text_of(found: object) -> str:
    """A few lines about a result."""
    return "\n".join(islice(view_of(found).lines, LINES))


def page_of(found: object) -> str:
    """The HTML of a result: what a terminal shows of it, and its figure."""
    view = view_of(found)
    figure = picture(hdr(view.drawn)) if view.drawn else ""
    page = templates("tailtap.show.report").get_template("notebook.html.j2")
    return page.render(parts=list(view.parts), figure=figure)


def view_of(found: object) -> View:
    """What is seen of a result; of every class that is a `Seen`."""
    match found:
        case Evaluation():
            name = " → ".join(side.path for side in found.inputs.both)
            parts = [part for name, way in found.ways.items()
                     for part in (name, *evaluation_parts(way))]  # fmt: skip
            return _of_runs(f"{name}, matched by {found.key}", experiment_of(found, name), parts)
        case Run():
            return _of_runs(found.slug, Experiment(found.experiment, found.home, (found,)))
        case Experiment():
            runs = format_count(len(found.runs), "run")
            return _of_runs(f"{found.name} in {found.folder}: {runs}", found)
        case Transactions():
            kinds = [f"{one.name}: {format_count(one.counts.requests, 'request')}, "
                     f"{one.counts.unanswered:,} unanswered" for one in found.kinds]  # fmt: skip
            return View([", ".join(found.captures), *kinds], transactions_parts(found))
        case CausesRecord():
            candidates = [f"candidate: {one}" for one in found.remove.lines]
            section = causes_section(found, found.run)
            return View([found.run, in_short(found), *candidates], [section])
        case CompareRecord():
            return View(found.advice, comparison_parts(found))
        case GateRecord():
            rows = [f"{one.configuration}, {one.percentile_text}: {one.answer}: {one.reason}"
                    for one in found.rows]  # fmt: skip
            answer = f"{found.new} against {found.base}: {found.answer}"
            return View([answer, *rows], gate_parts(found))
        case VerdictRecord():
            rows = [f"{one.configuration}, {one.requirement}: {one.answer}: {one.reason}"
                    for one in found.verdicts]  # fmt: skip
            return View([verdict_text(found), *rows], verdict_parts(found))
    raise TypeError(type(found))


def _of_runs(title: str, found: Experiment, parts: Sequence[Shown] = ()) -> View:
    """What is seen of runs; instead of their table `parts`, where there are some."""
    groups = configurations(found)
    named = [f"{one.title}: " if groups[1:] else "" for one in groups]
    said = [name + finding(one, groups).sentence for name, one in zip(named, groups, strict=True)]
    said += [f"{one.slug} failed: {one.failure}" for one in found.failed]
    notices = ((notice, None) for run in found.runs for notice in run.all_warnings)
    warnings = [f"warning: {one.message} [{one.code}]" for one in by_kind(notices)]
    shown = parts or [summary(groups), *said]
    return View([title, *said, *warnings], [*shown, *warnings], groups)

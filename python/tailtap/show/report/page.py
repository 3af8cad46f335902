"""The page: one HTML file with everything in it, made with Jinja2.

Names come from files that anyone may have written: autoescape is on, and figures reach the
script as compressed JSON, never as markup.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import tailtap
from tailtap.analysis.compare import resources as compare
from tailtap.analysis.compare.checks import advise
from tailtap.analysis.compare.comparison import load_record
from tailtap.analysis.compare.configurations import gather
from tailtap.analysis.compare.ranking import rank
from tailtap.analysis.figures.specification import DASHES
from tailtap.analysis.runs.groups import DRAWN, Configuration, listed
from tailtap.analysis.runs.run import Experiment
from tailtap.analysis.runs.text import count_text, date_text
from tailtap.analysis.verdict.runs import judge_experiment, required_by, required_percentiles
from tailtap.base.document import load
from tailtap.base.errors import InputError
from tailtap.records.causes import NOISE, NoiseRecord
from tailtap.records.record import R, read_if_there
from tailtap.records.search import ImproveRecord, SearchRecord
from tailtap.records.verdict import ClaimRow, VerdictRow
from tailtap.show.report import Material, readings, tables
from tailtap.show.report.audit import MachineAudit, audits_of
from tailtap.show.report.causes import CausesSection, causes_shown, timeline_plot
from tailtap.show.report.figures import PANELLED, cut_short
from tailtap.show.report.hops import Section as Hops
from tailtap.show.report.hops import section as hop_section
from tailtap.show.report.loss import loss_curves
from tailtap.show.report.machine import Placed, placed
from tailtap.show.report.requested import Requested
from tailtap.show.report.screen import Screen, Shown
from tailtap.show.report.tables import Fact, Losses, Told, mark_of
from tailtap.show.sections import Mark, Section, Table
from tailtap.show.sections.answers import (
    claims_table,
    improvement_section,
    rates_table,
    verdict_table,
)
from tailtap.show.sections.cards import Card, cards
from tailtap.show.sections.comparison import COUNTED, RANKED, counted_part, ranked_part
from tailtap.show.sections.machine import noise_section
from tailtap.show.sections.renderers import templates

MOST_TOLD, FEW_TOLD = 12, 8
"""With more configurations than this, the page begins with sentences about so many slowest ones."""
KINDS = ("hdr", "loss", *PANELLED, "causes", "shares", "timeline", "hops", "hop-packets")
"""The figures of the page."""


@dataclass(frozen=True)
class Header:
    """The lines under the title."""

    name: str
    own: int
    """Finished runs of this experiment, beside the `imported` ones."""
    imported: int
    packets: str
    facts: Sequence[str]
    question: str = ""
    """What the experiment is to answer, as its file says."""


@dataclass(frozen=True)
class Result:
    """What the page begins with: a card of each configuration, or of the slowest."""

    cards: Sequence[Card]
    of: int
    """How many configurations there are, where not all have a card; else 0."""


@dataclass(frozen=True)
class Figures:
    """What the script draws."""

    groups: Sequence[Configuration]
    undrawn: int
    """Configurations that the tables alone show."""
    panels: Mapping[str, Sequence[Shown]]
    """By the section that they are in."""
    printed: Sequence[str]
    """The names of the print figures beside the page."""
    dashes: Sequence[Sequence[float]] = DASHES
    published: Mapping[str, str] = field(default_factory=lambda: tables.PUBLISHED)


@cache
def _library() -> str:
    """The core bundle of the installed Bokeh's script; nothing else of it is needed."""
    package = find_spec("bokeh")
    assert package is not None and package.origin is not None
    script = Path(package.origin).with_name("server") / "static/js/bokeh.min.js"
    return _packed(script.read_bytes())


@dataclass(frozen=True)
class Files:
    """What would be files beside another page, and who made them."""

    payload: str
    style: str = field(default_factory=lambda: packaged("page.css") + packaged("causes.css"))
    script: str = field(default_factory=lambda: packaged("page.js") + packaged("causes.js"))
    library: str = field(default_factory=_library)
    version: str = tailtap.__version__
    bokeh_version: str = field(default_factory=lambda: version("bokeh"))


@dataclass(frozen=True)
class Page:
    """What the template lays out: a field for each section, in their order."""

    header: Header
    result: Result
    tables: Mapping[str, Table]
    """Those that stand below a heading of their own, by what they are of."""
    improvement: Section | None
    told: Told
    search: SearchRecord | None
    comparison: Section | None
    requested: Sequence[Requested]
    figures: Figures
    losses: Losses
    losses_cut_short: str
    """Which runs lost more packets than the figure of losses over time shows."""
    patterns: Sequence[str]
    """What the lost packets of runs have in common."""
    causes: CausesSection
    hops: Hops
    interrupts: Sequence[Section]
    placed: Sequence[Placed]
    noise: Section | None
    audits: Sequence[MachineAudit]
    facts: Mapping[str, Sequence[Fact]]
    files: Files


def render(
    material: Material,
    printed: Sequence[str],
    sampled: Sequence[Section] = (),
    requested: Sequence[Requested] = (),
) -> str:
    """The page as text. `printed` are the names of the print figures beside it, if any.

    `sampled` says which interrupts rose where packets were late, and `requested` are the figures of
    the experiment file.
    """
    experiment, groups, drawn = material.experiment, material.groups, material.drawn
    causes, hops = causes_shown(material.stories), hop_section(material.lines)
    screen = _screen(material, causes)
    curves, verdicts = loss_curves(drawn), verdicts_of(experiment)
    payload = {
        "document": screen.document,
        "roots": {panel.root: f"figure-{panel.root}" for panel in screen.shown if panel.root},
        "runs": [
            {
                "label": member.label,
                "light": group.light,
                "dark": group.dark,
                "group": place,
                "imported": group.origin is not None,
            }
            for place, group in enumerate(drawn)
            for member in group.members
        ],
        **causes.payload,
    }
    encoded = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    page = Page(
        header=_header(experiment),
        result=_result(drawn, groups, verdicts, causes),
        tables={
            "verdicts": verdict_table(verdicts),
            "claims": claims_table(_claims(experiment)),
            "rates": rates_table(material.search.answers if material.search else ()),
            "summary": tables.summary(groups),
            "flows": tables.flows_together(experiment),
            "by_flow": tables.flows_of(
                groups,
                {
                    story.member.index: story.causes.record.flows
                    for story in material.stories
                    if story.causes
                },
            ),
            "counts": tables.counted(groups),
            "changed": tables.changed(groups),
            "taps": readings.taps(groups),
            "energy": readings.energy(groups),
            "events": readings.events(groups),
            "counters": readings.counters(groups),
            "by_packet": by_packet(experiment, groups),
            "imported": tables.imported(groups),
        },
        improvement=_beside(experiment, "improve.json", ImproveRecord, improvement_section),
        told=tables.told(experiment, groups),
        search=material.search,
        comparison=compared(experiment, groups),
        requested=requested,
        figures=Figures(
            drawn,
            len(groups) - len(drawn),
            {kind: [one for one in screen.shown if one.kind == kind] for kind in KINDS},
            printed,
        ),
        losses=tables.losses(groups, curves),
        losses_cut_short=cut_short(drawn),
        patterns=[
            f"{member.label}: {pattern.text}."
            for group in groups
            for member in group.members
            for pattern in member.evaluation.loss_patterns or ()
        ],
        causes=causes,
        hops=hops,
        interrupts=sampled,
        placed=placed(groups),
        noise=_beside(experiment, NOISE, NoiseRecord, noise_section),
        audits=audits_of(groups),
        facts=tables.environment_facts(experiment),
        files=Files(payload=_packed(encoded.encode())),
    )
    return templates("tailtap.show.report").get_template("page.html.j2").render(page=page)


def _screen(material: Material, causes: CausesSection) -> Screen:
    """The figures of the page; panels of one run have its label above them."""
    screen = Screen()
    stories = {one.place: one.member.label for one in material.stories if one.drawn}
    lines = {one.place: one.member.label for one in material.lines}
    named = dict.fromkeys(("causes", "shares"), stories)
    named |= dict.fromkeys(("hops", "hop-packets"), lines)
    for figure in material.figures:
        screen.add(figure, named.get(figure.name, {}))
    for story in material.stories:
        told = causes.timelines.get(story.member.index)
        if told is not None:
            plot = timeline_plot(screen, told["lanes"], story.member)
            screen.put("timeline", story.member.label, story.place, plot)
    return screen


def _result(
    drawn: list[Configuration],
    groups: list[Configuration],
    verdicts: Sequence[VerdictRow],
    causes: CausesSection,
) -> Result:
    """What the page begins with; many imported configurations have tables."""
    imported = [group for group in drawn if group.origin]
    named = drawn if len(imported) <= DRAWN else [g for g in drawn if not g.origin]
    if len(named) > MOST_TOLD:
        known = [p for group in named if (p := group.common_percentile) is not None]
        slowest = sorted(named, key=lambda group: _slowness(group, min(known, default=1.0)))
        named = [group for group in named if group in slowest[-FEW_TOLD:]]
    of = len(drawn) if len(drawn) > MOST_TOLD else 0
    return Result(cards(named, groups, verdicts, causes.of), of)


def _slowness(group: Configuration, p: float) -> float:
    """The latency of its worst repeat at the percentile `p`, in ns; one whose tail was
    lost is the slowest.
    """
    row = listed(group.worst.evaluation, p) if group.worst else None
    return inf if group.lost_heavily else -1 if row is None else row.value


def _header(experiment: Experiment) -> Header:
    """The lines under the title: when, where and how much was measured."""
    own = [run for run in experiment.finished if run.origin is None]
    counted = [run.evaluation for run in own or experiment.finished if run.evaluation]
    started = [date_text(run.started) for run in experiment.runs if run.started]
    environment = experiment.finished[0].environment
    kernel = environment.kernel.release
    facts = [*started[:1], f"Linux {kernel}" if kernel else "", environment.cpu.model]
    return Header(
        experiment.name,
        len(own),
        len(experiment.imported),
        count_text(sum(evaluation.packets or 0 for evaluation in counted)),
        [fact for fact in facts if fact],
        question_of(experiment),
    )


def question_of(experiment: Experiment) -> str:
    """What the experiment is to answer, as its file says; a folder of imported runs has none."""
    return str(_described(experiment).get("question", ""))


def _described(experiment: Experiment) -> Mapping[str, Any]:
    """What the experiment file says; nothing where a folder has none."""
    path = experiment.folder / "experiment.yaml"
    return load(path).data if path.is_file() else {}


def _claims(experiment: Experiment) -> Sequence[ClaimRow]:
    """What the runs show of the claims; without claims, nothing that judges them is loaded."""
    if not _described(experiment).get("claims"):
        return ()
    from tailtap.analysis.claims.judge import claims_shown

    return claims_shown(experiment)


def verdicts_of(experiment: Experiment) -> Sequence[VerdictRow]:
    """The verdict on own runs; nothing where the file requires nothing.

    Raises `InputError` when the experiment file was changed into one that cannot be read.
    """
    required = required_by(experiment.folder)
    own = Experiment(experiment.name, experiment.folder, experiment.own)
    judged = required and own.runs
    return judge_experiment(own, required).verdicts if judged else ()


def _beside(
    experiment: Experiment, name: str, kind: type[R], section: Callable[[R], Section]
) -> Section | None:
    """What a file of the results' folder says, if it is there. Raises `InputError`."""
    found = read_if_there(experiment.folder / name, kind)
    return None if found is None else section(found)


def packaged(name: str) -> str:
    """A file beside the templates."""
    return (files("tailtap.show.report") / "templates" / name).read_text("utf-8")


def _packed(data: bytes) -> str:
    """Bytes for the page: gzip, which every current browser unpacks, as base64."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def compared(experiment: Experiment, groups: Sequence[Configuration]) -> Section | None:
    """What is better; None where no two configurations were measured under the same load."""
    try:
        loads = gather(experiment.finished)
        ranked = rank(loads, required=required_percentiles([experiment.folder]))
    except InputError:
        return None  # published percentiles that do not go together
    found = [one for one in ranked if not one.reason]
    if not found:
        return None
    colours = _colours(groups)
    parts = []
    for record in map(load_record, found):
        shown = (*record.configurations, *record.floors)
        marks = {one.label: colours[one.repeats[0].number, one.repeats[0].run] for one in shown}
        parts.append(ranked_part(record, marks))
    return Section("Which configuration is better", [f"{one}." for one in advise(found)],
                   [Table("which configuration is better", RANKED, parts)])  # fmt: skip


def by_packet(experiment: Experiment, groups: Sequence[Configuration]) -> Table:
    """What was counted per packet under each load: means over repeats, and what differs."""
    title = "what was counted for each packet"
    try:
        loads = gather(experiment.finished)
        found = compare.counters(loads)
    except InputError:  # published runs that do not go together, or samples that cannot be read
        return Table(title, COUNTED, ())
    colours = _colours(groups)
    parts = []
    for under, counted in zip(loads, found, strict=True):
        first = {one.label: one.runs[0] for one in under.ranked}
        marks = {label: colours[run.number, run.slug] for label, run in first.items()}
        parts.append(counted_part(counted, under.label, marks))
    return Table(title, COUNTED, [part for part in parts if part.rows])


def _colours(groups: Sequence[Configuration]) -> dict[tuple[int, str], Mark]:
    """How figures show each run, by its number and its slug."""
    return {
        (member.run.number, member.run.slug): mark_of(group)
        for group in groups
        for member in group.members
    }

"""The page: one HTML file with everything in it, made with Jinja2.

Names come from files that anyone may have written: autoescape is on, and figures reach the
script as compressed JSON, never as markup.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from importlib.resources import files
from math import inf
from pathlib import Path

import bokeh
from jinja2 import Environment, PackageLoader, StrictUndefined

import tailtap
from tailtap.analysis.runs.groups import DRAWN, Configuration, finding, listed
from tailtap.analysis.runs.run import Experiment
from tailtap.analysis.runs.searched import HEADS as SEARCH_HEADS
from tailtap.analysis.runs.searched import Search
from tailtap.analysis.runs.text import count_text, date_text
from tailtap.output.report import comparison, interactive, tables
from tailtap.output.report.audit import audits_of
from tailtap.output.report.causes import Story
from tailtap.output.report.causes.page import section
from tailtap.output.report.energy import energy_heads, energy_rows
from tailtap.output.report.flows import HEADS as FLOW_HEADS
from tailtap.output.report.flows import flow_rows
from tailtap.output.report.hops import Line
from tailtap.output.report.hops.interactive import KINDS as HOPS
from tailtap.output.report.hops.page import section as hop_section
from tailtap.output.report.interrupt_table import HEADS as SAMPLED_HEADS
from tailtap.output.report.interrupt_table import Sampled
from tailtap.output.report.loss import loss_curves, lossless, rate_curves
from tailtap.output.report.machine import maps_of
from tailtap.output.report.verdicts import verdict_rows

MOST_TOLD, FEW_TOLD = 12, 8
"""With more configurations than this, the page begins with sentences about so many slowest ones."""
SECTIONS = ("hdr", "loss", "worst", "gaps", "rates", "latency")
CAUSES = ("causes", "shares", "timeline")


def render(
    experiment: Experiment,
    groups: list[Configuration],
    figures: list[str],
    search: Search | None = None,
    stories: Sequence[Story] = (),
    sampled: Sequence[Sampled] = (),
    lines: Sequence[Line] = (),
) -> str:
    """The page as text. `figures` are the names of the print figures beside it, if any.

    `search` is the search for the highest rate that the experiment belongs to, `stories` say why
    packets of traced runs were late, `sampled` which interrupts rose where they were, and `lines`
    are runs whose hops are known.
    """
    drawn = [group for group in groups if group.drawn]
    causes, shown = section(stories), hop_section(lines)
    document, panels = interactive.build(drawn, [*causes.figures, *shown.figures])
    curves = loss_curves(drawn)
    own = [run for run in experiment.finished if run.origin is None]
    counted = [run.evaluation for run in own or experiment.finished if run.evaluation]
    payload = {
        "document": document,
        "roots": {panel.root: f"figure-{panel.root}" for panel in panels if panel.root},
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
        "curves": [{"light": curve.light, "dark": curve.dark} for curve in curves],
        "hops": [colour._asdict() for colour in shown.colours],
        **causes.payload,
    }
    environment = Environment(
        loader=PackageLoader("tailtap.output.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    return template.render(
        experiment=experiment,
        groups=drawn,
        undrawn=len(groups) - len(drawn),
        findings=[finding(group, groups) for group in _told(drawn)],
        of_findings=len(drawn) if len(drawn) > MOST_TOLD else 0,
        verdicts=verdict_rows(experiment),
        warnings=tables.warning_rows(experiment, groups),
        summary_heads=tables.summary_heads(groups),
        summary=list(tables.summary_rows(groups)),
        flow_heads=FLOW_HEADS,
        flow_rows=flow_rows(experiment),
        comparison=comparison.compared(experiment, groups),
        comparison_heads=comparison.HEADS,
        counts=tables.counted(groups),
        own=len(own),
        search=search,
        search_heads=SEARCH_HEADS,
        curves=curves,
        loss_heads=tables.LOSS_HEADS,
        loss_rows=list(tables.loss_rows(loss_curves(groups))),
        lossless=lossless(rate_curves(groups)),
        imported=len(experiment.imported),
        published=tables.PUBLISHED,
        imported_rows=tables.imported_rows(groups),
        taps=tables.taps_told(groups),
        energy_heads=energy_heads(groups),
        energy_rows=energy_rows(groups),
        counter_heads=tables.counter_heads(groups),
        counter_rows=tables.counter_rows(groups),
        maps=maps_of(groups),
        audits=audits_of(groups),
        causes=causes,
        hops=shown,
        sampled=sampled,
        sampled_heads=SAMPLED_HEADS,
        facts=tables.environment_facts(experiment),
        panels={
            kind: [p for p in panels if p.kind == kind] for kind in (*SECTIONS, *CAUSES, *HOPS)
        },
        dashes=interactive.DASHES,
        figures=figures,
        facts_of_measurement=_measurement_line(experiment),
        packets=count_text(sum(evaluation.packets or 0 for evaluation in counted)),
        version=tailtap.__version__,
        bokeh_version=bokeh.__version__,
        style=_packaged("page.css") + _packaged("causes.css"),
        script=_packaged("page.js") + _packaged("causes.js"),
        library=_packed(_library()),
        payload=_packed(json.dumps(payload, separators=(",", ":"), allow_nan=False).encode()),
    )


def _told(groups: list[Configuration]) -> list[Configuration]:
    """The configurations with sentences about their results; many imported ones have tables."""
    imported = [group for group in groups if group.origin]
    told = groups if len(imported) <= DRAWN else [g for g in groups if not g.origin]
    if len(told) <= MOST_TOLD:
        return told
    known = [p for group in told if (p := group.common_percentile) is not None]
    slowest = sorted(told, key=lambda group: _slowness(group, min(known, default=1.0)))
    return [group for group in told if group in slowest[-FEW_TOLD:]]


def _slowness(group: Configuration, p: float) -> float:
    """The latency of its worst repeat at the percentile `p`, in ns; one that is overloaded is the
    slowest.
    """
    row = listed(group.worst.evaluation, p) if group.worst else None
    return inf if group.overloaded else -1 if row is None else row.value


def _measurement_line(experiment: Experiment) -> list[str]:
    """The line under the title: when, where and how much was measured."""
    started = [date_text(run.started) for run in experiment.runs if run.started]
    environment = experiment.finished[0].environment
    kernel = environment.kernel.release
    facts = [*started[:1], f"Linux {kernel}" if kernel else "", environment.cpu.model]
    return [fact for fact in facts if fact]


def _packaged(name: str) -> str:
    return (files("tailtap.output.report") / "templates" / name).read_text("utf-8")


def _library() -> bytes:
    """The core bundle of the installed Bokeh's script; nothing else of it is needed."""
    return Path(bokeh.__file__).parent.joinpath("server/static/js/bokeh.min.js").read_bytes()


def _packed(data: bytes) -> str:
    """Bytes for the page: gzip, which every current browser unpacks, as base64."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")

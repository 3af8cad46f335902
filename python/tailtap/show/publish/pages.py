"""The pages of a site, and the files by which others know what it is and may do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment

import tailtap
from tailtap.analysis.evaluation.values import label as percentile_label
from tailtap.analysis.runs.groups import Configuration, Finding, configurations
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.analysis.runs.text import count_text, date_text, share_text, time_text
from tailtap.analysis.verdict.runs import required_percentiles
from tailtap.base.document import load
from tailtap.base.errors import InputError
from tailtap.base.files import write_text
from tailtap.records.causes import CausesRecord
from tailtap.records.record import read_if_there
from tailtap.records.site import RedactedKind, SiteRecord, SiteRun
from tailtap.records.verdict import VerdictRow
from tailtap.show.publish.crate import PREVIEW, SPDX, Author
from tailtap.show.report.page import packaged, question_of, verdicts_of
from tailtap.show.sections.answers import claims_table, verdict_table
from tailtap.show.sections.cards import cards
from tailtap.show.sections.causes import causes_section
from tailtap.show.sections.latency import percentiles_table
from tailtap.show.sections.renderers import templates

REPORT = "report.html"
STYLE = "style.css"
REPEAT = "repeat.sh"
WORDS: Mapping[RedactedKind, str] = {
    "serials": "serial numbers",
    "macs": "hardware addresses",
    "hostnames": "host names",
    "users": "user names",
    "addresses": "IP addresses",
    "ids": "ids of machines and boots",
    "paths": "folders",
    "secrets": "passwords",
    "people": "names that were hidden on request",
    "dates": "days (the month is left)",
}
CAPTIONS = {
    "hdr": "Latency over percentile of all runs, both axes logarithmic",
    "worst": "The worst latencies over time",
    "losses": "Losses over time",
    "gaps": "Inter-packet gaps before and after the device",
    "rates": "Packets in each second before and after the device",
    "latency": "How often each latency occurred",
    "loss": "Loss over the packet rate",
    "causes": "Late packets by their causes",
    "shares": "What makes each percentile",
    "hops": "Percentiles by node",
    "hop-packets": "The worst packets by node",
}
SHOWN = (0.5, 0.99, 0.999, 1.0)
"""The percentiles of each run on the first page; 1 is the maximum."""


@cache
def _environment() -> Environment:
    environment = templates("tailtap.show.publish")
    environment.filters |= {
        "time": time_text,
        "count": count_text,
        "date": date_text,
        "share": share_text,
        "percentile": percentile_label,
        "size": size_text,
    }
    return environment


def size_text(size: int) -> str:
    """A size as people write it: ``1.2 MB``."""
    for limit, divisor, unit in ((1_000, 1, "B"), (1_000_000, 1e3, "kB"), (10**9, 1e6, "MB")):
        if size < limit:
            return f"{size / divisor:.3g}\u00a0{unit}"
    return f"{size / 1e9:.3g}\u00a0GB"


def write(
    site: Path, experiment: Experiment, record: SiteRecord, authors: Sequence[Author]
) -> None:
    """Write the index, a page for each figure and each run, and what a repository is read by."""
    environment = _environment()
    by_slug = {run.slug: run for run in experiment.runs}
    verdicts = _verdicts(experiment)
    asked = required_percentiles([experiment.folder]) if verdicts else ()
    groups = configurations(experiment, asked=asked)

    def causes(group: Configuration) -> CausesRecord | None:
        folder = group.worst.run.folder if group.worst else None
        return None if folder is None else read_if_there(folder / "causes.json", CausesRecord)

    found = cards([group for group in groups if group.drawn], groups, verdicts, causes)
    shared: dict[str, Any] = {
        "site": record,
        "words": WORDS,
        "captions": CAPTIONS,
        "version": tailtap.__version__,
    }

    def page(name: str, template: str, **values: object) -> None:
        up = "../" * name.count("/")
        text = environment.get_template(template).render(**shared, up=up, **values)
        write_text(site / name, text.encode("utf-8", "backslashreplace").decode(), below=site)

    loader = environment.loader
    assert loader is not None
    style, _, _ = loader.get_source(environment, "site.css")
    write_text(site / STYLE, packaged("page.css") + style, below=site)
    page(
        "index.html",
        "index.html.j2",
        cards_shown=found,
        question=question_of(experiment),
        asked=_asked(site),
        verdict=verdict_table(verdicts),
        claims=claims_table(record.claims),
        measured=by_slug,
        shown=SHOWN,
        size=size_text(_size(site)),
        cite=_cite(record),
    )
    for figure in record.figures:
        page(figure.page, "figure.html.j2", figure=figure)
    for run in record.runs:
        measured = by_slug[run.slug]
        page(run.page, "run.html.j2", **_run_page(site, run, measured, record))
    _documents(site, environment, record, authors, [card.finding for card in found])


def _size(site: Path) -> int:
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file())


def _asked(site: Path) -> list[tuple[str, str]]:
    """What was measured, in the words of the experiment file."""
    path = site / "experiment.yaml"
    if not path.is_file():
        return []
    data = load(path).data
    rows = [
        ("varied", f"{name}: {', '.join(map(_word, values))}")
        for name, values in _mapping(data.get("vary")).items()
        if isinstance(values, list)
    ]
    rows += [
        (part, ", ".join(f"{key}: {_word(value)}" for key, value in inner.items()))
        for part in ("dut", "traffic")
        if (inner := _mapping(data.get(part)))
    ]
    if "repeat" in data:
        rows.append(("repeats", _word(data["repeat"])))
    required = data.get("require")
    if required:
        texts = required if isinstance(required, list) else [required]
        rows.append(("required", "; ".join(map(_word, texts))))
    return rows


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _word(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_word(inner)}" for key, inner in value.items())
    return ", ".join(map(_word, value)) if isinstance(value, list) else str(value)


def _verdicts(experiment: Experiment) -> Sequence[VerdictRow]:
    try:
        return verdicts_of(experiment)
    except InputError:  # what is required of an experiment that names its files, say
        return ()


def _run_page(site: Path, run: SiteRun, measured: Run, record: SiteRecord) -> dict[str, object]:
    """What the page of a run shows."""
    folder = site / run.folder
    found = read_if_there(folder / "causes.json", CausesRecord)
    evaluation = measured.evaluation
    return {
        "run": run,
        "measured": measured,
        "latencies": evaluation and percentiles_table(evaluation.listed, evaluation.max),
        "causes": found and causes_section(found, run.slug),
        "files": [
            (path.relative_to(folder).as_posix(), path.stat().st_size)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "index.html"
        ],
        "machine": next((one.name for one in record.machines if run.slug in one.runs), ""),
    }


def description(record: SiteRecord) -> str:
    """What the site is, in a sentence or two."""
    done = sum(run.status == "done" for run in record.runs)
    return (
        f"{record.name}: {done} measured runs of the latency of packets through a device under "
        f"test, made by tailtap {record.software.version}. Exact distributions, worst packets, "
        "figures with their numbers, and what is needed to measure again."
    )


def _cite(record: SiteRecord) -> str:
    who = ", ".join(record.authors) or ("Anonymous" if record.anonymous else "The authors")
    year = f" ({record.published[:4]})" if record.published else ""
    return f"{who}{year}. {record.name}. Data set."


def _documents(
    site: Path,
    environment: Environment,
    record: SiteRecord,
    authors: Sequence[Author],
    findings: Sequence[Finding],
) -> None:
    """README.md, licences, the citation, the script that measures again."""

    def put(name: str, text: str, mode: int = 0o666) -> None:
        write_text(site / name, text, below=site, mode=mode)

    plain = environment.overlay(autoescape=False)
    # Markdown takes HTML as it is: a name of a stranger is text.
    readme = environment.get_template("README.md.j2").render(
        site=record, findings=findings, words=WORDS, cite=_cite(record)
    )
    put("README.md", readme)
    put(REPEAT, plain.get_template("repeat.sh.j2").render(site=record), 0o777)
    put("LICENSE", _licence(record, "text", "The pages, figures and scripts"))
    put("LICENSE-data", _licence(record, "data", "The data: all JSON, Parquet and CSV files"))
    put(
        "CITATION.cff",
        yaml.safe_dump(_citation(record, authors), sort_keys=False, allow_unicode=True),
    )
    put(".nojekyll", "")


def _licence(record: SiteRecord, part: str, what: str) -> str:
    name = record.licences.get(part)
    whose = ", ".join(record.authors) or "their authors"
    year = f" {record.published[:4]}" if record.published else ""
    if name is None:
        return f"{what} of this folder are{year} of {whose}.\nNo licence was chosen: ask them.\n"
    more = (
        "\nreport.html contains BokehJS, which is under BSD-3-Clause (https://bokeh.org).\n"
        if part == "text"
        else ""
    )
    return (
        f"SPDX-License-Identifier: {name}\nCopyright{year} {whose}\n\n{what} of this folder are "
        f"under the licence {name}.\nIts text: {SPDX}{name}.html\n{more}"
    )


def _citation(record: SiteRecord, authors: Sequence[Author]) -> dict[str, Any]:
    """https://github.com/citation-file-format/citation-file-format, 1.2.0."""
    people: list[dict[str, str]] = []
    for author in authors:
        given, family = author.names
        person = {"given-names": given, "family-names": family} if given else {"name": author.name}
        if author.orcid:
            person["orcid"] = author.address
        if author.affiliation and given:
            person["affiliation"] = author.affiliation
        people.append(person)
    found: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use these data, please cite them as below.",
        "type": "dataset",
        "title": record.name,
        "abstract": description(record),
        "authors": people or [{"name": "Anonymous" if record.anonymous else "The authors"}],
        "keywords": ["tail latency", "packet processing", "reproducibility"],
    }
    if record.published:
        found["date-released"] = record.published
    if record.licences:
        found["license"] = record.licences["data"]
    return found


def write_preview(site: Path, record: SiteRecord, content: Mapping[str, Any]) -> None:
    """The crate for people: its entities, a row each."""
    text = (
        _environment()
        .get_template("preview.html.j2")
        .render(site=record, graph=content["@graph"], up="", version=tailtap.__version__)
    )
    write_text(site / PREVIEW, text, below=site)

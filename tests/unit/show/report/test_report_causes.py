"""Why packets were late, in the report: what the page says, and what its timelines hold."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from told import write_told

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.stored import Causes, causes_of, shares
from tailtap.analysis.causes.taxonomy import CAUSES
from tailtap.analysis.runs.reader import finished_runs
from tailtap.show.report import write_report
from tailtap.show.report.causes import COLOURS
from tailtap.show.report.causes.timeline import MOST_SLICES, PACKETS, STALLS, WORST, timeline
from tailtap.show.sections.causes import cause_name

KNOBS = (
    Knob("isolated-cpus", ("task",), 1, "boot"),
    Knob("stat-interval", ("kernel-thread",), 0, "runtime"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_told(tmp_path_factory.mktemp("told"))
    explain_runs([run], late="150 us", knobs=KNOBS)
    return run.parent.parent


@pytest.fixture(scope="module")
def causes(folder: Path) -> Causes:
    return causes_of(finished_runs(folder)[0])


def test_every_cause_has_a_colour_of_its_own() -> None:
    assert {cause.name for cause in CAUSES} | {"serving", "idle", "unseen"} == set(COLOURS)
    for shade in ("light", "dark"):
        shades = [getattr(colour, shade) for colour in COLOURS.values()]
        assert len(set(shades)) == len(shades)


def test_the_page_tells_causes_knobs_and_figures(folder: Path, causes: Causes) -> None:
    report = write_report(folder, knobs=KNOBS)
    text = report.page.read_text()
    assert "Why packets were late" in text
    begin = text.index('<h2 id="warnings">')
    notice = text[begin : text.index("</section>", begin)]
    for place in (notice, text[text.index('<h2 id="causes">') :]):
        assert "<code>sudo tailtap host apply stat-interval</code>" in place
        assert "<code>tailtap host bootline isolated-cpus</code>" in place
    assert "Estimate without the time of kernel-thread (kworker: vmstat_update), task (" in text
    assert "% of the late packets" not in text
    for row in causes.record.causes:
        assert f">{cause_name(row)}<" in text
    keys = text[text.index('class="keys legend-causes"') :].partition("</p>")[0]
    assert all(f"</span>{part}<" in keys for part in shares(causes).by_cause)
    assert text.count('data-kind="timeline"') == 1
    names = {path.name for path in report.figures}
    assert {f"{name}.{kind}" for name in ("causes", "shares") for kind in ("pdf", "svg")} <= names
    assert report.size < 1_500_000


def test_a_remedy_is_said_once_with_the_runs_that_it_is_for(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("report"))
    for number, lines in ((2, ["sudo tailtap host apply other"]), (3, None)):
        again = shutil.copytree(copy / "runs/001-told", copy / f"runs/00{number}-told")
        run = json.loads((again / "run.json").read_text())
        (again / "run.json").write_text(
            json.dumps(run | {"number": number, "slug": again.name, "repeat": number})
        )
        if lines:
            told = json.loads((again / "causes.json").read_text())
            told["remove"]["lines"].extend(lines)
            (again / "causes.json").write_text(json.dumps(told))
    text = write_report(copy, figures=False, knobs=KNOBS).page.read_text()
    begin = text.index('<h2 id="warnings">')
    notice = text[begin : text.index("</section>", begin)]
    rows = re.findall("<code>([^<]+)</code> <span class=.runs.>([^<]+)<", notice)
    assert rows == [
        ("sudo tailtap host apply stat-interval", "every run with a result"),
        ("tailtap host bootline isolated-cpus", "every run with a result"),
        ("sudo tailtap host apply other", "bare-metal #2"),
    ]


def test_causes_are_found_out_for_a_report_and_not_stored(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("causes*", "report"))
    text = write_report(copy, figures=False, knobs=KNOBS).page.read_text()
    assert "packets took longer than p99.9" in text and "bootline isolated-cpus</code>" in text
    assert not list(copy.glob("runs/*/causes*"))


def test_a_trace_that_cannot_be_used_says_why_and_the_rest_is_reported(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("report"))
    (copy / "runs/001-told/trace.json").unlink()
    text = write_report(copy, figures=False).page.read_text()
    assert "the trace was cut off before its end" in text
    assert 'data-kind="timeline"' not in text and "HDR diagram" in text


def test_runs_without_a_trace_have_no_such_section(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("trace*", "causes*", "report"))
    text = write_report(copy, figures=False).page.read_text()
    assert "Why packets were late" not in text


def test_a_timeline_holds_the_stay_the_stall_and_what_the_core_did(causes: Causes) -> None:
    found = timeline(causes)
    json.dumps(found, allow_nan=False)
    texts, windows = found["texts"], found["windows"]
    assert found["lanes"][:2] == [PACKETS, STALLS]
    assert "CPU 1 task" in found["lanes"]
    assert len(found["packets"]) == WORST
    first = causes.run.stored.inputs.ingress.first_ns
    for told, packet in zip(found["packets"], causes.record.worst, strict=False):
        window = windows[told["window"]]
        assert first + window["start"] + told["start"] == packet.ingress_ns
        assert first + window["start"] + told["end"] == packet.egress_ns
        low, high = told["view"]
        assert 0 <= low < told["start"] and told["end"] < high <= window["end"] - window["start"]
        # The hog that held it up is drawn over most of its stay.
        columns = (window["slices"][key] for key in ("start", "end", "name"))
        inside = [
            min(end, told["end"]) - max(start, told["start"])
            for start, end, name in zip(*columns, strict=True)
            if texts[name] == "hog"
        ]
        assert 2 * max(inside) > told["end"] - told["start"]
        late = list(zip(window["late"]["start"], window["late"]["end"], strict=True))
        assert (told["start"], told["end"]) in late
        assert window["stalls"]["start"]
    assert sum(len(window["slices"]["start"]) for window in windows) <= MOST_SLICES

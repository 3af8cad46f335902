"""Why packets were late, on the page: what is said, what its timelines hold, what Bokeh reads."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bokeh.document import Document
from experiment_folders import write_experiment
from guests import HOST_HOG, SEAT, write_guest_run
from runs import write_line_run
from traced import HOG, traffic, write_two_causes

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import Causes, causes_of
from tailtap.analysis.runs.reader import finished_runs
from tailtap.records.interrupts import FILE
from tailtap.records.knobs import CAUSES
from tailtap.show.report import gather, write_report
from tailtap.show.report.causes import COLOURS
from tailtap.show.report.causes.figures import timeline_plot
from tailtap.show.report.causes.timeline import MOST_SLICES, PACKETS, STALLS, WORST, timeline
from tailtap.show.report.readings import HIGH, STRIP, strip
from tailtap.show.report.screen import Screen
from tests.simulation.device import CORE
from tests.simulation.tracer import Told
from tests.simulation.truth import rows_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_two_causes(tmp_path_factory.mktemp("told"))
    explain_runs([run], late="150 us")
    return run.parent.parent


@pytest.fixture(scope="module")
def causes(folder: Path) -> Causes:
    return causes_of(finished_runs(folder)[0])


def test_every_cause_has_a_colour_of_its_own() -> None:
    assert {cause.name for cause in CAUSES} | {"serving", "idle", "unseen"} == set(COLOURS)
    for shade in ("light", "dark"):
        shades = [getattr(colour, shade) for colour in COLOURS.values()]
        assert len(set(shades)) == len(shades)


def test_a_remedy_is_said_once_with_the_runs_that_it_is_for(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    for number, lines in ((2, ["sudo tailtap host apply other"]), (3, [])):
        again = shutil.copytree(copy / "runs/001-told", copy / f"runs/00{number}-told")
        for file, changes in (
            ("run.json", {"number": number, "slug": again.name, "repeat": number}),
            ("causes.json", {}),
        ):
            content = json.loads((again / file).read_text()) | changes
            if "remove" in content:
                content["remove"]["lines"].extend(lines)
            (again / file).write_text(json.dumps(content))
    report = write_report(copy)
    text = report.page.read_text()
    begin = text.index('<h2 id="warnings">')
    notice = text[begin : text.index("</section>", begin)]
    rows = re.findall("<code>([^<]+)</code> <span class=.runs.>([^<]+)<", notice)
    assert rows == [
        ("sudo tailtap host apply stat-interval", "every run with a result"),
        ("tailtap host bootline isolated-cpus", "every run with a result"),
        ("sudo tailtap host apply other", "bare-metal #2"),
    ]
    assert "Estimate without the time of kernel-thread (kworker: vmstat_update), task (" in text
    names = {path.name for path in report.figures}
    assert {f"{name}.{kind}" for name in ("causes", "shares") for kind in ("pdf", "svg")} <= names
    assert report.size < 2_500_000


@pytest.mark.parametrize(
    ("without", "said", "not_said"),
    [
        # They are found out for a report, and not stored.
        ("causes*", "bootline isolated-cpus</code>", "cannot be read"),
        ("trace.json", "the trace was cut off before its end", 'data-kind="timeline"'),
        ("trace*", "HDR diagram", "was cut off"),
    ],
)
def test_a_report_of_less_than_a_trace(
    folder: Path, tmp_path: Path, without: str, said: str, not_said: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(without, "report"))
    (copy / "runs/001-told" / FILE).write_text("nothing")
    text = write_report(copy, figures=False).page.read_text()
    assert said in text and not_said not in text
    assert f"{copy / 'runs/001-told' / FILE}" in text  # which cannot be read
    assert without != "causes*" or not list(copy.glob("runs/*/causes*"))


def test_a_timeline_holds_the_stay_the_stall_and_what_the_core_did(causes: Causes) -> None:
    found = timeline(causes)
    json.dumps(found, allow_nan=False)
    texts, windows = found["texts"], found["windows"]
    assert found["lanes"][:2] == [PACKETS, STALLS]
    assert "CPU 1 task" in found["lanes"]
    assert len(found["packets"]) == WORST
    first = causes.run.stored.inputs.ingress.first_ns
    for shown, packet in zip(found["packets"], causes.record.worst, strict=False):
        window = windows[shown["window"]]
        assert first + window["start"] + shown["start"] == packet.ingress_ns
        assert first + window["start"] + shown["end"] == packet.egress_ns
        low, high = shown["view"]
        assert 0 <= low < shown["start"] and shown["end"] < high <= window["end"] - window["start"]
        # The hog that held it up is drawn over most of its stay.
        columns = (window["slices"][key] for key in ("start", "end", "name"))
        inside = [
            min(end, shown["end"]) - max(start, shown["start"])
            for start, end, name in zip(*columns, strict=True)
            if texts[name] == "hog"
        ]
        assert 2 * max(inside) > shown["end"] - shown["start"]
        late = list(zip(window["late"]["start"], window["late"]["end"], strict=True))
        assert (shown["start"], shown["end"]) in late
        assert window["stalls"]["start"]
    assert sum(len(window["slices"]["start"]) for window in windows) <= MOST_SLICES


@pytest.fixture(scope="module")
def simulated() -> Told:
    kinds = (HOG, 6, (1_500_000, 1_600_000)), (HOST_HOG, 6, (2_000_000, 2_100_000))
    return traffic(3, 1.0, *kinds)


def guest_lanes(lanes: Sequence[str]) -> list[str]:
    return [lane for lane in lanes if lane.startswith("guest ")]


def test_what_a_guest_did_stands_where_its_host_saw_it(tmp_path: Path, simulated: Told) -> None:
    """Within what the packets' stamps say of its clock, in lanes below those of its host."""
    run = write_guest_run(tmp_path / "001-guest", simulated)
    explain_runs([run], late="100 us")
    causes = causes_of(finished_runs(run)[0])
    assert causes.guest is not None
    whole = [(causes.trace.record.started_ns, causes.trace.record.ended_ns)]
    hogs = [one for one in causes.slices(whole) if one.name == "hog"]
    begun, _ = rows_of(simulated.made.core)[HOG.row]
    starts = np.array(sorted(one.start for one in hogs))
    assert all(one.guest and one.cpu == SEAT for one in hogs)
    assert starts.size == begun.size
    off = causes.guest.clock.off_ns(starts)
    assert (np.abs(starts - begun) <= off + 1).all()
    found = timeline(causes)
    assert found["lanes"][2:] == [f"CPU {CORE} task", f"guest CPU {SEAT} task"]
    drawn = {lane for window in found["windows"] for lane in window["slices"]["lane"]}
    assert drawn == {2, 3}
    for packet in found["packets"]:
        assert packet["clock"].startswith("Lanes of the guest are drawn by its own clock")
        assert "±" in packet["clock"]
    # Where the clock is not known there are only lanes of the host.
    (run / "guest-egress.stamps").unlink()
    explain_runs([run], late="100 us")
    causes = causes_of(finished_runs(run)[0])
    found = timeline(causes)
    assert guest_lanes(found["lanes"]) == []
    assert {packet["clock"] for packet in found["packets"]} == {""}
    slices = causes.slices(whole)
    assert slices and not any(one.guest for one in slices)


def test_bokeh_reads_all_models_and_what_is_drawn(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of repeats of four configurations with losses, a line of nodes, and a traced run."""
    ten = write_experiment(tmp_path / "experiment", packets=2_000)
    write_line_run(tmp_path / "line/runs")
    screen, names = Screen(), set()
    for one in (ten, tmp_path / "line", folder):
        material = gather(one)
        for figure in material.figures:
            screen.add(figure)
            names.add(figure.name)
        for story in material.stories:
            plot = timeline_plot(screen, ["late packets", "CPU 1 task"], story.member)
            screen.put("timeline", story.member.label, story.place, plot)
    assert names == {"hdr", "worst", "losses", "gaps", "rates", "latency", "loss", "causes",
                     "shares", "hops", "hop-packets"}  # fmt: skip
    config = {"type": "object", "name": "DocumentConfig", "id": "config"}
    document: Any = Document.from_json({**screen.document, "config": config})  # type: ignore[arg-type]
    assert not caplog.records  # such as that a model has no such attribute
    assert len(document.roots) == len([one for one in screen.shown if one.root])
    document.validate()
    curve = gather(ten).figures[0].panels[0].marks[1]
    [line, *_] = [
        renderer for renderer in document.roots[0].renderers if renderer.tags[0]["role"] == "hit"
    ]
    assert np.array_equal(line.data_source.data["x"], curve.x)
    assert np.array_equal(line.data_source.data["y"], curve.y)
    shared = [root.x_range for root, one in zip(document.roots, screen.shown, strict=False)
              if one.kind == "worst"][:4]  # fmt: skip
    assert len({id(one) for one in shared}) < 4


@pytest.mark.parametrize("number", [1, 7, STRIP, STRIP + 1, 5000])
def test_strips_show_the_highest_of_each_column(number: int) -> None:
    random = np.random.default_rng(number)
    values, highest = random.integers(1, 1000, number), int(random.integers(number))
    values[highest] = 5000
    path = strip(values)
    steps = re.findall(r"V([\d.]+)H([\d.]+)", path)
    assert path.startswith(f"M0 {HIGH}") and path.endswith(f"V{HIGH}Z")
    assert len(steps) == min(number, STRIP)
    assert float(steps[-1][1]) == STRIP
    top = min(range(len(steps)), key=lambda at: float(steps[at][0]))
    assert float(steps[top][0]) == 1
    right = float(steps[top][1])
    left = float(steps[top - 1][1]) if top else 0
    assert left - 0.1 <= highest * STRIP / number < right
    assert strip(np.zeros(number - 1, np.int64)) == ""  # nothing that rose has none

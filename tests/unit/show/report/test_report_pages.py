"""From folders to pages: what is read and refused, what leads a page, and why packets were late."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_folders import traffic, write_evaluation, write_experiment, write_run
from guests import HOST_HOG, SEAT, write_guest_run
from traced import HOG, write_two_causes
from traced import traffic as traced

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import causes_of
from tailtap.analysis.runs.groups import configurations, finding, floor_of, listed
from tailtap.analysis.runs.reader import finished_runs, load_experiment
from tailtap.analysis.runs.text import time_text
from tailtap.records.interrupts import FILE
from tailtap.records.knobs import CAUSES
from tailtap.show.report import write_report
from tailtap.show.report.causes import COLOURS
from tailtap.show.report.causes.timeline import timeline
from tailtap.show.report.readings import HIGH, STRIP, strip
from tests.simulation.tracer import Told
from tests.simulation.truth import rows_of

EVIL = "<img src=x onerror=alert(1)>$\\frac{{{</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten finished runs, with 5000 worst packets each, and a failed one."""
    return write_experiment(tmp_path_factory.mktemp("experiment"))


def payload(page: str) -> dict[str, Any]:
    packed = re.search(r'id="payload">([^<]*)<', page)
    assert packed
    value: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return value


def test_the_worst_repeat_is_chosen_by_the_highest_percentile_all_support(folder: Path) -> None:
    for group in configurations(load_experiment(folder)):
        assert group.common_percentile == 0.999  # 20 000 packets: ten above p99.95
        rows = [listed(member.evaluation, 0.999) for member in group.members]
        values = [row.value for row in rows if row]
        assert group.worst is group.members[values.index(max(values))]


def test_an_invalid_run_leads_nothing_and_says_so_wherever_it_stands(tmp_path: Path) -> None:
    """Three repeats, of which the second and slowest is invalid, and one invalid run alone."""
    slow = {"dut.platform": "bare-metal", "traffic.rate": "10 kpkt/s"}
    for repeat in (1, 2, 3):
        # It has fewer packets, too: what it does not support does not matter to the others.
        write_run(tmp_path, repeat, slow, repeat=repeat, packets=4_000 if repeat == 2 else 20_000,
                  achieved=7_000.0 if repeat == 2 else None)  # fmt: skip
    write_run(tmp_path, 4, {"dut.platform": "wire", "traffic.rate": "10 kpkt/s"}, achieved=5_000.0)
    repeats, alone = groups = configurations(load_experiment(tmp_path))
    assert repeats.common_percentile == 0.999
    rows = [listed(member.evaluation, 0.999) for member in repeats.members]
    first, second, third = (row.value for row in rows if row)
    assert second > max(first, third)
    assert repeats.worst is repeats.members[0 if first > third else 2]
    found = finding(repeats, groups)
    assert found.value == time_text(max(first, third))
    assert "in the worst of 2 valid repeats" in found.sentence
    assert "1 of 3 repeats is invalid and left out: the generator did" in found.sentence
    assert time_text(repeats.members[1].evaluation.max or 0) not in found.sentence
    # Where nothing is valid there is no number, and the wire is no floor.
    assert alone.worst is None and floor_of(repeats, groups) is None
    found = finding(alone, groups)
    assert (found.value, found.name) == ("invalid", "no result")
    assert not re.search(r"\d", found.sentence)
    # A figure with room for one repeat prefers valid ones.
    one, bad, three = repeats.members
    chosen = [repeats.example(members) for members in ([one, bad, three], [bad, three], [bad], [])]
    assert chosen == [repeats.worst, three, bad, None]
    assert alone.example(alone.members) is alone.members[0]


def test_names_are_text_never_markup(tmp_path: Path) -> None:
    warning = [{"code": EVIL, "message": EVIL}]
    write_run(tmp_path, 1, {"dut.platform": "wire", "x": EVIL}, name=EVIL, warnings=warning)
    write_run(tmp_path, 2, {"x": EVIL}, status="failed", error=EVIL, name=EVIL)
    page = write_report(tmp_path, figures=True).page.read_text("utf-8")
    assert "<img" not in page
    assert page.count("</script>") == 3
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 6
    assert payload(page)["runs"][0]["label"] == f"wire · {EVIL}"


def test_few_packets_and_a_single_run_have_a_page_too(folder: Path, tmp_path: Path) -> None:
    write_evaluation(tmp_path / "tiny", traffic("wire", 10_000, 100, 1))
    assert write_report(tmp_path / "tiny", figures=True).runs == 1
    [run, *_] = sorted(folder.glob("runs/*"))
    assert write_report(run, tmp_path / "one", figures=False).runs == 1


def test_reports_are_the_same_for_the_same_data(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    write_run(folder, 1, {"dut.platform": "wire"}, packets=2_000)
    for name in ("a", "b"):
        write_report(folder, tmp_path / name, figures=True)
    figures = sorted(path.name for path in (tmp_path / "a" / "figures").iterdir())
    assert figures == sorted(
        f"{name}.{kind}"
        for name in ("hdr", "worst", "gaps", "latency", "rates")
        for kind in ("pdf", "png", "svg")
    )
    for name in figures:
        first, second = ((tmp_path / side / "figures" / name).read_bytes() for side in "ab")
        assert first == second, name
    pdf = (tmp_path / "a" / "figures" / "hdr.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Type3" not in pdf


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_two_causes(tmp_path_factory.mktemp("told"))
    explain_runs([run], late="150 us")
    return run.parent.parent


def test_every_cause_has_a_colour_of_its_own() -> None:
    assert {cause.name for cause in CAUSES} | {"serving", "idle", "unseen"} == set(COLOURS)
    for shade in ("light", "dark"):
        shades = [getattr(colour, shade) for colour in COLOURS.values()]
        assert len(set(shades)) == len(shades)


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
    explained: Path, tmp_path: Path, without: str, said: str, not_said: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(explained, copy, ignore=shutil.ignore_patterns(without, "report"))
    (copy / "runs/001-told" / FILE).write_text("nothing")
    text = write_report(copy, figures=False).page.read_text()
    assert said in text and not_said not in text
    assert f"{copy / 'runs/001-told' / FILE}" in text  # which cannot be read
    assert without != "causes*" or not list(copy.glob("runs/*/causes*"))


@pytest.fixture(scope="module")
def simulated() -> Told:
    kinds = (HOG, 6, (1_500_000, 1_600_000)), (HOST_HOG, 6, (2_000_000, 2_100_000))
    return traced(3, 1.0, *kinds)


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
    assert f"guest CPU {SEAT} task" in timeline(causes)["lanes"]
    # Where the clock is not known there are only lanes of the host.
    (run / "guest-egress.stamps").unlink()
    explain_runs([run], late="100 us")
    slices = causes_of(finished_runs(run)[0]).slices(whole)
    assert slices and not any(one.guest for one in slices)


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

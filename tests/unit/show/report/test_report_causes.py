"""Why packets were late, on the page: what is said, what its timelines hold, what Bokeh reads."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from guests import HOST_HOG, SEAT, write_guest_run
from traced import HOG, traffic, write_two_causes

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import causes_of
from tailtap.analysis.runs.reader import finished_runs
from tailtap.records.interrupts import FILE
from tailtap.records.knobs import CAUSES
from tailtap.show.report import write_report
from tailtap.show.report.causes import COLOURS
from tailtap.show.report.causes.timeline import timeline
from tailtap.show.report.readings import HIGH, STRIP, strip
from tests.simulation.tracer import Told
from tests.simulation.truth import rows_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    folder: Path, tmp_path: Path, without: str, said: str, not_said: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(without, "report"))
    (copy / "runs/001-told" / FILE).write_text("nothing")
    text = write_report(copy, figures=False).page.read_text()
    assert said in text and not_said not in text
    assert f"{copy / 'runs/001-told' / FILE}" in text  # which cannot be read
    assert without != "causes*" or not list(copy.glob("runs/*/causes*"))


@pytest.fixture(scope="module")
def simulated() -> Told:
    kinds = (HOG, 6, (1_500_000, 1_600_000)), (HOST_HOG, 6, (2_000_000, 2_100_000))
    return traffic(3, 1.0, *kinds)


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

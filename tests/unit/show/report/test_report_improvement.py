"""What `tailtap improve` tried, on the page."""

from __future__ import annotations

from pathlib import Path

from improvements import helped, improvement, trial
from runs import write_experiment

from tailtap.base.files import write_json
from tailtap.records.printed import Left
from tailtap.records.record import as_json
from tailtap.show.report import write_report
from tailtap.show.report.improvement import NAME, improvement_of


def test_the_page_has_a_row_for_each_trial(tmp_path: Path) -> None:
    write_experiment(tmp_path, (2_000,))
    assert improvement_of(tmp_path) is None
    found = improvement(
        helped("groups"),
        trial("damon", before=None, after=None, ratio=None),
        left=[Left(name="isolated-cpus", why="it takes a reboot")],
    )
    write_json(tmp_path / NAME, as_json(found), below=tmp_path)
    told = improvement_of(tmp_path)
    assert told is not None
    assert told.words == (
        "p99.9 < 1 ms: violated before (2.1 ms), holds in the end (300 µs); ended: holds; "
        "kept: groups"
    )
    first, second = told.rows
    assert first == ("groups", (
        "task (hog)", "2 %", "0.01 %", "2.1 ms (1.9 ms to 2.3 ms)", "300 µs", "x 0.33 (0.2 to 0.5)",
        "9", "helps, kept",
    ))  # fmt: skip
    assert second[1][3:6] == ("–", "–", "–")
    write_report(tmp_path, figures=False)
    page = (tmp_path / "report/index.html").read_text()
    assert "What was tried" in page and "x 0.33 (0.2 to 0.5)" in page
    assert "<b>isolated-cpus</b> it takes a reboot" in page

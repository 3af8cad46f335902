"""What `tailtap improve` tried, on the page."""

from __future__ import annotations

from pathlib import Path

from improvements import helped, improvement, trial
from pages import texts, visible
from runs import write_experiment

from tailtap.base.files import write_json
from tailtap.records.printed import Left
from tailtap.records.record import as_json
from tailtap.show.report import write_report
from tailtap.show.sections.answers import improvement_section


def test_the_page_has_a_row_for_each_trial(tmp_path: Path) -> None:
    write_experiment(tmp_path, (2_000,))
    found = improvement(
        helped("groups"),
        trial("damon", before=None, after=None, ratio=None),
        left=[Left(name="isolated-cpus", why="it takes a reboot")],
    )
    section = improvement_section(found)
    [sentence] = section.sentences
    assert sentence == (
        "p99.9 < 1 ms: violated before (2.1 ms), holds in the end (300 us); ended: holds; "
        "kept: groups"
    )
    first, second = texts(section.tables[0])
    assert first == [
        "groups", "task (hog)", "2 %", "0.01 %", "2.1 ms (1.9 ms to 2.3 ms)", "300 µs",
        "x 0.33 (0.2 to 0.5)", "9", "helps, kept",
    ]  # fmt: skip
    assert second[4:7] == ["–", "–", "–"]
    write_json(tmp_path / "improve.json", as_json(found), below=tmp_path)
    page = visible(write_report(tmp_path, figures=False).page.read_text())
    assert "What was tried" in page and "x 0.33 (0.2 to 0.5)" in page
    assert "not tried: isolated-cpus: it takes a reboot" in page

"""What the page says of requirements."""

from __future__ import annotations

from pathlib import Path

from experiment_folders import write_run

from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report.page import verdict_of
from tailtap.show.sections import TEXT


def test_times_get_the_micro_sign_and_words_stay_as_they_are(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "bare-metal"}, packets=2_000)
    why = "the name tt-123456-dut is in use by another user of us all since 3 usages, 12 us ago"
    write_run(tmp_path, 2, {"dut.platform": "container"}, status="failed", error=why)
    (tmp_path / "experiment.yaml").write_text("name: a\nrequire: ['median < 1 s']\n")
    table = verdict_of(load_experiment(tmp_path))
    made, failed = ([cell.page(TEXT) for cell in row.cells] for row in table.rows)
    assert [part.title for part in table.parts] == ["bare-metal", "container"]
    assert made[3].endswith(" µs")
    assert failed[4] == f"no result: {why.replace('12 us', '12 µs')}"

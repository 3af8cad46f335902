"""What the report says of what the device changed."""

from __future__ import annotations

from pathlib import Path

from captures import frame, pcap
from experiment_folders import write_run
from pages import texts

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report import write_report
from tailtap.show.report.tables import changed

PACKETS = 50


def test_what_the_device_changed_is_a_table(tmp_path: Path) -> None:
    """It tags all packets, and every fifth one differently."""
    times = [10**12 + 10_000 * n for n in range(PACKETS)]
    before = [(time, frame(n)) for n, time in enumerate(times)]
    after = [(time + 900, frame(n, tags=[8 if n % 5 == 0 else 7])) for n, time in enumerate(times)]
    (tmp_path / "in").write_bytes(pcap(before))
    (tmp_path / "out").write_bytes(pcap(after))
    evaluate(tmp_path / "in", tmp_path / "out").write(tmp_path / "pair")
    [group] = configurations(load_experiment(tmp_path / "pair"))
    [[_, *cells]] = texts(changed([group]))
    assert cells == ["headers", "–", "VLAN 7", "50 of 50", "2"]
    page = write_report(tmp_path / "pair", figures=False).page.read_text()
    assert "What the device changed" in page and ">VLAN 7</td>" in page


def test_runs_of_stamps_have_no_such_table(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "bare-metal"}, packets=100)
    assert changed(configurations(load_experiment(tmp_path))).rows == []
    page = write_report(tmp_path, figures=False).page.read_text()
    assert "What the device changed" not in page

"""Run folders: nothing half written, nothing lost; which flow and second count."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from experiment_folders import write_run
from made_records import counts, evaluation, made, run_row

from tailtap.analysis.evaluation.transactions import Transactions
from tailtap.analysis.runs.flows import jain, printed, together
from tailtap.analysis.runs.folder import RunFolder, are_requests, main_kind
from tailtap.analysis.runs.reader import load_experiment
from tailtap.base.errors import InputError
from tailtap.base.files import DRAFT
from tailtap.cli.results import print_flows
from tailtap.records.evaluation import Latency, Percentile
from tailtap.records.experiment import LatencyOfFlow, LossOfFlow, RunRow
from tailtap.records.run import EvaluationSettings


def finished(folder: RunFolder) -> None:
    """What a run leaves, with something in every file."""
    folder.start_anew()
    folder.evaluation.mkdir()
    stamps = (folder.ingress, folder.egress)
    for path in (*stamps, folder.generator, folder.evaluation / "evaluation.json"):
        path.write_text("content")
    (folder.evaluation / "worst.parquet").write_text("content")
    folder.write(made())


def test_stamps_can_be_taken_away(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "001-a")
    finished(folder)
    for path in folder.stamps:
        path.unlink()
    assert folder.whole
    folder.write(made(status="failed"))
    assert not folder.whole


def test_all_of_a_run_is_on_the_disk_before_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised: list[Path] = []
    really = os.fsync

    def fsync(opened: int) -> None:
        really(opened)
        synchronised.append(Path(f"/proc/self/fd/{opened}").readlink())

    monkeypatch.setattr("os.fsync", fsync)
    folder = RunFolder(tmp_path / "experiment" / "runs" / "001-a")
    finished(folder)
    # The name of each new folder first.
    assert synchronised[:3] == [tmp_path, tmp_path / "experiment", folder.path.parent]
    record = len(synchronised) - 2
    before = synchronised[3:record]
    files = {path for path in folder.path.rglob("*") if path != folder.record}
    assert {*files, folder.path, folder.path.parent} == set(before)
    assert before.index(folder.evaluation) > before.index(folder.evaluation / "worst.parquet")
    assert synchronised[record].parent == folder.path
    assert synchronised[record].name.startswith(DRAFT)
    assert synchronised[-1] == folder.path


def row(
    number: int, variables: dict[str, Any], matched: int = 100, p99: int = 1000, repeat: int = 1
) -> RunRow:
    """A run of ``tailtap run --json`` that was sent 100 packets, and ten that were trimmed."""
    percentiles = [
        Percentile(0.5, 10, None, None, 50, supported=True),
        Percentile(0.99, p99, None, None, 10, supported=True),
        Percentile(0.999, 9999, None, None, 1, supported=number != 2),
    ]
    found = counts(ingress=110, matched=matched, lost=100 - matched, trimmed_ingress=10)
    latency = Latency(min=1, mean=10, max=9999, percentiles=percentiles)
    return run_row(
        f"{number:03}",
        variables=variables,
        repeat=repeat,
        evaluation=evaluation(found, latency),
    )


@pytest.mark.parametrize(
    ("values", "index"),
    [([3, 3, 3], 1), ([1, 0, 0, 0], 0.25), ([0, 0], 1), ([1, 2, 3], 36 / 42)],
)
def test_the_index(values: list[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)


def test_the_worst_flows_are_found() -> None:
    rows = [
        row(1, {"dut.line": 1, "flow": "a"}, matched=50, p99=1000),
        row(2, {"dut.line": 1, "flow": "b"}, p99=3000),
        row(3, {"dut.line": 2, "flow": "a"}),
        row(4, {"dut.line": 2, "flow": "b"}),
    ]
    first, second = together(map(printed, rows))
    assert (first.run, first.flows) == ("001", ["a", "b"])
    assert first.lossiest == LossOfFlow(flow="a", lost=0.5)
    assert first.delivery_fairness == pytest.approx(1.5**2 / (2 * 1.25))
    # Run 2 does not support p99.9.
    assert (first.percentile, first.slowest) == (0.99, LatencyOfFlow(flow="b", latency_ns=3000))
    assert first.latency_fairness == pytest.approx(16 / 20)
    assert second.percentile == 0.999
    assert (second.delivery_fairness, second.latency_fairness) == (1, 1)


def test_only_whole_measurements_of_several_flows_count() -> None:
    failed = row(2, {"direction": "reverse"})
    failed.evaluation = None
    alone = row(3, {"dut.line": 1})
    other = row(4, {"direction": "forward"}, repeat=2)
    rows = [row(1, {"direction": "forward"}), failed, alone, other]
    assert list(together(map(printed, rows))) == []


def test_the_table_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The load is that of all flows: when one generator was late, all of them are invalid."""
    rows = [row(1, {"flow": "a"}, matched=90), row(2, {"flow": "b"}, p99=2500)]
    print_flows(list(together(map(printed, rows))))
    said = capsys.readouterr().out
    assert "a: 10 %" in said and "b: p99 2.5 us" in said and "invalid" not in said
    rows[1].valid = False
    print_flows(list(together(map(printed, rows))))
    assert "001 (invalid)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        (2_500, [1000, 1000]),  # half a second more
        (2_000, [1000, 1000]),  # the last packet comes one gap before the second ends
        (600, [1000]),  # no whole second: at the rate at which they came
    ],
)
def test_the_second_in_which_packets_end_is_no_rate(
    packets: int, expected: list[int], tmp_path: Path
) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=packets, rate=1_000)
    (run,) = load_experiment(tmp_path).finished
    assert run.evaluation is not None
    for side in ("ingress", "egress"):
        start, counted = run.evaluation.whole_seconds(side)
        assert counted.tolist() == pytest.approx(expected, abs=3), side
        assert start.size == len(expected)


def found(**requests: int | None) -> Transactions:
    """Transactions with so many requests of each kind; None for a kind without any answer."""
    kinds = [
        SimpleNamespace(
            name=kind.replace("_", "-"),
            counts=SimpleNamespace(requests=1000 if number is None else number),
            evaluation=None if number is None else kind,
        )
        for kind, number in requests.items()
    ]
    return Transactions([], "first", 1, cast("Any", kinds), [])


def test_the_kind_with_most_requests_is_the_result() -> None:
    assert cast("Any", main_kind(found(tcp_handshake=8, http=500, dns=None), None)) == "http"
    assert cast("Any", main_kind(found(http=8, dns=8), None)) == "http"


def test_a_kind_that_is_asked_for_must_be_there() -> None:
    assert cast("Any", main_kind(found(dns=8, http=500), "dns")) == "dns"
    for wanted in ("dns", "ntp"):
        with pytest.raises(InputError, match=f"of kind {wanted} was answered, and there are http"):
            main_kind(found(http=500, dns=None), wanted)


def test_runs_say_whether_they_are_of_requests() -> None:
    assert are_requests(EvaluationSettings(match="transactions"))
    assert not are_requests(EvaluationSettings())
    assert not are_requests(None)

"""The published result files: our export has the bytes that the papers' own scripts wrote."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from experiment_folders import write_experiment
from published import POST, PRE, PUBLISHED, content, needs_captures, needs_published, reference

from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Evaluation
from tailtap.results.exporters import export
from tailtap.results.exporters.papers import divide, files

KINDS = {
    "percentiles", "hist", "worst", "jitterpre", "jitterpost", "packetratepre", "packetratepost",
    "stats", "transferrate",
}  # fmt: skip


@needs_captures
@pytest.mark.parametrize("trim_ms", [0, 1000])
def test_a_real_run_gives_the_reference_files_byte_for_byte(tmp_path: Path, trim_ms: int) -> None:
    found = evaluation.evaluate(PRE, POST, key="signature", trim_ns=trim_ms * 1_000_000)
    found.write(tmp_path / "evaluation")
    written = export(tmp_path / "evaluation", "papers", tmp_path / "out").written
    assert {Path(path).name.split(".")[-2] for path in written} == KINDS
    for path in map(Path, written):
        assert path.name.startswith(f"{PRE.name}.")
        assert f".trim_ms{trim_ms}." in path.name
        assert path.read_bytes() == reference(path.name.split(".")[-2], trim_ms), path.name


def _names(folder: Path) -> set[str]:
    return {path.name.removesuffix(".zst") for path in folder.iterdir()}


@needs_published
def test_names_are_those_of_the_published_files(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path / "experiment", packets=6_000)
    export(experiment, "papers", tmp_path / "out")
    ours = {n for n in _names(tmp_path / "out/wire") if "-rate10000-repeat0." in n}
    folder = PUBLISHED / "containerized-low-latency/measurements/container/rt/optimized"
    assert ours == {n for n in _names(folder) if "-rate10000-" in n}


@needs_published
def test_quotients_have_the_digits_of_every_published_file() -> None:
    compared = 0
    for path in PUBLISHED.rglob("*.transferrate.csv.zst"):
        pre, post, rate, *means = content(path).decode().splitlines()[1].split(",")
        assert divide(Decimal(post), Decimal(pre)) == rate, path
        for side, mean in zip(("pre", "post"), means, strict=True):
            name = path.name.replace("transferrate", f"packetrate{side}")
            seconds = content(path.with_name(name)).decode().splitlines()[1:]
            packets = [int(line.split(",")[1]) for line in seconds]
            assert divide(Decimal(sum(packets)), Decimal(len(packets))) == mean, path
        rows = content(path.with_name(path.name.replace("transferrate", "percentiles")))
        for row in rows.decode().splitlines()[1:]:
            p, _, quotient = row.split(",")
            assert divide(Decimal(1), 1 - Decimal(p)) == quotient, (path, p)
        compared += 1
    assert compared == 31


def test_runs_lie_in_a_folder_for_each_configuration(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path / "experiment", packets=3_000)
    done = export(experiment, "papers", tmp_path / "out")
    assert done.runs == 10 and len(done.written) == len(set(done.written)) == 90
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"wire", "bare-metal"}
    names = {path.name for path in (tmp_path / "out/bare-metal").iterdir()}
    assert "latencies-pre-rate50000-repeat2.pcap.zst.trim_ms0.stats.csv" in names
    # Fewer packets than the list has room for: it is a whole list of the worst 5000.
    assert "latencies-pre-rate50000-repeat2.pcap.zst.trim_ms0.num_worst5000.worst.csv" in names


def test_lost_packets_and_numbered_keys(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path / "experiment", packets=3_000)
    folder = sorted(experiment.glob("runs/*bare-metal*"))[0] / "evaluation"
    stored = Evaluation.load(folder)
    texts = files(stored)
    sent, left = stored.counts.ingress, stored.counts.egress
    assert sent > left
    assert texts["trim_ms0.stats"].splitlines()[1] == f"{sent},{left},{sent},{left}"
    rate = texts["trim_ms0.transferrate"].splitlines()[1].split(",")[2]
    assert Decimal(rate) == round(Decimal(left) / sent, 20)
    key = texts["trim_ms0.num_worst5000.worst"].splitlines()[1].split(",")[3]
    assert int(key, 16) == int(stored.worst(1)[0].key)


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [
        ("1", "3", "0.33333333333333333333"),
        ("2", "3", "0.66666666666666666667"),
        ("10", "3", "3.3333333333333333"),
        ("100000", "3", "33333.333333333333"),
        ("0", "3", "0.00000000000000000000"),
        ("7", "7", "1.00000000000000000000"),
        ("1", "0.00000000000000000001", "100000000000000000000.00000000000000000000"),
    ],
)
def test_decimals_of_a_quotient(dividend: str, divisor: str, quotient: str) -> None:
    """What PostgreSQL 15 prints for these."""
    assert divide(Decimal(dividend), Decimal(divisor)) == quotient

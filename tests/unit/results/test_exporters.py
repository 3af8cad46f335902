"""Parquet, CSV, the papers' files and HdrHistogram's text, read back by other readers."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from captures import write_many
from experiment_folders import write_experiment, write_run
from published import POST, PRE, needs_captures, reference
from runs import write_line_run

from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.sources import Source
from tailtap.base.errors import InputError, MachineError
from tailtap.results.database import refresh
from tailtap.results.exporters import EXPORTERS, export
from tailtap.results.exporters.tables import COLUMNS, Csv, tables
from tailtap.results.exporters.texts import write_distribution
from tailtap.results.tables import HOPS, PARQUET


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("export") / "experiment", packets=3_000)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_hold_what_results_duckdb_holds(experiment: Path, tmp_path: Path, kind: str) -> None:
    refresh(experiment)
    database = experiment / "results.duckdb"
    done = export(experiment, kind, tmp_path / "out")
    assert done.runs == 10
    assert [Path(path).name for path in done.written] == [
        f"{table}.{kind}" for table in tables(packets=False)
    ]
    lines = tmp_path / "lines"
    write_line_run(lines)
    refresh(lines)
    assert export(lines, kind, lines / "out").runs == 1
    own, hops = (database, tmp_path / "out"), (lines / "results.duckdb", lines / "out")
    named = dict.fromkeys((*PARQUET, "warnings", "evaluations"), own) | dict.fromkeys(HOPS, hops)
    for table, (of, out) in named.items():
        with duckdb.connect(str(of), read_only=True) as connection:
            file = str(out / f"{table}.{kind}")
            columns = ", ".join(COLUMNS[table])
            # CSV has no types: keys of digits only are read as numbers, no text as nothing.
            there, exported = (
                sorted(
                    tuple("None" if one == "" else str(one) for one in row)
                    for row in connection.execute(f"SELECT run, {columns} FROM {name}").fetchall()
                )
                for name in (table, f"'{file}'")
            )
            assert there and exported == there
            slugs = connection.execute(f"SELECT DISTINCT run, slug FROM '{file}'").fetchall()
            runs = connection.execute("SELECT run, slug FROM runs").fetchall()
            assert set(slugs) <= set(runs)


ROW = re.compile(
    r"(?P<value>[ \d]{8,}\.\d{3}) (?P<p>[01]\.\d{12}) (?P<count>[ \d]{10,})"
    r"( (?P<inverse>[ \d]{11,}\.\d\d))?"
)
FOOTER = re.compile(
    r"#\[Mean    = ([ \d]{8}\.\d{3}), StdDeviation   = ([ \d]{8}\.\d{3})\]\n"
    r"#\[Max     = ([ \d]{8}\.\d{3}), Total count    = ([ \d]{12})\]\n"
    r"#\[Buckets = ([ \d]{12}), SubBuckets     = ([ \d]{12})\]\n"
)


def parse_hgrm(text: str) -> tuple[list[tuple[float, float, int]], list[float]]:
    """HdrHistogram's percentile text: values, percentiles and counts; mean, deviation, maximum,
    packets, buckets and sub-buckets. Refuses whatever departs from its layout.
    """
    head, body = text.split("\n\n")
    assert head == "       Value     Percentile TotalCount 1/(1-Percentile)"
    *lines, _, _, _, _ = body.split("\n")
    rows = []
    for line in lines:
        found = ROW.fullmatch(line)
        assert found, line
        p = float(found["p"])
        assert (p == 1) == (found["inverse"] is None) == (line is lines[-1]), line
        if p < 1:
            assert math.isclose(float(found["inverse"]), 1 / (1 - p), rel_tol=1e-2, abs_tol=6e-3)
        rows.append((float(found["value"]), p, int(found["count"])))
    footer = FOOTER.fullmatch(body, body.index("#"))
    assert footer, body
    return rows, [float(one) for one in footer.groups()]


def test_hgrm_of_a_known_histogram() -> None:
    """The rows that HdrHistogram gives for 100, 200, 250 and 600 with five ticks."""
    text = io.StringIO()
    values = np.array([100_000, 200_000, 250_000, 600_000])
    write_distribution(text, (values, np.ones(4, np.int64)))
    levels = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.775, 1)
    expected = [100] * 3 + [200] * 3 + [250] * 5 + [600] * 2
    counts = [1] * 3 + [2] * 3 + [3] * 5 + [4] * 2
    found, told = parse_hgrm(text.getvalue())
    assert found == list(zip(map(float, expected), levels, counts, strict=True))
    assert told[:5] == [287.5, 188.331, 600, 4, 1] and told[5] > 600_000


def test_hgrm_of_runs_is_exact(experiment: Path, tmp_path: Path) -> None:
    done = export(experiment, "hgrm", tmp_path)
    assert len(done.written) == 10
    for path in map(Path, done.written):
        stored = Evaluation.load(experiment / "runs" / path.stem / "evaluation")
        found, (mean, _, maximum, total, *_) = parse_hgrm(path.read_text("ascii"))
        values, counts = stored.distribution
        for value, p, count in found:
            nanoseconds = round(value * 1000)
            assert count == counts[values <= nanoseconds].sum()
            # Nearest rank: all smaller latencies are fewer than this share, with it they are not.
            # p has twelve digits: half a unit of the last one may pass a rank.
            share = p * total
            assert counts[values < nanoseconds].sum() < share + 1e-6 or p == 0
            assert count >= share - 1e-6
        assert total == stored.counts.matched
        assert round(maximum * 1000) == stored.max
        assert mean == pytest.approx(stored.mean / 1000, abs=1e-3)


def test_one_run_and_a_bare_evaluation(experiment: Path, tmp_path: Path) -> None:
    run = sorted(experiment.glob("runs/*"))[0]
    for source in (run, run / "evaluation"):
        for kind, exporter in EXPORTERS.items():
            if not exporter.address and kind != "perfetto":  # that one needs a trace
                assert export(source, kind, tmp_path / kind).runs == 1
    names = {path.name for path in (tmp_path / "hgrm").iterdir()}
    assert names == {f"{run.name}.hgrm", "evaluation.hgrm"}
    # Without parameters, the rate of the name is the measured one.
    assert len(list((tmp_path / "papers").glob("latencies-pre-rate*-repeat0.*"))) == 9
    assert export(run, "hgrm").written == [str(run / "export/hgrm" / f"{run.name}.hgrm")]


def test_every_packet(tmp_path: Path) -> None:
    times = np.arange(5_000) * 10_000 + 10**9
    latency = np.random.default_rng(3).integers(1_000, 9_000, 5_000)
    write_many(tmp_path / "in.pcap", times, range(5_000))
    write_many(tmp_path / "out.pcap", times + latency, range(5_000))
    found = evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap", trim_ns=1_000_000, worst=10)
    found.write(tmp_path / "evaluation")
    written = export(tmp_path / "evaluation", "parquet", tmp_path, packets=True).written
    assert Path(written[-1]).name == "packets.parquet"
    packets = pq.read_table(written[-1])
    kept = (times + latency) >= found.inputs.egress.first_ns + 1_000_000
    assert packets["ingress_ns"].to_pylist() == times[kept].tolist()
    assert packets["latency_ns"].to_pylist() == latency[kept].tolist()
    assert len(packets) == found.counts.matched < 5_000
    with pytest.raises(InputError, match="hgrm has no place for them"):
        export(tmp_path / "evaluation", "hgrm", tmp_path, packets=True)
    write_many(tmp_path / "out.pcap", times + latency + 1, range(5_000))
    with pytest.raises(InputError, match="not those that were evaluated"):
        export(tmp_path / "evaluation", "parquet", tmp_path, packets=True)
    (tmp_path / "in.pcap").unlink()
    with pytest.raises(InputError, match="no longer there"):
        export(tmp_path / "evaluation", "csv", tmp_path, packets=True)
    write_many(tmp_path / "in.pcap", times, range(5_000))
    parts = (Source("all", (tmp_path / f"{name}.pcap",), "vlan:none") for name in ("in", "out"))
    evaluate(*parts).write(tmp_path / "parts")
    with pytest.raises(InputError, match="several files, or a part of one"):
        export(tmp_path / "parts", "csv", tmp_path, packets=True)


@pytest.mark.parametrize("kind", ["parquet", "csv", "hgrm", "papers"])
def test_a_damaged_evaluation_is_named(tmp_path: Path, kind: str) -> None:
    run = write_run(tmp_path, 1, {}, packets=300)
    file = run / "evaluation/distribution.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"run tailtap evaluate --out again") as error:
        export(run, kind, tmp_path / "out")
    assert str(run) in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.glob("out/**/.*"))


@pytest.mark.parametrize("kind", ["parquet", "csv", "hgrm", "papers"])
def test_a_place_that_cannot_be_written_is_one_line(
    experiment: Path, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write") as error:
        export(experiment, kind, tmp_path / "file")
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_text_of_a_csv_file_is_a_formula(tmp_path: Path, begin: str) -> None:
    text = begin + 'cmd|"/c calc"!A1, a\nb'
    warnings = [{"code": text, "message": text}]
    write_run(tmp_path / "x", 1, {}, packets=300, name=text, warnings=warnings)
    export(tmp_path / "x", "csv", tmp_path / "csv")
    with (tmp_path / "csv/warnings.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert row["code"] == row["message"] == "'" + text
    with (tmp_path / "csv/runs.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["experiment"] == "'" + text
    export(tmp_path / "x", "parquet", tmp_path / "parquet")
    assert pq.read_table(tmp_path / "parquet/runs.parquet")["experiment"].to_pylist() == [text]


def test_numbers_of_a_csv_file_stay_numbers() -> None:
    table = pa.table({"value": [-5, 5], "text": ["-5", "a=b"]})
    assert Csv().shown(table).to_pydict() == {"value": [-5, 5], "text": ["'-5", "a=b"]}


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

"""Tables of evaluations: those that Arrow makes of Python's values, and those of strangers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from captures import write_many
from experiment_folders import write_run
from numpy.typing import NDArray
from tails import load_tail, tail_tables

from tailtap.analysis.evaluation import Evaluation, evaluate, tables
from tailtap.analysis.evaluation.values import MOST, papers, percentiles_of, require_counts
from tailtap.analysis.tail import analyse
from tailtap.base.errors import InputError
from tailtap.records.evaluation import Percentile
from tailtap.results.importers.pos.moongen import throughput_text


def integers(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 100])
def test_percentiles_keep_what_is_missing(count: int) -> None:
    rows = [
        Percentile(i / 128, i, None if i % 3 == 0 else i - 1, None if i % 7 == 1 else i + 1,
                   count - i, supported=i % 5 < 3)
        for i in range(count)
    ]  # fmt: skip
    kinds = {"p": pa.float64(), "value": pa.int64(), "low": pa.int64(), "high": pa.int64(),
             "above": pa.int64(), "supported": pa.bool_()}  # fmt: skip
    expected = pa.table(
        {name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in kinds.items()}
    )
    found = tables.percentiles(rows)
    found.validate(full=True)
    assert found.equals(expected)


def test_columns_and_sides_keep_their_names() -> None:
    three = integers(3, -1, 2**62)
    found = tables.table("exceedances", three, three + 0, three - 1)
    assert found.equals(pa.table({"position": three, "ingress_ns": three, "latency_ns": three - 1}))
    sides = {"ingress": (three, three), "egress": (integers(9), integers(8))}
    found = tables.by_side("gaps", sides)
    assert found.column("side").to_pylist() == ["ingress"] * 3 + ["egress"]
    assert found.column("count").to_pylist() == [*three.tolist(), 8]
    found.validate(full=True)


@pytest.mark.parametrize("packets", [5, 3_000, 400_000])
def test_exceedances_and_blocks(tmp_path: Path, packets: int) -> None:
    random = np.random.default_rng(packets)
    ingress = 7_000_000_000 + np.arange(packets) * 20_000 + random.integers(0, 20_000, packets)
    latency = (3_000 + random.gamma(2, 300, packets)).astype(np.int64)
    stalls = random.integers(0, packets, packets // 1_000)
    latency[stalls] += random.exponential(60_000, stalls.size).astype(np.int64)
    order = np.argsort(ingress + latency, kind="stable")
    write_many(tmp_path / "in.pcap", ingress, np.arange(packets))
    write_many(tmp_path / "out.pcap", (ingress + latency)[order], np.arange(packets)[order])
    found = evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap", key="moonsniff")
    found.write(tmp_path / "evaluation")
    exceedances, floor, blocks, width = tail_tables(latency, ingress)
    for name, expected in (("exceedances", exceedances), ("blocks", blocks)):
        assert pq.read_table(tmp_path / f"evaluation/{name}.parquet").to_pydict() == (
            expected.to_pydict()
        )
    meta = json.loads((tmp_path / "evaluation/evaluation.json").read_text())
    assert meta["exceedances"] == {"floor_ns": floor, "packets": exceedances.num_rows}
    assert meta["blocks"] == {"width_ns": width}
    Evaluation.load(tmp_path / "evaluation")
    model = analyse(load_tail(tmp_path / "evaluation", "run"))
    assert (model.chosen is None) == (packets < 10_000)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=3_000)
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def _change(run: Path, table: str, column: str, values: Any, kind: Any = None) -> None:
    path = run / f"evaluation/{table}.parquet"
    found = pq.read_table(path)
    place = found.column_names.index(column)
    values = [*values, *found.column(column).to_pylist()[len(values) :]][: found.num_rows]
    changed = pa.array(values, kind or found.column(column).type)
    pq.write_table(found.set_column(place, column, changed), path)


@pytest.mark.parametrize("count", [-1, 2**54, 2**62, 2**63 - 1])
@pytest.mark.parametrize(
    ("table", "column"), [("distribution", "count"), ("gaps", "count"), ("blocks", "packets")]
)
def test_counts_that_cannot_be_are_named(run: Path, table: str, column: str, count: int) -> None:
    _change(run, table, column, [1, count])
    with pytest.raises(InputError, match=rf"{table}\.parquet: {column} of row 2 is {count}"):
        Evaluation.load(run / "evaluation")
    if table == "blocks":
        with pytest.raises(InputError, match=r"blocks\.parquet"):
            load_tail(run / "evaluation", "run")


@pytest.mark.parametrize("name", ["distribution", "worst", "losses", "blocks"])
def test_a_small_file_of_many_rows_is_not_read(run: Path, name: str) -> None:
    path = run / f"evaluation/{name}.parquet"
    schema = pq.read_schema(path).remove_metadata()
    rows = pa.table([pa.nulls(20_000_000, field.type) for field in schema], schema=schema)
    pq.write_table(rows, path, compression="zstd")
    assert path.stat().st_size < 300_000
    with pytest.raises(InputError, match=rf"{name}\.parquet: \d+ cells are more than"):
        Evaluation.load(run / "evaluation")


def test_a_table_elsewhere_is_not_read(run: Path, tmp_path: Path) -> None:
    path = run / "evaluation/distribution.parquet"
    path.rename(tmp_path / "other.parquet")
    path.symlink_to(tmp_path / "other.parquet")
    with pytest.raises(InputError, match="a link to a place outside"):
        Evaluation.load(run / "evaluation")


def test_blocks_are_in_order(run: Path) -> None:
    path = run / "evaluation/blocks.parquet"
    found = pq.read_table(path)
    pq.write_table(found.take(list(reversed(range(found.num_rows)))), path)
    with pytest.raises(InputError, match="not in order"):
        load_tail(run / "evaluation", "run")


@pytest.mark.parametrize("packets", [10**15, MOST])
def test_intervals_of_any_number_of_packets_are_found_at_once(packets: int) -> None:
    counts = np.array([packets // 2, packets - packets // 2], np.int64)
    rows = percentiles_of((np.array([1, 2], np.int64), counts), papers())
    for row in rows:
        assert row.low is None or row.low <= row.value
        assert row.high is None or row.high >= row.value
    assert len(rows) == len(papers())


def test_sums_of_counts_are_bounded() -> None:
    require_counts([0, MOST])
    with pytest.raises(ValueError, match="packets of row 2 is 1048576, with those before it"):
        require_counts([MOST, 2**20], "packets")


def test_a_log_has_no_line_for_each_second_of_an_age() -> None:
    starts = np.array([0, 2**62], np.int64)
    with pytest.raises(InputError, match="no rates of one run"):
        throughput_text({"TX": (starts, np.ones(2, np.int64))}, 64)

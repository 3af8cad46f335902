"""Tables of evaluations that strangers wrote: every count is one, and no table fills the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiment_folders import write_run
from tails import load_tail

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.percentiles import papers, percentiles_of
from tailtap.analysis.evaluation.values import MOST, require_counts
from tailtap.base.errors import InputError
from tailtap.results.importers.pos.moongen import throughput_text


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=3_000)
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def _change(run: Path, table: str, column: str, values: Any, kind: Any = None) -> None:
    path = run / f"evaluation/{table}.parquet"
    found = pq.read_table(path)
    place = found.column_names.index(column)
    values = [*values, *found.column(column).to_pylist()[len(values) :]]
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


def test_columns_of_other_kinds_are_named(run: Path) -> None:
    _change(run, "distribution", "count", [None])
    with pytest.raises(InputError, match=r"distribution\.parquet: count is not whole"):
        Evaluation.load(run / "evaluation")
    _change(
        run,
        "distribution",
        "count",
        ["text"] * pq.read_metadata(run / "evaluation/distribution.parquet").num_rows,
        pa.string(),
    )
    with pytest.raises(InputError, match=r"distribution\.parquet: count is string, not int64"):
        Evaluation.load(run / "evaluation")


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

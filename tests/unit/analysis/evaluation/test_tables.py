"""The tables that are made of buffers are those that Arrow makes of Python's values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from captures import write_many
from numpy.typing import NDArray
from tails import load_tail, tail_tables

from tailtap.analysis.evaluation import Evaluation, evaluate, tables
from tailtap.analysis.evaluation.values import Blocks, Exceedances, Worst
from tailtap.analysis.tail import analyse
from tailtap.records.evaluation import Percentile


def integers(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 100])
def test_percentiles_keep_what_is_missing(count: int) -> None:
    rows = [
        Percentile(
            p=i / 128,
            value=i,
            low=None if i % 3 == 0 else i - 1,
            high=None if i % 7 == 1 else i + 1,
            above=count - i,
            supported=i % 5 < 3,
        )
        for i in range(count)
    ]
    expected = pa.table(
        {
            "p": pa.array([row.p for row in rows], pa.float64()),
            "value": pa.array([row.value for row in rows], pa.int64()),
            "low": pa.array([row.low for row in rows], pa.int64()),
            "high": pa.array([row.high for row in rows], pa.int64()),
            "above": pa.array([row.above for row in rows], pa.int64()),
            "supported": pa.array([row.supported for row in rows], pa.bool_()),
        }
    )
    found = tables.percentiles(rows)
    found.validate(full=True)
    assert found.equals(expected)


@pytest.mark.parametrize("keys", [[], ["7"], ["00ff", "", "\N{GREEK SMALL LETTER MU}s", "7"]])
def test_keys_are_texts(keys: list[str]) -> None:
    times = np.arange(2 * len(keys), dtype=np.int64)
    worst = Worst(times[::2], times[::2] + 1, times[::2] + 2, keys)
    expected = pa.table(
        {
            "latency_ns": worst.latency_ns,
            "ingress_ns": worst.ingress_ns,
            "egress_ns": worst.egress_ns,
            "key": pa.array(keys, pa.string()),
        }
    )
    found = tables.worst(worst)
    found.validate(full=True)
    assert found.equals(expected)


def test_columns_and_sides_keep_their_names() -> None:
    three = integers(3, -1, 2**62)
    assert tables.counts("x", (three, three)).equals(pa.table({"x": three, "count": three}))
    found = tables.columns(Exceedances(5, three, three + 0, three - 1))
    assert found.equals(pa.table({"position": three, "ingress_ns": three, "latency_ns": three - 1}))
    blocks = tables.columns(Blocks(1 << 20, three, three, three, three))
    assert blocks.column_names == ["start_ns", "packets", "sum_ns", "max_ns"]
    sides = {"ingress": (three, three), "egress": (integers(9), integers(8))}
    found = tables.by_side(sides, ("a", "b"))
    assert found.column("side").to_pylist() == ["ingress"] * 3 + ["egress"]
    assert found.column("b").to_pylist() == [*three.tolist(), 8]
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

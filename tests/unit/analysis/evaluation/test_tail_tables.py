"""The tail that an evaluation keeps, against an independent computation, and modelled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from captures import write_many
from tails import load_tail, tail_tables

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.tail import analyse


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

"""A real run, evaluated by us and by the published importer and SQL: every number agrees."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.percentiles import papers

RUN = Path(__file__).parents[5] / "shared/data/captures/dpdk-l2fwd-hw"
PRE = RUN / "latencies-pre-rate10000-dpdk-l2fwd.pcap.zst"
POST = RUN / "latencies-post-rate10000-dpdk-l2fwd.pcap.zst"

pytestmark = pytest.mark.skipif(
    not RUN.exists(), reason="the reference measurement is not beside this checkout"
)


def rows(trim_ms: int, name: str) -> list[dict[str, str]]:
    path = RUN / "reference" / f"dpdk-l2fwd-hw.trim_ms{trim_ms}.{name}"
    text = path.read_bytes()
    if path.suffix == ".zst":
        text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(text)).read()
    return list(csv.DictReader(text.decode().splitlines()))


def columns(trim_ms: int, name: str) -> Iterator[NDArray[np.int64]]:
    read = rows(trim_ms, name)
    for column in read[0]:
        yield np.array([int(row[column]) for row in read])


@pytest.fixture(
    params=[(0, "signature"), (1000, "signature"), (0, "moonsniff"), (1000, "moonsniff")]
)
def run(request: pytest.FixtureRequest) -> tuple[int, Evaluation]:
    trim_ms, key = request.param
    return trim_ms, evaluation.evaluate(PRE, POST, key=key, trim_ns=trim_ms * 1_000_000)


def test_every_percentile(run: tuple[int, Evaluation]) -> None:
    trim_ms, found = run
    expected = rows(trim_ms, "percentiles.csv")
    assert [float(row["percentile"]) for row in expected] == list(papers())
    ours = found.percentiles(papers())
    assert [p.value for p in ours] == [int(row["value"]) for row in expected]


def test_histogram_gaps_and_rates(run: tuple[int, Evaluation]) -> None:
    trim_ms, found = run
    latency, before, after = found.histogram(), found.gaps("ingress"), found.gaps("egress")
    for name, ours in {
        "bucket100.hist.csv": (latency.edges, latency.counts),
        "bucket100.jitterpre.csv": (before.edges, before.counts),
        "bucket100.jitterpost.csv": (after.edges, after.counts),
        "packetratepre.csv": found.rates("ingress"),
        "packetratepost.csv": found.rates("egress"),
    }.items():
        for mine, theirs in zip(ours, columns(trim_ms, name), strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=name)


def test_the_5000_worst_packets(run: tuple[int, Evaluation]) -> None:
    trim_ms, found = run
    expected = [
        (int(row["latency"]), int(row["prets"]), int(row["postts"]), row["encode"])
        for row in rows(trim_ms, "worst5000.csv.zst")
    ]
    ours = [tuple(packet) for packet in found.worst(5000)]
    if found.key == "moonsniff":
        # The published key holds the id at bytes 30 to 33: byte 42 of the frame, less 12.
        expected = [
            (*row[:3], str(int.from_bytes(bytes.fromhex(row[3])[30:34], "little")))
            for row in expected
        ]
    assert ours == expected


def test_counts(run: tuple[int, Evaluation]) -> None:
    trim_ms, found = run
    (stats,) = rows(trim_ms, "stats.csv")
    counts = found.counts
    assert counts.ingress == int(stats["pre_received"])
    assert counts.egress == int(stats["post_received"])
    assert counts.ingress - counts.trimmed_ingress == int(stats["pre_received_trimmed"])
    assert counts.egress - counts.trimmed_egress == int(stats["post_received_trimmed"])
    assert counts.lost == counts.unmatched_egress == 0


@pytest.mark.parametrize(("suffix", "trim_ms"), [("", 0), ("-filtered", 1000)])
def test_round_percentiles_and_maximum(suffix: str, trim_ms: int) -> None:
    path = RUN / f"reference/dpdk-l2fwd-hw.lowlat-percentiles{suffix}.csv"
    (expected,) = csv.DictReader(path.read_text().splitlines())
    found = evaluation.evaluate(PRE, POST, trim_ns=trim_ms * 1_000_000)
    ours = {"perc_50": 0.5, "perc_90": 0.9} | {
        f"perc_{'9' * nines}": 1 - 10**-nines for nines in range(2, 7)
    }
    values = {name: found.percentile(p).value for name, p in ours.items()}
    values["maximum"] = found.max
    assert values == {name: int(value) for name, value in expected.items()}

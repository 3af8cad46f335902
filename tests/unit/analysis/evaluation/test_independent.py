"""Our evaluation by other keys, against tshark, and against a published importer's SQL."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard
from captures import RECORD, write_many
from numpy.typing import NDArray

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.values import papers

SECOND = 1_000_000_000
PACKETS = 200_000
DECODED = 20_000
"""So many of each capture tshark reads."""

Packets = tuple[NDArray[np.int64], NDArray[np.int64]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures with loss, duplicates on both sides, reordering, foreign packets and id wrap."""
    folder = tmp_path_factory.mktemp("captures")
    rng = np.random.default_rng(20261121)
    # 40 s of packets whose ids wrap in the middle, and again use the first ids at the end.
    times = 7 * SECOND + np.sort(rng.integers(0, 40 * SECOND, PACKETS))
    ids = (np.arange(PACKETS) + 2**32 - PACKETS // 2) % 2**32
    late = times > times[0] + 20 * SECOND
    ids[late] = ids[: late.sum()]
    # Repeats within the window before the device: both packets are left out.
    repeated = rng.choice(PACKETS - 1, 300, replace=False)
    ids[repeated + 1] = ids[repeated]
    latency = 3_000 + rng.gamma(2, 400, PACKETS).astype(np.int64)
    stalls = rng.choice(PACKETS, 500, replace=False)
    latency[stalls] += rng.pareto(1.2, 500).astype(np.int64) * 50_000 + 10_000_000
    latency = np.minimum(latency, 6 * SECOND)
    out_times = times + latency
    kept = rng.random(PACKETS) > 0.003
    out_times, out_ids = out_times[kept], ids[kept]
    copies = rng.choice(len(out_ids), 700, replace=False)
    foreign = rng.integers(times[0], times[-1], 50)
    out_times = np.concatenate([out_times, out_times[copies] + 40_000, foreign])
    out_ids = np.concatenate([out_ids, out_ids[copies], np.full(50, 0x12345678)])
    order = np.argsort(out_times, kind="stable")
    write_many(folder / "in.pcap", times, ids)
    write_many(folder / "out.pcap", out_times[order], out_ids[order])
    return folder


def by_numpy(path: Path) -> Packets:
    records = np.fromfile(path, RECORD, offset=24)
    times = records["seconds"].astype(np.int64) * SECOND + records["ns"]
    ids = np.ascontiguousarray(records["frame"][:, 42:46]).view("<u4").ravel()
    return times, ids.astype(np.int64)


def by_tshark(path: Path) -> Packets:
    fields = ["-e", "frame.time_epoch", "-e", "udp.payload"]
    first = ["-c", str(DECODED)]
    command = ["tshark", "-n", *first, "-r", str(path), "-T", "fields", *fields]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in run.stdout.splitlines()]
    times = [int(row[0].replace(".", "")) for row in rows]
    ids = [int.from_bytes(bytes.fromhex(row[1].replace(":", ""))[:4], "little") for row in rows]
    return np.array(times), np.array(ids)


@pytest.fixture(scope="module")
def found(folder: Path) -> Evaluation:
    return evaluate(folder / "in.pcap", folder / "out.pcap", key="moonsniff")


def test_other_keys_see_the_same(found: Evaluation, folder: Path) -> None:
    for key in ("signature", "42:4:le", "42:4:be", "auto"):
        other = evaluate(folder / "in.pcap", folder / "out.pcap", key=key)
        assert other.counts == found.counts
        assert other.worst(100)[0][:3] == found.worst(100)[0][:3]
        np.testing.assert_array_equal(other.distribution, found.distribution)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_the_same(folder: Path) -> None:
    for name in ("in.pcap", "out.pcap"):
        for ours, theirs in zip(by_numpy(folder / name), by_tshark(folder / name), strict=True):
            np.testing.assert_array_equal(ours[:DECODED], theirs)


RUN = Path(__file__).parents[5] / "shared/data/captures/dpdk-l2fwd-hw"
PRE = RUN / "latencies-pre-rate10000-dpdk-l2fwd.pcap.zst"
POST = RUN / "latencies-post-rate10000-dpdk-l2fwd.pcap.zst"

needs_reference = pytest.mark.skipif(
    not RUN.exists(), reason="the reference measurement is not beside this checkout"
)


def published(trim_ms: int, name: str) -> list[dict[str, str]]:
    path = RUN / "reference" / f"dpdk-l2fwd-hw.trim_ms{trim_ms}.{name}"
    text = path.read_bytes()
    if path.suffix == ".zst":
        text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(text)).read()
    return list(csv.DictReader(text.decode().splitlines()))


def published_columns(trim_ms: int, name: str) -> Iterator[NDArray[np.int64]]:
    read = published(trim_ms, name)
    for column in read[0]:
        yield np.array([int(row[column]) for row in read])


@pytest.fixture(
    params=[(0, "signature"), (1000, "signature"), (0, "moonsniff"), (1000, "moonsniff")]
)
def reference(request: pytest.FixtureRequest) -> tuple[int, Evaluation]:
    trim_ms, key = request.param
    return trim_ms, evaluate(PRE, POST, key=key, trim_ns=trim_ms * 1_000_000)


@needs_reference
def test_every_percentile(reference: tuple[int, Evaluation]) -> None:
    trim_ms, found = reference
    expected = published(trim_ms, "percentiles.csv")
    assert [float(row["percentile"]) for row in expected] == list(papers())
    ours = found.percentiles(papers())
    assert [p.value for p in ours] == [int(row["value"]) for row in expected]


@needs_reference
def test_histogram_gaps_and_rates(reference: tuple[int, Evaluation]) -> None:
    trim_ms, found = reference
    latency, before, after = found.histogram(), found.gaps("ingress"), found.gaps("egress")
    for name, ours in {
        "bucket100.hist.csv": (latency.edges, latency.counts),
        "bucket100.jitterpre.csv": (before.edges, before.counts),
        "bucket100.jitterpost.csv": (after.edges, after.counts),
        "packetratepre.csv": found.rates("ingress"),
        "packetratepost.csv": found.rates("egress"),
    }.items():
        for mine, theirs in zip(ours, published_columns(trim_ms, name), strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=name)


@needs_reference
def test_the_5000_worst_packets(reference: tuple[int, Evaluation]) -> None:
    trim_ms, found = reference
    expected = [
        (int(row["latency"]), int(row["prets"]), int(row["postts"]), row["encode"])
        for row in published(trim_ms, "worst5000.csv.zst")
    ]
    ours = [tuple(packet) for packet in found.worst(5000)]
    if found.key == "moonsniff":
        # The published key holds the id at bytes 30 to 33: byte 42 of the frame, less 12.
        expected = [
            (*row[:3], str(int.from_bytes(bytes.fromhex(row[3])[30:34], "little")))
            for row in expected
        ]
    assert ours == expected


@needs_reference
def test_reference_counts(reference: tuple[int, Evaluation]) -> None:
    trim_ms, found = reference
    (stats,) = published(trim_ms, "stats.csv")
    counts = found.counts
    assert counts.ingress == int(stats["pre_received"])
    assert counts.egress == int(stats["post_received"])
    assert counts.ingress - counts.trimmed_ingress == int(stats["pre_received_trimmed"])
    assert counts.egress - counts.trimmed_egress == int(stats["post_received_trimmed"])
    assert counts.lost == counts.unmatched_egress == 0


@needs_reference
@pytest.mark.parametrize(("suffix", "trim_ms"), [("", 0), ("-filtered", 1000)])
def test_round_percentiles_and_maximum(suffix: str, trim_ms: int) -> None:
    path = RUN / f"reference/dpdk-l2fwd-hw.lowlat-percentiles{suffix}.csv"
    (expected,) = csv.DictReader(path.read_text().splitlines())
    found = evaluate(PRE, POST, trim_ns=trim_ms * 1_000_000)
    ours = {"perc_50": 0.5, "perc_90": 0.9} | {
        f"perc_{'9' * nines}": 1 - 10**-nines for nines in range(2, 7)
    }
    values = {name: found.percentile(p).value for name, p in ours.items()}
    values["maximum"] = found.max
    assert values == {name: int(value) for name, value in expected.items()}

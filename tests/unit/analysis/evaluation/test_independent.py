"""Our evaluation against numpy, pyarrow and tshark, and against a published importer's SQL."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard
from captures import RECORD, write_many
from numpy.typing import NDArray
from scipy import stats

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.values import DEFAULT, papers

SECOND = 1_000_000_000
WINDOW = 5 * SECOND
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


class Expected:
    """The rules as joins of tables."""

    def __init__(self, ingress: Packets, egress: Packets) -> None:
        before = pa.table({"id": ingress[1], "pre": ingress[0], "row": np.arange(len(ingress[0]))})
        after = pa.table({"id": egress[1], "post": egress[0], "copy": np.arange(len(egress[0]))})
        twins = before.join(before, "id", right_suffix="_2", join_type="inner")
        near = pc.and_(
            pc.less(pc.abs(pc.subtract(twins["pre"], twins["pre_2"])), WINDOW),
            pc.not_equal(twins["row"], twins["row_2"]),
        )
        repeated = pc.unique(twins.filter(near)["row"])
        usable = before.filter(pc.invert(pc.is_in(before["row"], repeated)))
        pairs = usable.join(after, "id", join_type="inner")
        latency = pc.subtract(pairs["post"], pairs["pre"])
        pairs = pairs.append_column("latency", latency)
        causal = pc.and_(pc.greater_equal(latency, 0), pc.less(latency, WINDOW))
        pairs = pairs.filter(causal).sort_by([("post", "ascending"), ("copy", "ascending")])
        # The first copy of each packet after the device; further copies are duplicates.
        matched = pairs.take(np.sort(np.unique(pairs["row"].to_numpy(), return_index=True)[1]))
        self.latency = matched["latency"].to_numpy()
        self.pre = matched["pre"].to_numpy()
        self.post = matched["post"].to_numpy()
        self.counts = {
            "ingress": len(before),
            "egress": len(after),
            "matched": len(matched),
            "duplicate_ingress": len(repeated),
            "duplicate_egress": len(pairs) - len(matched),
            "unmatched_egress": len(after) - len(pairs),
            "lost": len(usable) - len(matched),
            "reordered": int((np.maximum.accumulate(self.pre) > self.pre).sum()),
            "noncausal": 0,
        }


@pytest.fixture(scope="module")
def expected(folder: Path) -> Expected:
    return Expected(by_numpy(folder / "in.pcap"), by_numpy(folder / "out.pcap"))


@pytest.fixture(scope="module")
def found(folder: Path) -> Evaluation:
    return evaluate(folder / "in.pcap", folder / "out.pcap", key="moonsniff")


def test_the_captures_hold_every_difficulty(expected: Expected) -> None:
    kinds = ("duplicate_ingress", "duplicate_egress", "unmatched_egress", "lost", "reordered")
    assert all(expected.counts[kind] > 10 for kind in kinds), expected.counts


def test_counts(found: Evaluation, expected: Expected) -> None:
    assert {name: getattr(found.counts, name) for name in expected.counts} == expected.counts


def test_distribution(found: Evaluation, expected: Expected) -> None:
    values, counts = np.unique(expected.latency, return_counts=True)
    np.testing.assert_array_equal(found.distribution[0], values)
    np.testing.assert_array_equal(found.distribution[1], counts)
    assert found.mean == pytest.approx(expected.latency.mean(), rel=1e-12)


def test_worst(found: Evaluation, expected: Expected) -> None:
    order = np.lexsort((expected.post, expected.pre, -expected.latency))[:5000]
    worst = found.worst_packets
    np.testing.assert_array_equal(worst.latency_ns, expected.latency[order])
    np.testing.assert_array_equal(worst.ingress_ns, expected.pre[order])
    np.testing.assert_array_equal(worst.egress_ns, expected.post[order])


def test_percentiles_and_their_intervals(found: Evaluation, expected: Expected) -> None:
    latency = np.sort(expected.latency)
    n = len(latency)
    for percentile in found.percentiles([*DEFAULT, *papers()[1::10]]):
        p = percentile.p
        rank = next(k for k in (int(p * n) - 1, int(p * n), int(p * n) + 1) if k / n >= p)
        assert percentile.value == latency[rank - 1]
        assert percentile.above == n - rank
        low, high = int(stats.binom.ppf(0.025, n, p)), int(stats.binom.ppf(0.975, n, p)) + 1
        assert percentile.low == (latency[low - 1] if low >= 1 else None)
        assert percentile.high == (latency[high - 1] if high <= n else None)


def test_gaps_and_rates(found: Evaluation, folder: Path) -> None:
    for side, name in (("ingress", "in.pcap"), ("egress", "out.pcap")):
        times, _ = by_numpy(folder / name)
        edges, counts = np.unique(np.diff(times) // 100 * 100, return_counts=True)
        gaps = found.gaps(side)
        np.testing.assert_array_equal(gaps.edges, edges)
        np.testing.assert_array_equal(gaps.counts, counts)
        seconds, counts = np.unique((times - times[0]) // SECOND, return_counts=True)
        np.testing.assert_array_equal(found.rates(side)[0], times[0] + seconds * SECOND)
        np.testing.assert_array_equal(found.rates(side)[1], counts)


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

"""Results of tools and of testbeds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import compressed, write_many
from hdrh.histogram import HdrHistogram
from pos_trees import write_old_tree
from program import answer
from sampled import SAMPLES, write_sampled
from tool_texts import FORTIO, GHZ, IPERF, RESULTS, WRK, histogram

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.runs.reader import finished_runs, read_runs
from tailtap.results.importers.importer import import_tree
from tailtap.results.importers.tools import TOOLS, tool_of
from tailtap.results.importers.tools.hdr import decode, encode
from tailtap.results.importers.tools.reading import Reading, checked
from tailtap.results.importers.tools.runs import find_tool_runs, percentile_table


def readings(text: str, tool: str) -> list[Reading]:
    assert tool_of(text) == tool
    return [checked(one) for one in TOOLS[tool].readings(text)]


def codes(found: Reading) -> list[str]:
    return [one.code for one in found.doubts]


def rows(found: Reading) -> list[tuple[int, int, int]]:
    buckets = found.buckets
    return list(
        zip(buckets.low.tolist(), buckets.high.tolist(), buckets.count.tolist(), strict=True)
    )


def at(found: Reading, p: float) -> dict[str, Any]:
    rows: list[dict[str, Any]] = percentile_table(found).to_pylist()
    [row] = [row for row in rows if row["p"] == p]
    return row


@pytest.mark.parametrize("digits", [1, 3, 5])
def test_the_encoding_is_that_of_another_implementation(digits: int) -> None:
    values = (1e4 * np.random.default_rng(digits).pareto(1.1, 2_000)).astype(np.int64) + 1
    theirs = histogram(values.tolist(), digits)
    told = [
        (row.value_iterated_to, row.count_added_in_this_iter_step)
        for row in theirs.get_recorded_iterator()
    ]
    different, counts = np.unique(values, return_counts=True)
    mine = encode(different, counts, digits)
    for code in (mine, theirs.encode().decode()):
        buckets = decode(code)
        assert list(zip(buckets.high.tolist(), buckets.count.tolist(), strict=True)) == told
    again = HdrHistogram.decode(mine.encode())
    assert again.get_total_count() == values.size
    assert again.get_value_at_percentile(99) == theirs.get_value_at_percentile(99)


def test_a_log_by_tag_and_with_its_unit() -> None:
    one, other = histogram([1_000_000, 2_000_000], 3), histogram([3_000_000], 3)
    line = "0.0,1.0,{},{}"
    lines = [
        "#[Histogram log format version 1.3]",
        line.format("2.001", one.encode().decode()),
        line.format("3.001", other.encode().decode()),
        "Tag=B," + line.format("3000.0", other.encode().decode()),
    ]
    plain, tagged = readings("\n".join(lines), "HdrHistogram log")
    assert (plain.total, plain.name, codes(plain)) == (3, "", ["unit-unknown"])
    assert (tagged.total, tagged.name, codes(tagged)) == (1, "B", ["unit-unknown"])
    [ours, _] = readings("\n".join(["#[Values are in ns]", *lines]), "HdrHistogram log")
    assert codes(ours) == []
    [us, _] = TOOLS["HdrHistogram log"].readings("\n".join(lines), 1_000)
    assert us.doubts == () and at(checked(us), 0.99)["low"] >= 1_998_000_000


def test_a_log_that_others_wrote_or_that_was_cut() -> None:
    """A comment is no interval, and neither is the rest of a line; doubles are told."""
    code = histogram([5_000], 3).encode().decode()
    doubles = "Tag=D,0.0,1.0,0.1,DHISTwAAAAMAAAAAAAAAAhyEkxQAAAA"
    lines = [
        f"0.0,1.0,0.005,{code}",
        f"#1.0,1.0,0.005,{code}",
        doubles,
        f"2.0,1.0,0.005,{code[:30]}",
    ]
    [found] = readings("\n".join(lines), "HdrHistogram log")
    assert (found.total, codes(found)) == (1, ["unit-unknown", "read-in-part", "read-in-part"])
    with pytest.raises(ValueError, match="padding"):
        readings("\n".join([*lines, lines[0]]), "HdrHistogram log")
    with pytest.raises(ValueError, match="doubles"):
        readings(doubles, "HdrHistogram log")


def test_wrk2() -> None:
    values = (1_000 * np.random.default_rng(1).lognormal(0, 0.5, 3_000)).astype(np.int64)
    spectrum = io.BytesIO()
    histogram(values.tolist(), 3).output_percentile_distribution(spectrum, 1000.0)
    body = "  Detailed Percentile spectrum:\n" + spectrum.getvalue().decode()
    title = "  Latency Distribution (HdrHistogram - {} Latency{})\n"
    both = title.format("Recorded", "") + body + title.format(
        "Uncorrected", " (measured without taking delayed starts into account)") + body  # fmt: skip
    corrected, plain = readings(WRK.format(latencies=both), "wrk2")
    assert (corrected.total, corrected.name, plain.name) == (3_000, "", "uncorrected")
    assert "closed-loop" not in codes(corrected) and "closed-loop" in codes(plain)
    row = at(corrected, 0.99)
    assert (
        row["low"] <= int(np.quantile(values, 0.99, method="inverted_cdf")) * 1_000 <= row["high"]
    )
    assert corrected.maximum == pytest.approx(values.max() * 1_000, rel=0.002)


@pytest.mark.parametrize(
    ("name", "tool", "edges"),
    [
        ("fortio", "fortio", [(400_000, 1_000_000, 400), (1_000_001, 2_000_000, 585),
                              (9_000_001, 9_100_000, 15)]),
        ("iperf", "iperf2", [(0, 9_999, 302), (10_000, 19_999, 36), (20_000, 29_999, 5),
                             (80_000, 89_999, 1), (20_000_000, 10**18, 2)]),
        ("sockperf_log", "sockperf", [(9_304, 9_304, 1), (10_200, 10_200, 1),
                                      (7_995_500, 7_995_500, 1)]),
        ("trex", "TRex", [(0, 9_999, 5), (10_000, 19_999, 900), (20_000, 29_999, 80),
                          (600_000, 641_999, 15)]),
        ("trex_exact", "TRex", [(10_000, 10_999, 1), (20_000, 20_999, 1), (30_000, 30_999, 1)]),
        ("cyclictest", "cyclictest", [(10_000, 10_999, 50), (20_000, 20_999, 40),
                                      (21_000, 700_999, 10)]),
    ],
)  # fmt: skip
def test_buckets_are_as_wide_as_the_tool_means(
    name: str, tool: str, edges: list[tuple[int, int, int]]
) -> None:
    assert rows(readings(RESULTS[name], tool)[0]) == edges


@pytest.mark.parametrize(
    ("names", "repeats"),
    [
        (["x-1", "x-2", "x-3"], True),
        (["x-7", "x-8"], True),
        (["x-1", "x-2", "x-3", "x-4", "x-6"], True),
        (["x-64", "x-1518"], False),
        (["x-1", "x-2", "x-4", "x-8"], False),
        (["x-64-run1", "x-64-run9"], True),
        (["x-64"], False),
    ],
)
def test_sizes_are_no_repeats(names: list[str], repeats: bool, tmp_path: Path) -> None:
    for place, name in enumerate(names):
        (tmp_path / f"{name}.json").write_text(json.dumps({**FORTIO, "ActualQPS": place}))
    found, _ = find_tool_runs(tmp_path)
    assert len({run.stem for run in found}) == (1 if repeats else len(names))


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (json.dumps({**FORTIO, "DurationHistogram": {}}), "fortio"),
        (json.dumps({**FORTIO, "DurationHistogram": []}), "fortio"),
        (json.dumps({**GHZ, "fastest": -1}), "ghz"),
        (json.dumps({**GHZ, "fastest": 1e300}), "ghz"),
        ('{"latencies": [], "status_codes": 5}', "vegeta"),
        ('{"metrics": {"http_req_duration": 5}}', "k6"),
        ('{"latencyPercentiles": 5}', "hey or oha"),
        ("# Histogram\n", "cyclictest"),
        ("# RTLA timerlat histogram\n", "rtla"),
        ("Value Percentile TotalCount 1/(1-Percentile)\n", "HdrHistogram percentiles"),
        (json.dumps({"latency": {"5": {"latency": {"histogram": {"10": 0.5}}}}}), "TRex"),
        (json.dumps({"latency": {"err_cntrs": 5}}), "TRex"),
        (IPERF.replace("9:1 ", "0:1 "), "iperf2"),
        (WRK.format(latencies=""), "wrk2"),
        ("1.0,1.0,1.0,HISTFAAA", "HdrHistogram log"),
        ("sockperf: == version #3.7 ==\n", "sockperf"),
    ],
)
def test_damaged_files_are_warnings(text: str, tool: str, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "damaged.txt").write_text(text)
    [warning] = import_tree(tmp_path / "tree", tmp_path / "results.duckdb").warnings
    assert warning.code == "file-damaged" and tool in warning.message


PACKETS = 20_000
LOOPS = [
    {"pkt_sz": 96, "pkt_rate": 10_000, "kernel": kernel, "repeat": repeat}
    for kernel in ("rt", "vanilla")
    for repeat in (0, 1)
]


def write_captures(folder: Path, number: int, seed: int) -> None:
    """What the timestamper leaves of a run: both captures, compressed."""
    random = np.random.default_rng(seed)
    times = 10**9 + np.arange(PACKETS) * 100_000
    latency = 4_000 + (random.pareto(3, PACKETS) * 2_000).astype(np.int64)
    order = np.argsort(times + latency, kind="stable")
    for side, at, ids in (
        ("pre", times, np.arange(PACKETS)),
        ("post", (times + latency)[order], order),
    ):
        plain = folder / f"{side}.pcap"
        write_many(plain, at, ids)
        name = f"latencies-{side}_run{number}.pcap.zst"
        (folder / name).write_bytes(compressed(plain.read_bytes(), "zstd"))
        plain.unlink()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats on each of two kernels; of the first run interrupts were recorded, too."""
    tree = write_old_tree(tmp_path_factory.mktemp("pos") / "2020-10-07", LOOPS, ("timer", "dut"))
    for number in range(1, len(LOOPS)):
        write_captures(tree / "timer", number, number)
    sampled = tmp_path_factory.mktemp("sampled")
    write_sampled(sampled, PACKETS)
    for side, name in (("pre", "in.pcap"), ("post", "out.pcap")):
        packed = compressed((sampled / name).read_bytes(), "zstd")
        (tree / "timer" / f"latencies-{side}_run0.pcap.zst").write_bytes(packed)
    (tree / "dut/irqrecorder_run0.csv").write_bytes((sampled / SAMPLES).read_bytes())
    return tree


@pytest.fixture(scope="module")
def folder(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    found = import_tree(tree, folder)
    assert (found.runs, found.new, found.warnings) == (4, 4, [])
    return folder


def test_runs_are_run_folders_with_whole_evaluations(folder: Path, tree: Path) -> None:
    runs = finished_runs(folder)
    assert [run.variables["kernel"] for run in runs] == ["rt", "rt", "vanilla", "vanilla"]
    for number, run in enumerate(runs):
        sides = [tree / f"timer/latencies-{side}_run{number}.pcap.zst" for side in ("pre", "post")]
        assert run.stored.distribution[0].tolist() == evaluate(*sides).distribution[0].tolist()
        assert run.own_folder is not None and run.tail.packets == PACKETS
        assert (run.own_folder / "ingress.pcap.zst").samefile(sides[0])
    assert import_tree(tree, folder).new == 0
    assert len(read_runs(folder).runs) == 4


def test_late_packets_are_held_against_the_recorded_interrupts(folder: Path) -> None:
    [run] = answer("interrupts", folder)["runs"]
    [found] = [row for row in run["counters"] if row["associated"]]
    assert found["name"].startswith("TLB_shootdowns")

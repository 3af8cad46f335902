"""Results of other tools: read as their formats say, with the doubts that each form brings."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from tailtap.base.duck import connect
from tailtap.results.importers.importer import import_tree
from tailtap.results.importers.tools import TOOLS, tool_of
from tailtap.results.importers.tools.hdr import decode, encode
from tailtap.results.importers.tools.reading import Reading, checked
from tailtap.results.importers.tools.runs import find_tool_runs, percentile_table

IPERF = """\
------------------------------------------------------------
Server listening on UDP port 5001 with pid 3596
Enabled receive histograms bin-width=0.010 ms, bins=2000 (clients should use --trip-times)
------------------------------------------------------------
[ ID] Interval            Transfer     Bandwidth        Jitter   Lost/Total  Latency avg/min/max
[  1] 0.0000-1.0000 sec T8-PDF: bin(w=10us):cnt(100)=1:99,2:1 (5.00/95.00/99.7%=1/1/1,obl/obu=0/0)
[  1] 0.0000-2.0111 sec T8(f)-PDF: bin(w=10us):cnt(344)=1:302,2:36,3:5,9:1 (5.00/95.00/99.7%=1/2/3,obl/obu=0/2)
"""  # noqa: E501
SOCKPERF = """\
sockperf: [2;35m== version #3.7-no.git == [0m
sockperf: Test ended
sockperf: [Valid Duration] RunTime=0.552 sec; SentMessages=10323; ReceivedMessages=10323
sockperf: [2;35m====> avg-latency=53.442 (std-dev=387.133)[0m
sockperf: # dropped messages = 7; # duplicated messages = 0; # out-of-order messages = 0
sockperf: Summary: Latency is 53.442 usec
sockperf: [2;35mTotal 10323 observations[0m; each percentile contains 103.23 observations
sockperf: ---> <MAX> observation = 7798.605
sockperf: ---> percentile 99.999 = 7798.605
sockperf: ---> percentile 99.900 = 5223.847
sockperf: ---> percentile 50.000 =    9.594
sockperf: ---> <MIN> observation =    9.153
"""
FULL_LOG = """\
------------------------------
test was performed using the following parameters: --mps=1000 --burst=1 --reply-every=100 --time=1
------------------------------
sockperf: [2;35m====> avg-latency=9582.817 (std-dev=10398.436)[0m
sockperf: [2;35mTotal 3 observations[0m; each percentile contains 0.03 observations
sockperf: ---> <MAX> observation = 7995.499
------------------------------
packet, txTime(sec), rxTime(sec), latency(usec)
0, 2.508037127, 2.524028127, 7995.500
1, 2.608209673, 2.608228281, 9.304
2, 2.712028243, 2.712048643, 10.200
------------------------------
"""
WRK = """\
Running 10s test @ http://127.0.0.1/
  2 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.05ms  450.00us   8.10ms   70.00%
{latencies}
  39500 requests in 10.00s, 5.00MB read
Requests/sec:   3950.00
"""
FORTIO = {
    "RunType": "HTTP", "RequestedQPS": "500", "ActualQPS": 499.5, "NumThreads": 4,
    "DurationHistogram": {
        "Count": 1000, "Min": 0.0004, "Max": 0.0091, "Sum": 1.2, "Avg": 0.0012, "StdDev": 0.0005,
        "Data": [{"Start": 0.0004, "End": 0.001, "Percent": 40, "Count": 400},
                 {"Start": 0.001, "End": 0.002, "Percent": 98.5, "Count": 585},
                 {"Start": 0.009, "End": 0.0091, "Percent": 100, "Count": 15}],
    },
}  # fmt: skip
GHZ: dict[str, Any] = {
    "date": "2026-11-26T00:00:00Z", "options": {"rps": 200}, "count": 4, "average": 2_500_000,
    "fastest": 1_000_000, "slowest": 4_000_000, "rps": 198.0,
    "latencyDistribution": [{"percentage": 50, "latency": 2_000_000}],
    "histogram": [{"mark": 0.001, "count": 1}, {"mark": 0.0025, "count": 1},
                  {"mark": 0.004, "count": 2}],
}  # fmt: skip
TREX = {
    "global": {}, "latency": {"global": {"bad_hdr": 0}, "5": {
        "err_cntrs": {"dropped": 3, "dup": 0, "out_of_order": 0},
        "latency": {"average": 21.5, "jitter": 3, "last_max": 41, "total_max": 641, "total_min": 10,
                    "histogram": {"0": 5, "10": 900, "20": 80, "600": 15}}}},
}  # fmt: skip


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


def histogram(values: Sequence[int], digits: int) -> HdrHistogram:
    made = HdrHistogram(1, 3_600_000_000_000, digits)
    for value in values:
        made.record_value(value)
    return made


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


@pytest.mark.parametrize("cut", [0, 3, 20, 60])
def test_a_damaged_histogram_is_refused(cut: int) -> None:
    code = encode(np.array([5, 7_000, 9_000_000]), np.array([1, 2, 3]))
    with pytest.raises(ValueError, match=r"histogram|padding|base64"):
        decode(code[:cut])


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
    theirs = histogram(values.tolist(), 3)
    theirs.output_percentile_distribution(spectrum, 1000.0)
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


def test_wrk_has_four_percentiles() -> None:
    text = "  Latency Distribution\n     50%  997.00us\n     75%    1.20ms\n     99%    2.50ms"
    [found] = readings(WRK.format(latencies=text), "wrk2")
    assert codes(found) == ["closed-loop", "percentiles-only"]
    assert at(found, 0.99) == {"p": 0.99, "value": 2_500_000, "low": None, "high": None,
                               "above": 395, "supported": True}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "total", "errors", "among", "sent"),
    [
        ("", 39_500, 0, 0, 39_500),
        ("  Non-2xx or 3xx responses: 395\n", 39_500, 395, 395, 39_500),
        ("  Socket errors: connect 2, read 3, write 0, timeout 500\n", 39_000, 505, 0, 39_505),
    ],
)
def test_what_wrk_says_of_failures(
    more: str, total: int, errors: int, among: int, sent: int
) -> None:
    """An answer that is an error has a latency; one that comes after the timeout has none."""
    text = WRK.format(latencies="  Latency Distribution\n     99%    2.50ms") + more
    [found] = readings(text, "wrk2")
    assert (found.total, found.errors, found.among, found.sent) == (total, errors, among, sent)
    assert ("requests-failed" in codes(found)) == bool(errors)


def test_fortio() -> None:
    [found] = readings(json.dumps(FORTIO), "fortio")
    assert rows(found) == [(400_000, 1_000_000, 400), (1_000_001, 2_000_000, 585),
                           (9_000_001, 9_100_000, 15)]  # fmt: skip
    assert (found.rate, found.total, codes(found)) == (500, 1_000, ["closed-loop"])
    assert at(found, 0.9)["value"] == 2_000_000 and at(found, 0.9)["low"] == 1_000_001


@pytest.mark.parametrize(
    ("failed", "total", "among"),
    [([{"Start": 0.0004, "End": 0.0009, "Count": 390}], 610, 0), (None, 1_000, 390)],
)
def test_failures_of_fortio_are_no_fast_answers(
    failed: list[dict[str, float]] | None, total: int, among: int
) -> None:
    """They are left out of the buckets, or else it is said that they are in these."""
    text = {**FORTIO, "RetCodes": {"200": 610, "503": 390}}
    if failed:
        text["ErrorsDurationHistogram"] = {"Count": 390, "Data": failed}
    [found] = readings(json.dumps(text), "fortio")
    assert (found.total, found.errors, found.among, found.sent) == (total, 390, among, 1_000)
    assert (found.mean is None) == bool(failed) and "requests-failed" in codes(found)


def test_ghz_with_and_without_its_requests() -> None:
    [coarse] = readings(json.dumps(GHZ), "ghz")
    assert [count for *_, count in rows(coarse)] == [1, 1, 2]
    assert codes(coarse) == ["closed-loop", "coarse-buckets"]
    details = [{"latency": n * 1_000_000, "status": "OK", "error": ""} for n in (1, 2, 4)]
    failed = {"latency": 9_000_000, "status": "Unavailable", "error": "no connection"}
    [fine] = readings(json.dumps({**GHZ, "details": [*details, failed]}), "ghz")
    assert (fine.total, fine.lost, fine.errors, fine.sent) == (3, 1, 1, 4)
    assert (fine.rate, codes(fine)) == (200, ["closed-loop", "requests-failed"])
    assert fine.mean == pytest.approx(7e6 / 3)  # of answers; ghz's own average is of all calls
    capped = {"count": 10, "statusCodeDistribution": {"OK": 7, "Internal": 3}}
    [few] = readings(json.dumps({**GHZ, "details": details, **capped}), "ghz")
    assert (few.total, few.lost, few.errors, few.sent) == (3, 0, 3, 10)
    assert codes(few) == ["closed-loop", "read-in-part", "requests-failed"]


def test_iperf2_takes_the_longest_interval() -> None:
    [found] = readings(IPERF, "iperf2")
    assert rows(found) == [(0, 9_999, 302), (10_000, 19_999, 36), (20_000, 29_999, 5),
                           (80_000, 89_999, 1), (20_000_000, 10**18, 2)]  # fmt: skip
    assert codes(found) == ["beyond-buckets", "coarse-buckets"]
    told = [row["p"] for row in percentile_table(found).to_pylist()]
    assert 0.99 in told and 0.999 not in told  # it lies beyond, and nobody knows where
    sums = (
        "[  1] 0.0000-2.0111 sec  1 MBytes  4 Mbits/sec  0.002 ms 6/352 (1.7%) 0.9/{}/25.0/2.0 ms"
    )
    [found] = readings(IPERF + sums.format("0.001"), "iperf2")
    assert (found.total, found.lost, found.sent) == (346, 6, 352)
    assert at(found, 0.999)["value"] == found.maximum == 25_000_000
    early = IPERF.replace("obl/obu=0/2", "obl/obu=9/2") + sums.format("-0.9")
    [found] = readings(early, "iperf2")
    assert (found.total, found.lost, codes(found)) == (355, 6, ["negative-times"])
    assert not percentile_table(found)
    [found] = readings(IPERF + sums.format("-0.9"), "iperf2")
    assert codes(found) == ["negative-times"] and not percentile_table(found)


def test_sockperf_as_it_prints_and_its_full_log() -> None:
    [printed] = readings(SOCKPERF, "sockperf")
    assert (printed.total, printed.lost, printed.maximum) == (10_323, 7, 7_798_605)
    assert at(printed, 0.999)["value"] == 5_223_847 and at(printed, 0.999)["supported"]
    assert codes(printed) == ["half-round-trip", "closed-loop", "percentiles-only"]
    [newer] = readings(SOCKPERF.replace("<", "").replace(">", ""), "sockperf")
    assert newer.maximum == printed.maximum
    [loaded] = readings(SOCKPERF.replace("=10323;", "=103230;"), "sockperf")
    assert codes(loaded) == ["half-round-trip", "percentiles-only"]
    [full] = readings(FULL_LOG, "sockperf")
    assert rows(full) == [(9_304, 9_304, 1), (10_200, 10_200, 1), (7_995_500, 7_995_500, 1)]
    assert (full.rate, codes(full)) == (1_000, ["half-round-trip"])


def test_trex() -> None:
    [found] = readings(json.dumps(TREX), "TRex")
    assert rows(found) == [(0, 9_999, 5), (10_000, 19_999, 900), (20_000, 29_999, 80),
                           (600_000, 641_999, 15)]  # fmt: skip
    assert (found.name, found.lost, codes(found)) == ("5", 3, ["coarse-buckets"])
    assert (found.mean, found.reordered, found.duplicates) == (None, 0, 0)
    stream = json.loads(json.dumps(TREX))
    stream["latency"]["5"]["latency"]["hdrh"] = histogram([10, 20, 30], 3).encode().decode()
    [fine] = readings(json.dumps(stream), "TRex")
    assert rows(fine)[0] == (10_000, 10_999, 1)
    stream["flow_stats"] = {"5": {"tx_pkts": {"total": 1_050}, "rx_pkts": {"total": 1_000}}}
    [fine] = readings(json.dumps(stream), "TRex")
    assert fine.lost == 50  # those that nothing came after have no gap in the numbers
    dead = {"err_cntrs": {"dropped": 100}, "latency": {"histogram": {}, "total_max": 0}}
    stream["latency"] |= {
        "6": dead,
        "7": {"err_cntrs": {"dropped": 0}, "latency": {"histogram": {}}},
    }
    _, found = readings(json.dumps(stream), "TRex")
    assert (found.name, found.total, found.lost, found.sent) == ("6", 0, 100, 100)


def spectrum(unit: str = "") -> str:
    """As HdrHistogram writes it: values up to 999, one of each."""
    text = io.BytesIO()
    histogram(range(1, 1_000), 3).output_percentile_distribution(text, 1.0)
    return text.getvalue().decode().replace("Value", f"Value{unit}", 1)


TABLE = """\
{head}
000010 000050 000000
000020 000040 000090
{sums}
"""
HEY = """
Summary:
  Slowest:\t0.0314 secs
  Fastest:\t0.0010 secs
  Requests/sec:\t8
Latency distribution:
  50%% in 0.0025 secs
  99%% in 0.0068 secs
Status code distribution:
  [200]\t90 responses
  [503]\t8 responses
Error distribution:
  [2]\tGet "x": timeout
"""
OHA = {
    "summary": {"slowest": 0.03, "fastest": 0.001, "average": 0.002},
    "latencyPercentiles": {"p50": 0.0025, "p99.9": None},
    "statusCodeDistribution": {"200": 90, "503": 8},
    "errorDistribution": {"refused": 2, "aborted due to deadline": 4},
}
K6 = {"http_reqs": {"count": 100}, "http_req_failed": {"passes": 10, "fails": 90}}
TREND = {"min": 1, "avg": 2, "med": 1.5, "max": 9, "p(99)": 8}
VEGETA = {
    "latencies": {"mean": 5, "50th": 7, "99th": 9, "max": 9, "min": 1}, "requests": 100,
    "status_codes": {"0": 1, "200": 90, "503": 9},
}  # fmt: skip
NETPERF = f"""\
UNIT_USEC     :    0:    0:    9{":    0" * 7}
TEN_USEC      :    0:    1{":    0" * 8}
>100_SECS: 0
HIST_TOTAL: 10
"""
CYCLIC = {"histogram": {"21": 4}, "cycles": 9, "max": 90}


def points(*pairs: tuple[float, str]) -> str:
    return "\n".join(
        json.dumps({"metric": "http_req_duration", "type": "Point", "data": {
            "value": value, "tags": {"expected_response": good, "status": "503"}}})
        for value, good in pairs
    )  # fmt: skip


KINDS: Mapping[str, tuple[str, str, tuple[int, int | None, int | None], list[int]]] = {
    # The tool, the text, how many are good, failed and were sent, and p50 of each reading.
    "hgrm": ("HdrHistogram percentiles", spectrum(), (999, None, None), [522_000]),
    "hdrplot": ("vegeta", spectrum("(ms)"), (999, None, None), [522_000_000]),
    "vegeta": ("vegeta", json.dumps(VEGETA), (90, 10, 100), [7]),
    "requests": ("vegeta", "\n".join(
        f'{{"attack":"","seq":{n},"code":{code},"latency":{n}}}'
        for n, code in enumerate([503, 200, 301, 0])), (2, 2, 4), [1]),
    "k6": ("k6", json.dumps({"metrics": {
        **K6, "http_req_duration": {}, "http_req_duration{expected_response:true}": TREND}}),
        (90, 10, 100), [1_500_000]),
    "k6 values": ("k6", json.dumps({"metrics": {
        name: {"values": values} for name, values in {**K6, "http_req_duration": TREND}.items()}}),
        (90, 10, 100), [1_500_000]),
    "k6 points": ("k6", points((1, "true"), (2, "false")), (1, 1, 2), [1_000_000]),
    "hey": ("hey or oha", HEY, (90, 10, 100), [2_500_000]),
    "hey csv": (
        "hey or oha",
        "response-time,DNS+dialup,DNS,status-code,offset\n0.0004,0,0,503,0\n0.0030,0,0,200,0\n",
        (1, 1, 2), [3_050_000]),
    "oha": ("hey or oha", json.dumps(OHA), (90, 10, 100), [2_500_000]),
    "netperf": ("netperf", NETPERF, (10, None, None), [2_999]),
    "cyclictest": ("cyclictest", TABLE.format(
        head="# Histogram", sums="# Min Latencies: 00010 00020\n# Max Latencies: 00700 00021\n"
        "# Histogram Overflows: 00010 00000"), (190, None, None), [10_999, 20_999]),
    "cyclictest json": ("cyclictest", json.dumps(
        {"rt_test_version:": "2", "cmdline:": "./cyclictest -h 50", "thread": {"0": CYCLIC}}),
        (9, None, None), [90_999]),
    "rtla": ("rtla", TABLE.format(
        head="# RTLA timerlat histogram\n# Time unit is microseconds (us)\nIndex  IRQ-001  Thr-001",
        sums="over: 10 0\ncount: 100 90\nmin: 10 20\navg: 1 1\nmax: 700 21"),
        (190, None, None), [19_999, 21_999]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_other_tools_say(kind: str) -> None:
    tool, text, (good, errors, sent), medians = KINDS[kind]
    found = readings(text, tool)
    assert sum((one.total or 0) - one.among for one in found) == good
    assert (found[0].errors, found[0].sent) == (errors, sent)
    assert [at(one, 0.5)["value"] for one in found] == medians
    assert len({one.name for one in found}) == len(found)


def test_what_lies_beyond_the_buckets_of_cyclictest_ends_with_the_maximum() -> None:
    one, _ = readings(KINDS["cyclictest"][1], "cyclictest")
    assert rows(one)[-1] == (21_000, 700_999, 10)


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
    found = import_tree(tmp_path / "tree", tmp_path / "results.duckdb")
    [warning] = found.warnings
    assert warning.code == "file-damaged" and tool in warning.message


def test_an_import_of_all_and_repeats_by_their_names(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name, text in {
        "base-1.json": json.dumps(FORTIO),
        "base-2.json": json.dumps({**FORTIO, "ActualQPS": 499.0}),
        "server.txt": IPERF,
        "full.csv": FULL_LOG,
        "notes.txt": "nothing",
    }.items():
        (tree / name).write_text(text)
    found = import_tree(tree, tmp_path / "results.duckdb")
    assert (found.runs, found.new) == (4, 4)
    assert "notes.txt" in next(w.message for w in found.warnings if w.code == "file-unknown")
    assert import_tree(tree, tmp_path / "results.duckdb").new == 0
    with connect(tmp_path / "results.duckdb", read_only=True) as connection:
        told = connection.execute(
            "SELECT slug, repeat, variables->>'file', variables->>'tool' FROM runs ORDER BY slug"
        ).fetchall()
    assert told == [
        ("fortio-base-1", 1, "base", "fortio"),
        ("fortio-base-2", 2, "base", "fortio"),
        ("iperf2-server", 1, "server", "iperf2"),
        ("sockperf-full", 1, "full", "sockperf"),
    ]

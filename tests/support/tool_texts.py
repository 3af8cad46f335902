"""What other tools print and store: a text of each form, whole and with failures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hdrh.histogram import HdrHistogram

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


def histogram(values: Sequence[int], digits: int) -> HdrHistogram:
    made = HdrHistogram(1, 3_600_000_000_000, digits)
    for value in values:
        made.record_value(value)
    return made


def spectrum(unit: str = "") -> str:
    """As HdrHistogram writes it: values up to 999, one of each."""
    text = io.BytesIO()
    histogram(range(1, 1_000), 3).output_percentile_distribution(text, 1.0)
    return text.getvalue().decode().replace("Value", f"Value{unit}", 1)


def points(*pairs: tuple[float, str]) -> str:
    return "\n".join(
        json.dumps({"metric": "http_req_duration", "type": "Point", "data": {
            "value": value, "tags": {"expected_response": good, "status": "503"}}})
        for value, good in pairs
    )  # fmt: skip


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
WRK_LATENCY = "  Latency Distribution\n     50%  997.00us\n     75%    1.20ms\n     99%    2.50ms"
SUMS = "[  1] 0.0000-2.0111 sec  1 MBytes  4 Mbits/sec  0.002 ms 6/352 (1.7%) 0.9/{}/25.0/2.0 ms"
FAILED = {"200": 610, "503": 390}
ERRORS = {"Count": 390, "Data": [{"Start": 0.0004, "End": 0.0009, "Count": 390}]}
CALLS = [{"latency": n * 1_000_000, "status": "OK", "error": ""} for n in (1, 2, 4)]
NO_CALL = {"latency": 9_000_000, "status": "Unavailable", "error": "no connection"}
EXACT = json.loads(json.dumps(TREX))
EXACT["latency"]["5"]["latency"]["hdrh"] = histogram([10, 20, 30], 3).encode().decode()
EXACT["latency"]["6"] = {
    "err_cntrs": {"dropped": 100},
    "latency": {"histogram": {}, "total_max": 0},
}
EXACT["latency"]["7"] = {"err_cntrs": {"dropped": 0}, "latency": {"histogram": {}}}
COUNTED = {"5": {"tx_pkts": {"total": 1_050}, "rx_pkts": {"total": 1_000}}}
RESULTS: Mapping[str, str] = {
    "hgrm": spectrum(),
    "hdrplot": spectrum("(ms)"),
    "vegeta": json.dumps(VEGETA),
    "requests": "\n".join(
        f'{{"attack":"","seq":{n},"code":{code},"latency":{n}}}'
        for n, code in enumerate([503, 200, 301, 0])),
    "k6": json.dumps({"metrics": {
        **K6, "http_req_duration": {}, "http_req_duration{expected_response:true}": TREND}}),
    "k6_values": json.dumps({"metrics": {
        name: {"values": values} for name, values in {**K6, "http_req_duration": TREND}.items()}}),
    "k6_points": points((1, "true"), (2, "false")),
    "hey": HEY,
    "hey_csv": "response-time,DNS+dialup,DNS,status-code,offset\n0.0004,0,0,503,0\n"
    "0.0030,0,0,200,0\n",
    "oha": json.dumps(OHA),
    "netperf": NETPERF,
    "cyclictest": TABLE.format(
        head="# Histogram", sums="# Min Latencies: 00010 00020\n# Max Latencies: 00700 00021\n"
        "# Histogram Overflows: 00010 00000"),
    "cyclictest_json": json.dumps(
        {"rt_test_version:": "2", "cmdline:": "./cyclictest -h 50", "thread": {"0": CYCLIC}}),
    "rtla": TABLE.format(
        head="# RTLA timerlat histogram\n# Time unit is microseconds (us)\nIndex  IRQ-001  Thr-001",
        sums="over: 10 0\ncount: 100 90\nmin: 10 20\navg: 1 1\nmax: 700 21"),
    "wrk": WRK.format(latencies=WRK_LATENCY),
    "wrk_errors": WRK.format(latencies=WRK_LATENCY) + "  Non-2xx or 3xx responses: 395\n",
    "wrk_timeouts": WRK.format(latencies=WRK_LATENCY)
    + "  Socket errors: connect 2, read 3, write 0, timeout 500\n",
    "fortio": json.dumps(FORTIO),
    "fortio_failed": json.dumps({**FORTIO, "RetCodes": FAILED}),
    "fortio_told_apart": json.dumps(
        {**FORTIO, "RetCodes": FAILED, "ErrorsDurationHistogram": ERRORS}
    ),
    "ghz": json.dumps(GHZ),
    "ghz_calls": json.dumps({**GHZ, "details": [*CALLS, NO_CALL]}),
    "ghz_capped": json.dumps(
        {**GHZ, "details": CALLS, "count": 10,
         "statusCodeDistribution": {"OK": 7, "Internal": 3}}
    ),
    "iperf": IPERF,
    "iperf_sums": IPERF + SUMS.format("0.001"),
    "iperf_negative": IPERF + SUMS.format("-0.9"),
    "iperf_early": IPERF.replace("obl/obu=0/2", "obl/obu=9/2") + SUMS.format("-0.9"),
    "sockperf": SOCKPERF,
    "sockperf_newer": SOCKPERF.replace("<", "").replace(">", ""),
    "sockperf_loaded": SOCKPERF.replace("=10323;", "=103230;"),
    "sockperf_log": FULL_LOG,
    "trex": json.dumps(TREX),
    "trex_exact": json.dumps(EXACT),
    "trex_counted": json.dumps({**EXACT, "flow_stats": COUNTED}),
    "notes": "nothing",
}  # fmt: skip
"""By the names of their files."""

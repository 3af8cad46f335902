"""What load generators and histograms of others write of known latencies, each in its own form."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from hdrh.histogram import HdrHistogram
from tool_texts import WRK

from tests.simulation.draw import Draw
from tests.simulation.machine import Integers

US, MS, S = 1_000, 1_000_000, 1_000_000_000
STATUS = ("503", "0")
"""Of requests that failed: with an answer, and without one."""


@dataclass(frozen=True)
class Asked:
    """Requests, or packets: how long good ones and failed ones took, in ns."""

    good: Integers
    """In the order in which they were sent."""
    failed: Integers
    codes: tuple[str, ...]
    """Of those that failed."""

    @property
    def every(self) -> Integers:
        return np.concatenate([self.good, self.failed])

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Status and latency of each."""
        codes = ["200"] * self.good.size + [*self.codes]
        return list(zip(codes, self.every.tolist(), strict=True))


def asked(draw: Draw) -> Asked:
    """Requests of a server with a tail, some of which may fail."""
    number = draw.count("requests", 1, 2_000)
    least = draw.magnitude("least latency", 2_000, 20 * MS)
    random = draw.stream("requests' latency")
    good = least + (least * random.pareto(2.0, number)).astype(np.int64)
    failures = draw.count("failures", 1, 200) if draw.has("failures", 0.4) else 0
    codes = tuple(draw.choice("status", STATUS) for _ in range(failures))
    return Asked(np.minimum(good, 60 * S), random.integers(1_000, 3 * least, failures), codes)


def parts(values: Integers, edges: Integers) -> list[tuple[int, int, int]]:
    """Begin (not included, but of the first), end and count of each bucket that holds values."""
    place = np.searchsorted(edges, values)
    found: list[tuple[int, int, int]] = []
    for at in np.unique(place).tolist():
        begin = int(edges[at - 1]) if found else int(values.min())
        found.append((begin, int(edges[at]), int((place == at).sum())))
    begin, _, count = found[-1]
    return [*found[:-1], (begin, int(values.max()), count)]


def fortio(made: Asked) -> str:
    """Its histogram of all requests, and that of those that failed."""
    edges = np.unique(np.geomspace(1_000, 100 * S, 200).astype(np.int64))

    def histogram(values: Integers) -> dict[str, object]:
        data = [{"Start": begin / S, "End": end / S, "Count": count}
                for begin, end, count in parts(values, edges)]  # fmt: skip
        return {"Count": values.size, "Min": values.min() / S, "Max": values.max() / S,
                "Avg": float(values.mean()) / S, "Data": data}  # fmt: skip

    found = {"RunType": "HTTP", "RequestedQPS": "500", "ActualQPS": 499.5,
             "DurationHistogram": histogram(made.every),
             "RetCodes": Counter(code for code, _ in made.rows)}  # fmt: skip
    if made.failed.size:
        found["ErrorsDurationHistogram"] = histogram(made.failed)
    return json.dumps(found, default=int)


def ghz(made: Asked) -> str:
    """Its single calls."""
    statuses = {"200": "OK", "503": "Internal", "0": "Unavailable"}
    calls = [{"latency": latency, "status": statuses[code], "error": "" if code == "200" else "no"}
             for code, latency in made.rows]  # fmt: skip
    return json.dumps({
        "count": len(calls), "average": float(made.every.mean()), "options": {"rps": 200},
        "fastest": int(made.good.min()), "slowest": int(made.good.max()), "rps": 198.0,
        "statusCodeDistribution": Counter(one["status"] for one in calls), "details": calls,
    })  # fmt: skip


def vegeta(made: Asked) -> str:
    """Its requests."""
    return "".join(
        json.dumps({"attack": "", "seq": at, "code": int(code), "latency": latency})
        .replace('{"attack": ', '{"attack":') + "\n"
        for at, (code, latency) in enumerate(made.rows)
    )  # fmt: skip


def k6(made: Asked) -> str:
    """Its points, in ms."""
    return "\n".join(
        json.dumps({"metric": "http_req_duration", "type": "Point", "data": {
            "value": latency / MS,
            "tags": {"expected_response": str(code == "200").lower(), "status": code}}})
        for code, latency in made.rows
    )  # fmt: skip


def hey(made: Asked) -> str:
    """Its CSV, in s with four digits."""
    lines = ["response-time,DNS+dialup,DNS,status-code,offset"]
    lines += [f"{latency / S:.4f},0,0,{code},0" for code, latency in made.rows]
    return "\n".join([*lines, ""])


def recorded(values: Integers) -> HdrHistogram:
    made = HdrHistogram(1, 3600 * S, 3)
    for value in values.tolist():
        made.record_value(value)
    return made


def spectrum(values: Integers, unit: int) -> str:
    text = io.BytesIO()
    recorded(values).output_percentile_distribution(text, float(unit))
    return text.getvalue().decode()


def wrk(made: Asked) -> str:
    """The spectrum of wrk2, in ms, whose latencies it keeps in us."""
    title = "  Latency Distribution (HdrHistogram - Recorded Latency)\n"
    body = spectrum(np.maximum(made.good // US, 1), US)
    text = WRK.format(latencies=f"{title}  Detailed Percentile spectrum:\n{body}")
    return text.replace("39500 requests", f"{made.good.size} requests")


def hgrm(made: Asked) -> str:
    """HdrHistogram's percentiles, in us."""
    return spectrum(made.good, US)


def hlog(made: Asked) -> str:
    """HdrHistogram's log, in stretches of time."""
    stretches = np.array_split(made.good, min(3, made.good.size))
    lines = [f"{at}.0,1.0,0.5,{recorded(one).encode().decode()}"
             for at, one in enumerate(stretches)]  # fmt: skip
    return "\n".join(["#[Histogram log format version 1.3]", "#[Values are in ns]", *lines, ""])


def iperf(made: Asked) -> str:
    """Buckets of 10 us, what is beyond them, and packets that were lost."""
    place = made.good // (10 * US) + 1
    kept = Counter(place[place <= 2_000].tolist())
    bins = ",".join(f"{at}:{count}" for at, count in sorted(kept.items()))
    beyond, lost = int((place > 2_000).sum()), made.failed.size
    least, most = made.good.min() / MS, made.good.max() / MS
    return (
        "Server listening on UDP port 5001 with pid 3596\n"
        "Enabled receive histograms bin-width=0.010 ms, bins=2000\n"
        f"[  1] 0.0000-2.0111 sec T8(f)-PDF: bin(w=10us):cnt({kept.total()})={bins} "
        f"(5.00/95.00/99.7%=1/1/1,obl/obu=0/{beyond})\n"
        f"[  1] 0.0000-2.0111 sec  1 MBytes  4 Mbits/sec  0.002 ms {lost}/{lost + made.good.size} "
        f"(1.7%) 0.9/{least:.3f}/{most:.3f}/2.0 ms\n"
    )


def sockperf(made: Asked) -> str:
    """Its full log, in us."""
    rows = [f"{at}, 2.5, 2.6, {latency / US:.3f}" for at, latency in enumerate(made.good.tolist())]
    gone = f"{made.failed.size}; # duplicated messages = 0; # out-of-order messages = 0"
    return "\n".join([
        "sockperf: == version #3.7 ==", f"sockperf: # dropped messages = {gone}",
        f"sockperf: ====> avg-latency={made.good.mean() / US:.3f}",
        f"sockperf: Total {made.good.size} observations; each percentile contains 1 observations",
        "packet, txTime(sec), rxTime(sec), latency(usec)", *rows,
        "------------------------------", "",
    ])  # fmt: skip


def trex(made: Asked) -> str:
    """Nine buckets in each decade of microseconds, named by their lower ends."""
    found: Counter[int] = Counter()
    for us in (made.good // US).tolist():
        decade = 10 ** (len(str(us)) - 1)
        found[0 if us < 10 else us // decade * decade] += 1
    latency = {"average": 21.5, "total_max": int(made.good.max()) // US,
               "histogram": {str(low): count for low, count in found.items()}}  # fmt: skip
    counts = {"dropped": made.failed.size, "dup": 0, "out_of_order": 0}
    stream = {"err_cntrs": counts, "latency": latency}
    return json.dumps({"global": {}, "latency": {"global": {"bad_hdr": 0}, "5": stream}})


def cyclictest(made: Asked) -> str:
    """Cycles by the microsecond, and those beyond what was asked for."""
    reach = 5_000
    us = made.good // US
    rows = [f"{at:06} {int((us == at).sum()):06}" for at in range(reach)]
    return "\n".join([
        "# /dev/cpu_dma_latency set to 0us", "# Histogram", *rows,
        f"# Min Latencies: {us.min():05}", f"# Max Latencies: {us.max():05}",
        f"# Histogram Overflows: {int((us >= reach).sum()):05}", "",
    ])  # fmt: skip


def netperf(made: Asked) -> str:
    """Ten buckets for each of three sizes in each of three units."""
    lines = []
    for unit, name in ((US, "USEC"), (MS, "MSEC"), (S, "SEC")):
        for times, word in ((1, "UNIT"), (10, "TEN"), (100, "HUNDRED")):
            if (name, word) == ("SEC", "HUNDRED"):
                continue
            width = unit * times
            begin = 1 if (name, word) != ("USEC", "UNIT") else 0
            counts = [int((made.good // width == at).sum()) if at >= begin else 0
                      for at in range(10)]  # fmt: skip
            lines.append(f"{word}_{name}     " + "".join(f": {count:4}" for count in counts))
    return "\n".join([*lines, ">100_SECS: 0", f"HIST_TOTAL: {made.good.size}", ""])


WRITERS: Mapping[str, tuple[str, Callable[[Asked], str]]] = {
    "fortio": ("fortio", fortio),
    "ghz": ("ghz", ghz),
    "vegeta": ("vegeta", vegeta),
    "k6": ("k6", k6),
    "hey": ("hey or oha", hey),
    "wrk": ("wrk2", wrk),
    "hgrm": ("HdrHistogram percentiles", hgrm),
    "hlog": ("HdrHistogram log", hlog),
    "iperf": ("iperf2", iperf),
    "sockperf": ("sockperf", sockperf),
    "trex": ("TRex", trex),
    "cyclictest": ("cyclictest", cyclictest),
    "netperf": ("netperf", netperf),
}
"""What the program calls each tool, and what the tool writes."""

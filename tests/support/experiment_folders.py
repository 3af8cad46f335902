"""Experiment folders as `tailtap run` writes them, from latencies that numpy makes up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from made_records import OPTIONS, counts, sides, traits_of
from scipy import stats
from tails import tail_tables

from tailtap.records.evaluation import BlockWidth, EvaluationRecord, Floor, Latency, Percentile
from tailtap.records.record import Notice

Integers = npt.NDArray[np.int64]
LISTED = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
START = 7_000_000_000_000
BASE = {"wire": 900, "bare-metal": 4_200, "container": 4_600, "vm": 9_000}


@dataclass(frozen=True)
class Traffic:
    """What one run measured: latencies in ns in the order of sending, and the stamps before."""

    ingress: Integers
    latency: Integers
    lost: Integers


def traffic(
    platform: str, rate: int, packets: int, seed: int, loss: float | None = None
) -> Traffic:
    """A heavy tail, a timer's regular delays, a few bursts behind a stall, and some loss."""
    random = np.random.default_rng(seed)
    ingress = START + (np.arange(packets) * (1_000_000_000 / rate)).astype(np.int64)
    ingress = ingress + random.gamma(2, 60, packets).astype(np.int64)
    latency = BASE[platform] * random.lognormal(0, 0.08, packets)
    latency += random.pareto(1.6, packets) * (random.random(packets) < 0.004) * BASE[platform]
    if platform != "wire":
        latency += np.where((ingress // 1000) % 4_000 < 12, 3_000, 0)
        for _ in range(3):
            first = int(random.integers(0, packets - 60))
            stall = random.integers(200_000, 1_500_000)
            queue = stall - (ingress[first : first + 60] - ingress[first])
            latency[first : first + 60] += np.maximum(queue, 0)
    lost = np.zeros(packets, dtype=bool)
    if platform != "wire":  # two, and ten in a row
        first = int(random.integers(packets // 2, packets - 10))
        lost[[3, packets // 3, *range(first, first + 10)]] = True
    if loss is not None:
        lost[:] = np.arange(packets) < round(loss * packets)
    return Traffic(ingress, np.rint(latency).astype(np.int64), lost)


def flow_of(packet: int) -> str:
    """The flow of a packet: there are three."""
    return f"udp 10.0.0.{packet % 3 + 1}:1024 > 10.1.0.1:53"


def percentile_rows(latency: Integers, percentiles: tuple[float, ...]) -> list[dict[str, Any]]:
    """Nearest-rank percentiles with binomial confidence limits, as the evaluation gives them."""
    ordered = np.sort(latency)
    n = ordered.size
    # One call for all: a call for each takes longer than all else that a run needs.
    limits = (np.asarray(stats.binom.ppf(q, n, percentiles)) for q in (0.025, 0.975))
    lows, highs = (limit.astype(int).tolist() for limit in limits)
    rows = []
    for p, low, high in zip(percentiles, lows, highs, strict=True):
        rank = min(max(int(np.ceil(round(p * n, 6))), 1), n)
        rows.append(
            {
                "p": p,
                "value": int(ordered[rank - 1]),
                "low": int(ordered[low - 1]) if low >= 1 else None,
                "high": int(ordered[high]) if high < n else None,
                "above": n - rank,
                "supported": n - rank >= 10,
            }
        )
    return rows


def write_evaluation(folder: Path, data: Traffic, warnings: list[dict[str, str]]) -> None:
    folder.mkdir(parents=True)
    kept = ~data.lost
    ingress, latency = data.ingress[kept], data.latency[kept]
    egress = ingress + latency
    n = latency.size
    many = tuple(sorted({*LISTED, *(round(1 - 10**-e, 12) for e in np.arange(0.02, 6.01, 0.022))}))
    rows = percentile_rows(latency, many)
    worst = np.argsort(-latency, kind="stable")[:5000]
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    _table(folder, "percentiles", columns)
    values, numbers = np.unique(latency, return_counts=True)
    _table(folder, "distribution", {"latency_ns": values, "count": numbers})
    buckets, numbers = np.unique(latency // 100 * 100, return_counts=True)
    _table(folder, "histogram", {"bucket_ns": buckets, "count": numbers})
    _table(
        folder,
        "worst",
        {
            "latency_ns": latency[worst],
            "ingress_ns": ingress[worst],
            "egress_ns": egress[worst],
            "key": [str(key) for key in worst],
        },
    )
    lost = np.flatnonzero(data.lost)
    rows_of = np.split(lost, np.flatnonzero(np.diff(lost) > 1) + 1)
    _table(
        folder,
        "losses",
        {
            "ingress_ns": data.ingress[lost],
            "position": lost,
            "length": np.full(lost.size, 60),
            "burst": np.concatenate([np.full(row.size, row.size) for row in rows_of]),
            "flow": pa.array(map(flow_of, lost.tolist()), pa.string()),
            "key": pa.array(map(str, lost), pa.string()),
        },
    )
    exceedances, floor, blocks, width = tail_tables(latency, ingress)
    pq.write_table(exceedances, folder / "exceedances.parquet")
    pq.write_table(blocks, folder / "blocks.parquet")
    record = EvaluationRecord(
        key="moonsniff",
        key_reason=None,
        counts=counts(
            ingress=data.ingress.size,
            egress=n,
            matched=n,
            lost=data.ingress.size - n,
            reordered=int((np.diff(egress) < 0).sum()),
        ),
        latency_ns=Latency(
            min=int(latency.min()),
            mean=float(latency.mean()),
            max=int(latency.max()),
            percentiles=[Percentile(**row) for row in percentile_rows(latency, LISTED)],
        ),
        worst=[],
        warnings=[Notice(**warning) for warning in warnings],
        options=OPTIONS,
        inputs=sides(data.ingress, np.sort(egress)),
        exceedances=Floor(floor_ns=floor, packets=exceedances.num_rows),
        blocks=BlockWidth(width_ns=width),
    )
    (folder / "evaluation.json").write_bytes(msgspec.json.encode(record))
    both = (("ingress", data.ingress), ("egress", np.sort(egress)))
    gaps = [(side, *np.unique(np.diff(t) // 100 * 100, return_counts=True)) for side, t in both]
    rates = [
        (side, *np.unique((t - START) // 1_000_000_000, return_counts=True)) for side, t in both
    ]
    _sided(folder, "gaps", ("bucket_ns", "count"), gaps)
    seconds = [(side, START + second * 1_000_000_000, packets) for side, second, packets in rates]
    _sided(folder, "rates", ("start_ns", "packets"), seconds)


def _sided(folder: Path, name: str, columns: tuple[str, str], rows: list[Any]) -> None:
    table: dict[str, Any] = {"side": [side for side, a, _ in rows for _ in a]}
    for place, column in enumerate(columns, 1):
        table[column] = np.concatenate([row[place] for row in rows])
    _table(folder, name, table)


def _table(folder: Path, name: str, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def write_run(
    folder: Path,
    number: int,
    variables: Mapping[str, Any],
    *,
    repeat: int = 1,
    packets: int = 20_000,
    rate: int = 10_000,
    name: str = "container-vs-bare-metal",
    warnings: list[dict[str, str]] | None = None,
    status: str = "done",
    error: str | None = None,
    loss: float | None = None,
    achieved: float | None = None,
) -> Path:
    """One run folder; without an evaluation unless `status` is ``done``."""
    platform = variables.get("dut.platform", "bare-metal")
    slug = f"{number:03}-{platform}-{rate}-{repeat}"
    run = folder / "runs" / slug
    run.mkdir(parents=True)
    tap = {"file": "x.stamps", "seen": packets + 500, "stored": packets + 500, "lost": 0,
           "other": 500, "interface": "tt-tap0"}  # fmt: skip
    slip = [{"p": p, "value": int(40 * (1 - p) ** -0.7)} for p in LISTED[:-1]]
    record = {
        "schema": "tailtap.run/1",
        "number": number,
        "slug": slug,
        "repeat": repeat,
        "status": status,
        "error": error,
        "name": name,
        "variables": variables,
        "parameters": {
            "dut": {"platform": platform, "forwarder": "tc-mirred", "cpus": [1]},
            "traffic": {"rate": rate, "size": 64, "duration": packets * 10**9 // rate,
                        "warm_up": 10**9, "flows": 1, "cpu": 0},
            "evaluation": {"trim": 0, "window": 5_000_000_000},
        },
        "traits": traits_of(platform),
        "started": f"2026-03-01T14:{number:02}:00+00:00",
        "finished": f"2026-03-01T14:{number:02}:30+00:00",
        "generator": {
            "schema": "tailtap.generator/1", "generator": "af_xdp", "mode": "generic",
            "sent": packets, "failed": 0,
            "achieved_rate": float(rate if achieved is None else achieved),
            "slip_ns": {"min": 20, "mean": 90.5, "max": 812_345, "percentiles": slip},
        },
        "taps": {"ingress": tap, "egress": {**tap, "stored": packets + 488, "lost": 12}},
        "softnet": {"1": {"processed": packets, "dropped": 0, "received_rps": packets}},
        "steal_ns": {"0": 0, "1": 31_000_000},
        "warnings": warnings or [],
        "valid": achieved is None,
        "environment": {
            "kernel": {"release": "6.18.5", "command_line": "isolcpus=1 nohz_full=1"},
            "cpu": {"model": "Intel Xeon D-1518", "smt": "off", "governors": None},
            "versions": {"tailtap": "0.1.0", "iproute2": "6.1.0"},
        },
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps(record), "utf-8")
    if status == "done":
        data = traffic(platform, rate, packets, seed=number, loss=loss)
        few = [{"code": "few-samples", "message": "percentiles beyond p99.9 have too few samples"}]
        write_evaluation(run / "evaluation", data, few if packets < 20_000 else [])
    return run


def write_experiment(folder: Path, packets: int = 20_000) -> Path:
    """Ten finished runs, `wire` and `bare-metal` at two rates, and one failed run."""
    number = 0
    for platform, repeats in (("wire", 2), ("bare-metal", 3)):
        for rate in (10_000, 50_000):
            for repeat in range(1, repeats + 1):
                number += 1
                stolen = [{"code": "steal", "message": "31 ms were stolen by the hypervisor"}]
                slip = [{"code": "slip", "message": "a packet left 812 us behind its schedule"}]
                write_run(
                    folder,
                    number,
                    {"dut.platform": platform, "traffic.rate": f"{rate // 1000} kpkt/s"},
                    repeat=repeat,
                    packets=packets,
                    rate=rate,
                    warnings=stolen + (slip if number == 8 else []),
                )
    write_run(
        folder,
        number + 1,
        {"dut.platform": "container", "traffic.rate": "10 kpkt/s"},
        status="failed",
        error="lxc-start is not installed: apt install lxc",
    )
    return folder

"""Folders of experiments: the one writer of runs, and what is true of each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from made_records import traits_of
from scipy import stats
from stamps import write_sides

from tailtap.analysis.evaluation import evaluate
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.traffic import NEVER, Packets, packets

SECOND = 1_000_000_000
LISTED = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
PLATFORMS = ("wire", "bare-metal", "container", "vm")
LATE = ("generator-slip", "packets left 812 us behind their schedule")
"""The warning that makes a run invalid."""
DOUBTS = (
    ("steal", "31 ms were stolen by the hypervisor"),
    ("frequency", "the clock of CPU 1 was lowered to 800 MHz"),
)


class Ranked(NamedTuple):
    """A percentile by nearest rank, with its interval by the binomial distribution of ranks."""

    p: float
    value: int
    low: int | None
    high: int | None
    above: int
    supported: bool


def ranked(latency: Integers, percentiles: Sequence[float]) -> list[Ranked]:
    """Percentiles of latencies; 95 % of intervals hold the true one (Hahn and Meeker, 1991)."""
    ordered, n = np.sort(latency), latency.size
    # One call for all: a call for each takes longer than all else that a run needs.
    lows, highs = (np.asarray(stats.binom.ppf(q, n, percentiles), int) for q in (0.025, 0.975))
    # The least k with k / n >= p, as PostgreSQL's percentile_disc has it.
    shares = np.arange(1, n + 1) / n
    ranks = [int(rank) + 1 for rank in np.searchsorted(shares, percentiles)]
    return [
        Ranked(
            p,
            int(ordered[rank - 1]),
            int(ordered[low - 1]) if low >= 1 else None,
            int(ordered[high]) if 0 < high < n else None,
            n - rank,
            n - rank >= 10,
        )
        for p, rank, low, high in zip(percentiles, ranks, lows, highs, strict=True)
    ]


@dataclass(frozen=True)
class Made:
    """A run and what is true of it."""

    folder: Path
    number: int
    repeat: int
    variables: Mapping[str, Any]
    status: str
    valid: bool
    warnings: Sequence[tuple[str, str]]
    packets: Packets
    latency: Integers = field(init=False)
    """Of those that arrived, ascending."""

    def __post_init__(self) -> None:
        """Sort the latencies."""
        passed = (self.packets.left - self.packets.sent)[self.packets.arrived]
        object.__setattr__(self, "latency", np.sort(passed))

    @property
    def slug(self) -> str:
        return self.folder.name

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def lost(self) -> int:
        return self.packets.sent.size - self.latency.size


def write_run(
    folder: Path,
    number: int,
    passed: Packets,
    variables: Mapping[str, Any] | None = None,
    *,
    name: str = "container-vs-bare-metal",
    repeat: int = 1,
    rate: int = 10_000,
    status: str = "done",
    valid: bool = True,
    achieved: float | None = None,
    warnings: Sequence[tuple[str, str]] = (),
    settings: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """A run folder as `tailtap run` leaves it: one that is done has stamps and their evaluation.

    `rate` is in pkt/s, which the generator `achieved` unless that is given; `settings` are those
    of its evaluation, `changes` more keys of its record.
    """
    varied = dict(variables or {})
    platform = varied.get("dut.platform", "bare-metal")
    folder.mkdir(parents=True)
    number_sent = passed.sent.size
    slip = [{"p": p, "value": int(40 * (1 - p) ** -0.7)} for p in LISTED[:-1]]
    own = {"key": "auto", "trim": 0, "window": 5 * SECOND, **(settings or {})}
    tap = {"file": "ingress.stamps", "seen": number_sent, "stored": number_sent, "lost": 0,
           "other": 0, "interface": "tt-tap0"}  # fmt: skip
    came = passed.arrived.size
    record = {
        "schema": "tailtap.run/1",
        "number": number,
        "slug": folder.name,
        "repeat": repeat,
        "status": status,
        "error": "lxc-start is not installed: apt install lxc" if status == "failed" else None,
        "name": name,
        "variables": varied,
        "parameters": {
            "dut": {"platform": platform, "forwarder": "tc-mirred", "cpus": [1]},
            "traffic": {"rate": rate, "size": 64, "duration": number_sent * SECOND // rate,
                        "warm_up": SECOND, "flows": 1, "cpu": 0},
            "evaluation": own,
        },
        "traits": traits_of(platform),
        "started": f"2026-03-01T14:{number % 60:02}:00+00:00",
        "finished": f"2026-03-01T14:{number % 60:02}:30+00:00",
        "generator": {
            "schema": "tailtap.generator/1", "generator": "af_xdp", "mode": "generic",
            "sent": number_sent, "failed": 0, "scheduled_rate": float(rate),
            "achieved_rate": float(rate if achieved is None else achieved),
            "slip_ns": {"min": 20, "mean": 90.5, "max": 812_345, "percentiles": slip},
        },
        "taps": {"ingress": tap,
                 "egress": {**tap, "file": "egress.stamps", "seen": came, "stored": came}},
        "softnet": {"1": {"processed": number_sent, "dropped": 0, "received_rps": number_sent}},
        "steal_ns": {"0": 0, "1": 31_000_000},
        "warnings": [{"code": code, "message": message} for code, message in warnings],
        "valid": valid and achieved is None,
        "environment": {
            "kernel": {"release": "6.18.5", "command_line": "isolcpus=1 nohz_full=1"},
            "cpu": {"model": "Intel Xeon D-1518", "smt": "off", "governors": None},
            "versions": {"tailtap": "0.1.0", "iproute2": "6.1.0"},
        },
        **(changes or {}),
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record), "utf-8")
    if status == "done":
        (folder / "generator.json").write_text(json.dumps(record["generator"]))
        write_sides(folder, passed.sent, passed.left, *np.flatnonzero(passed.left == NEVER))
        evaluate(
            *(folder / f"{side}.stamps" for side in ("ingress", "egress")),
            key=own["key"],
            trim_ns=own["trim"],
            window_ns=own["window"],
            throughout=True,
        ).write(folder / "evaluation")
    return folder


def experiment(draw: Draw, folder: Path) -> list[Made]:
    """Runs of a few configurations, not all of which have a result."""
    platforms = PLATFORMS[: draw.between("platforms", 1, 2)]
    repeats = draw.between("repeats", 1, 2)
    made = []
    for number in range(1, len(platforms) * repeats + 1):
        platform, repeat = platforms[(number - 1) // repeats], (number - 1) % repeats + 1
        status, warnings = "done", list[tuple[str, str]]()
        if number > 1 and draw.has("runs without a result", 0.3):
            status = draw.choice("status", ("done", "failed", "interrupted", "running"))
        late = draw.has("a late generator", 0.3) and draw.between("late", 0, 1) == 1
        if draw.has("warnings", 0.3):
            warnings.append(draw.choice("warning", DOUBTS))
        warnings += [LATE] * late
        passed, variables = packets(draw), {"dut.platform": platform}
        if not passed.arrived.size:
            status = "failed"
        place = folder / "runs" / f"{number:03}-{platform}-{repeat}"
        write_run(
            place, number, passed, variables, repeat=repeat, status=status,
            valid=not late, warnings=warnings,
        )  # fmt: skip
        made.append(Made(place, number, repeat, variables, status, not late, warnings, passed))
    (folder / "experiment.yaml").write_text("name: container-vs-bare-metal\n")
    return made


def everything(folder: Path) -> dict[str, bytes]:
    """The bytes of all files below a folder, by their paths in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

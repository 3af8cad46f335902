"""An experiment folder, read into small typed values.

What the report needs and nothing more: the runs as `run.json` describes them, and for each
finished run the tables of its evaluation. A folder that is itself one evaluation (the output of
`tailtap evaluate --out`) or one run is read as an experiment of one run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tailtap.errors import InputError
from tailtap.evaluation import Evaluation as StoredEvaluation
from tailtap.evaluation import Histogram, Percentile, Warning
from tailtap.evaluation.model import SIDES

BAND_STEPS = 24
"""Percentiles in each decade of 1/(1-p) whose confidence limits make the band."""
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """One evaluation as the figures need it: latencies in ns, times in s since the first packet."""

    counts: Mapping[str, int]
    loss: float
    """Lost packets as a share of those whose fate is known."""
    percentiles: tuple[Percentile, ...]
    """The percentiles that the evaluation lists by default."""
    curve_percentiles: tuple[Percentile, ...]
    """Many percentiles, ascending: the source of the confidence band."""
    latencies: Integers
    """Distinct latencies, ascending, and how often each occurred."""
    latency_counts: Integers
    histogram: Histogram
    worst_latency: Integers
    worst_time: Floats
    gaps: Mapping[str, Histogram]
    rate_start: Mapping[str, Floats]
    rate_packets: Mapping[str, Integers]
    warnings: tuple[Warning, ...]

    @property
    def packets(self) -> int:
        """How many packets the latencies are of."""
        return int(self.latency_counts.sum())

    @property
    def duration(self) -> float:
        """Seconds from the first packet to the end of the last second with a packet."""
        ends = [float(start.max()) + 1 for start in self.rate_start.values() if start.size]
        return max([*ends, float(self.worst_time.max(initial=0)), 1e-3])

    @property
    def maximum(self) -> int:
        """The largest latency."""
        return int(self.latencies[-1])


@dataclass(frozen=True)
class Run:
    """One run of the experiment; `evaluation` is None when it gave no result."""

    number: int
    slug: str
    repeat: int
    status: str
    failure: str
    variables: Mapping[str, str]
    parameters: Mapping[str, Any]
    generator: Mapping[str, Any]
    taps: Mapping[str, Mapping[str, Any]]
    steal_ns: Mapping[str, int]
    warnings: tuple[Warning, ...]
    environment: Mapping[str, Any]
    started: str
    evaluation: Evaluation | None

    @property
    def platform(self) -> str:
        """The platform of the device under test, empty when unknown."""
        return str(
            self.variables.get("dut.platform")
            or _mapping(self.parameters, "dut").get("platform")
            or ""
        )


@dataclass(frozen=True)
class Experiment:
    """All runs of a folder, in the order of their numbers."""

    name: str
    folder: Path
    runs: tuple[Run, ...] = field(default=())

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that have an evaluation."""
        return tuple(run for run in self.runs if run.evaluation is not None)

    @property
    def failed(self) -> tuple[Run, ...]:
        """The runs that have none, each with its reason."""
        return tuple(run for run in self.runs if run.evaluation is None)


def load_experiment(folder: Path) -> Experiment:
    """Read an experiment folder, a run folder or an evaluation folder.

    Raises `InputError` when `folder` is none of them, or holds no run with an evaluation.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder that `tailtap run` wrote")
    if (folder / "runs").is_dir():
        run_folders = sorted(path.parent for path in folder.glob("runs/*/run.json"))
        pairs = [_load_run(path) for path in run_folders]
    elif (folder / "run.json").is_file():
        pairs = [_load_run(folder)]
    elif (folder / "evaluation.json").is_file():
        pairs = [_bare_evaluation(folder)]
    else:
        raise InputError(
            f"{folder}: no experiment folder (no runs/*/run.json, no evaluation.json); give the "
            "folder that `tailtap run --out` or `tailtap evaluate --out` wrote"
        )
    names = [name for name, _ in pairs if name]
    runs = tuple(sorted((run for _, run in pairs), key=lambda run: (run.number, run.slug)))
    experiment = Experiment(names[0] if names else folder.resolve().name, folder, runs)
    if not experiment.finished:
        reasons = "; ".join(f"{run.slug}: {run.failure}" for run in experiment.failed[:3])
        raise InputError(
            f"{folder}: no finished run to report ({reasons or 'the folder holds no run'}); "
            "`tailtap run --resume` measures what is missing"
        )
    return experiment


def _load_run(folder: Path) -> tuple[str, Run]:
    """The experiment's name and the run of one run folder; damage becomes the run's failure."""
    try:
        record = _read_object(folder / "run.json")
    except ValueError as error:
        return "", _make_run(folder.name, {}, None, f"run.json cannot be read: {error}")
    evaluation, failure = None, ""
    status = str(record.get("status", ""))
    if status != "done":
        reason = str(record.get("error") or "")
        known = {"running": "the run was never finished", "interrupted": "interrupted"}
        failure = reason or known.get(status, f"status {status!r} without a reason")
    else:
        try:
            evaluation = load_evaluation(folder / "evaluation")
        except InputError as error:
            failure = str(error)
    return str(record.get("name") or ""), _make_run(folder.name, record, evaluation, failure)


def _bare_evaluation(folder: Path) -> tuple[str, Run]:
    evaluation = load_evaluation(folder)
    return "", _make_run(folder.resolve().name, {"number": 1, "status": "done"}, evaluation, "")


def _make_run(
    slug: str, record: Mapping[str, Any], evaluation: Evaluation | None, failure: str
) -> Run:
    taps = _mapping(record, "taps")
    return Run(
        number=_integer(record.get("number")),
        slug=str(record.get("slug") or slug),
        repeat=_integer(record.get("repeat")) or 1,
        status=str(record.get("status", "failed")),
        failure=failure,
        variables={str(k): str(v) for k, v in _mapping(record, "variables").items()},
        parameters=_mapping(record, "parameters"),
        generator=_mapping(record, "generator"),
        taps={str(side): _mapping(taps, side) for side in taps},
        steal_ns={str(k): _integer(v) for k, v in _mapping(record, "steal_ns").items()},
        warnings=tuple(_notices(record)),
        environment=_mapping(record, "environment"),
        started=str(record.get("started") or ""),
        evaluation=evaluation,
    )


def load_evaluation(folder: Path) -> Evaluation:
    """Read one evaluation folder. Raises `InputError` when it is damaged or has no latency."""
    stored = StoredEvaluation.load(folder)
    if not stored.distribution[0].size:
        raise InputError(f"{folder}: no latency: no packet was seen on both sides")
    return _as_shown(stored)


def experiment_of(stored: StoredEvaluation, name: str) -> Experiment:
    """An evaluation as an experiment of one run, called `name`."""
    run = _make_run(name, {"number": 1, "status": "done"}, _as_shown(stored), "")
    return Experiment(name, Path(), (run,))


def _as_shown(stored: StoredEvaluation) -> Evaluation:
    latencies, counts = stored.distribution
    worst = stored.worst_packets
    first = _mapping(stored.inputs, "ingress").get("first_ns")
    origin = int(worst.ingress_ns.min(initial=0)) if first is None else int(first)
    return Evaluation(
        counts={name: int(count) for name, count in stored.counts.items()},
        loss=stored.loss,
        percentiles=tuple(stored.percentiles()),
        curve_percentiles=tuple(stored.percentiles(_band_percentiles(int(counts.sum())))),
        latencies=latencies,
        latency_counts=counts,
        histogram=stored.histogram(),
        worst_latency=worst.latency_ns,
        worst_time=(worst.ingress_ns - origin) / 1e9,
        gaps={side: stored.gaps(side) for side in SIDES},
        rate_start={side: (stored.rates(side)[0] - origin) / 1e9 for side in SIDES},
        rate_packets={side: stored.rates(side)[1] for side in SIDES},
        warnings=tuple(Warning(w.code, w.message) for w in stored.warnings),
    )


def _band_percentiles(packets: int) -> list[float]:
    """Percentiles for a smooth confidence band, evenly spaced over log 1/(1-p)."""
    decades = np.log10(max(packets, 2))
    return [float(p) for p in 1 - np.logspace(0, -decades, int(decades * BAND_STEPS) + 1)[1:-1]]


def _notices(record: Mapping[str, Any]) -> Iterator[Warning]:
    rows = record.get("warnings")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            yield Warning(str(row.get("code", "")), str(row.get("message", "")))


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `ValueError` with one line when there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(error.strerror or type(error).__name__) from None
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def _mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _integer(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0

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
import pyarrow as pa
import pyarrow.parquet as pq

from tailtap.errors import InputError

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SIDES = ("ingress", "egress")


@dataclass(frozen=True)
class Percentile:
    """One order statistic with its 95 % confidence interval; all latencies in ns."""

    p: float
    value: int
    low: int | None
    high: int | None
    above: int
    supported: bool


@dataclass(frozen=True)
class Histogram:
    """Counts of buckets of one `width`, by lower edge; edges and width in ns."""

    edges: Integers
    counts: Integers
    width: int


@dataclass(frozen=True)
class Notice:
    """A warning about the quality of a measurement."""

    code: str
    message: str


@dataclass(frozen=True)
class Evaluation:
    """The tables of one evaluation. Latencies in ns, times in seconds since the first packet."""

    key: str
    counts: Mapping[str, int]
    minimum: int
    mean: float
    maximum: int
    percentiles: tuple[Percentile, ...]
    """The percentiles that the evaluation lists by default."""
    curve_percentiles: tuple[Percentile, ...]
    """All percentiles of percentiles.parquet, ascending: the source of the confidence band."""
    latencies: Integers
    """Distinct latencies, ascending, and how often each occurred."""
    latency_counts: Integers
    histogram: Histogram
    worst_latency: Integers
    worst_time: Floats
    gaps: Mapping[str, Histogram]
    rate_start: Mapping[str, Floats]
    rate_packets: Mapping[str, Integers]
    warnings: tuple[Notice, ...]
    inputs: Mapping[str, Any]

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
    def loss(self) -> float:
        """Lost packets as a share of those that should have come out; 0 when there are none."""
        lost, matched = self.counts.get("lost", 0), self.counts.get("matched", 0)
        return lost / (lost + matched) if lost + matched else 0.0


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
    warnings: tuple[Notice, ...]
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
    """Read the tables of one evaluation folder. Raises `InputError` naming the file at fault."""
    try:
        record = _read_object(folder / "evaluation.json")
    except ValueError as error:
        raise InputError(f"no evaluation: evaluation.json cannot be read: {error}") from None
    counts = {k: _integer(v) for k, v in _mapping(record, "counts").items()}
    options, inputs = _mapping(record, "options"), _mapping(record, "inputs")
    summary = _mapping(record, "latency_ns")
    distribution = _columns(folder, "distribution", "latency_ns", "count")
    worst = _columns(folder, "worst", "latency_ns", "ingress_ns")
    rates = _columns(folder, "rates", "side", "start_ns", "packets")
    gaps = _columns(folder, "gaps", "side", "bucket_ns", "count")
    if not distribution["count"].size:
        raise InputError("no latency: no packet was seen on both sides")
    starts = [rates["start_ns"].min()] if rates["start_ns"].size else []
    starts += [worst["ingress_ns"].min()] if worst["ingress_ns"].size else []
    first = _mapping(inputs, "ingress").get("first_ns")
    origin = _integer(first) if first is not None else int(min(starts, default=0))
    listed = summary.get("percentiles")
    return Evaluation(
        key=str(record.get("key", "")),
        counts=counts,
        minimum=int(distribution["latency_ns"][0]),
        mean=float(np.average(distribution["latency_ns"], weights=distribution["count"])),
        maximum=int(distribution["latency_ns"][-1]),
        percentiles=tuple(_percentiles(listed if isinstance(listed, list) else [])),
        curve_percentiles=tuple(_percentiles(_table(folder, "percentiles").to_pylist())),
        latencies=distribution["latency_ns"],
        latency_counts=distribution["count"],
        histogram=_latency_histogram(folder, options.get("bucket_ns")),
        worst_latency=worst["latency_ns"],
        worst_time=(worst["ingress_ns"] - origin) / 1e9,
        gaps={side: _gap_histogram(gaps, side, options.get("bucket_ns")) for side in SIDES},
        rate_start={s: (rates["start_ns"][rates["side"] == s] - origin) / 1e9 for s in SIDES},
        rate_packets={s: rates["packets"][rates["side"] == s] for s in SIDES},
        warnings=tuple(_notices(record)),
        inputs=inputs,
    )


def _latency_histogram(folder: Path, width: object) -> Histogram:
    columns = _columns(folder, "histogram", "bucket_ns", "count")
    return _histogram(columns["bucket_ns"], columns["count"], width)


def _gap_histogram(columns: Mapping[str, Integers], side: str, width: object) -> Histogram:
    chosen = columns["side"] == side
    return _histogram(columns["bucket_ns"][chosen], columns["count"][chosen], width)


def _histogram(edges: Integers, counts: Integers, width: object) -> Histogram:
    """A histogram; a width that is not recorded is the smallest distance of two edges."""
    order = np.argsort(edges)
    steps = np.diff(edges[order])
    fallback = int(steps.min()) if steps.size else 1
    return Histogram(edges[order], counts[order], max(_integer(width) or fallback, 1))


def _percentiles(rows: list[Any]) -> Iterator[Percentile]:
    for row in rows:
        low, high = row.get("low"), row.get("high")
        yield Percentile(
            p=float(row["p"]),
            value=int(row["value"]),
            low=None if low is None else int(low),
            high=None if high is None else int(high),
            above=int(row["above"]),
            supported=bool(row["supported"]),
        )


def _notices(record: Mapping[str, Any]) -> Iterator[Notice]:
    rows = record.get("warnings")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            yield Notice(str(row.get("code", "")), str(row.get("message", "")))


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `ValueError` with one line when there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(error.strerror or type(error).__name__) from None
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def _table(folder: Path, name: str) -> Any:
    try:
        return pq.read_table(folder / f"{name}.parquet")
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"evaluation/{name}.parquet cannot be read: {reason}") from None


def _columns(folder: Path, name: str, *wanted: str) -> dict[str, Integers]:
    table = _table(folder, name)
    missing = [column for column in wanted if column not in table.column_names]
    if missing:
        raise InputError(f"evaluation/{name}.parquet has no column {missing[0]!r}")
    return {column: table[column].to_numpy() for column in wanted}


def _mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _integer(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0

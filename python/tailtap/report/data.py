"""An experiment folder, read into small typed values.

What the report needs and nothing more: the runs as `run.json` describes them, and for each
finished run the tables of its evaluation. A folder that is itself one evaluation (the output of
`tailtap evaluate --out`) or one run is read as an experiment of one run. Runs that were imported
into the folder's database come with it (`imported.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tailtap.errors import InputError
from tailtap.evaluation import Evaluation as StoredEvaluation
from tailtap.evaluation import Warning
from tailtap.evaluation.model import SIDES
from tailtap.evaluation.overload import overload
from tailtap.files import read_json
from tailtap.report.imported import load_imported
from tailtap.report.searched import Search, read_search
from tailtap.report.values import Evaluation, Experiment, Run, mapping

BAND_STEPS = 24
"""Percentiles in each decade of 1/(1-p) whose confidence limits make the band."""


def load_experiment(folder: Path) -> Experiment:
    """Read an experiment folder, a run folder or an evaluation folder.

    Runs that were imported into its `results.duckdb` come with it; a folder with nothing else is
    an experiment of these. Raises `InputError` when `folder` is none of them, or holds no run with
    an evaluation.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder that `tailtap run` wrote")
    database = folder / "results.duckdb"
    if (folder / "runs").is_dir():
        run_folders = sorted(path.parent for path in folder.glob("runs/*/run.json"))
        pairs = [_load_run(path) for path in run_folders]
    elif (folder / "run.json").is_file():
        pairs = [_load_run(folder)]
    elif (folder / "evaluation.json").is_file():
        pairs = [_bare_evaluation(folder)]
    elif database.is_file():
        pairs = []
    else:
        raise InputError(
            f"{folder}: no experiment folder (no runs/*/run.json, no evaluation.json, no "
            "results.duckdb); give the folder that `tailtap run --out`, `tailtap evaluate --out` "
            "or `tailtap import --into` wrote"
        )
    warnings = []
    try:
        imported = load_imported(database) if database.is_file() else []
    except InputError as error:
        if not pairs:
            raise
        imported = []
        warnings.append(Warning("imports-unreadable", f"imported runs are left out: {error}"))
    names = [name for name, _ in pairs if name]
    trees = {run.origin.tree for run in imported if run.origin}
    if not pairs and len(trees) == 1:
        names = list(trees)
    runs = sorted([*(run for _, run in pairs), *imported], key=lambda run: (run.number, run.slug))
    name = names[0] if names else folder.resolve().name
    return with_result(Experiment(name, folder, tuple(runs), tuple(warnings)))


def load_search(folder: Path) -> tuple[Experiment, Search]:
    """Read the folder of a search: the latencies at the rates found, or else the trials.

    Raises `InputError` when it is damaged, or there is no run with an evaluation.
    """
    record = folder / "search.json"
    found = read_search(record, read_json(record))
    measured = [inner for inner in ("latency", "trials") if any(folder.glob(f"{inner}/runs/*/"))]
    if not measured:
        raise InputError(f"{folder}: this search has no trial yet; tailtap search --resume goes on")
    experiment = load_experiment(folder / measured[0])
    warnings = (*found.warnings, *experiment.warnings)
    return replace(experiment, folder=folder, warnings=warnings), found


def planned_runs(experiment: Experiment) -> list[Run]:
    """The runs that the experiment's plan has and its folder has not: they were never made."""
    try:
        plan = read_json(experiment.folder / "plan.json")
    except InputError:
        return []
    made = {run.number for run in experiment.own}
    rows = plan.get("runs")
    return [
        _make_run(
            "", {**row, "status": "planned"}, None, "never made; tailtap run --resume goes on"
        )
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and _integer(row.get("number")) not in made
    ]


def with_result(experiment: Experiment) -> Experiment:
    """The experiment itself. Raises `InputError` when no run of it has an evaluation."""
    if not experiment.finished:
        reasons = "; ".join(f"{run.slug}: {run.failure}" for run in experiment.failed[:3])
        raise InputError(
            f"{experiment.folder}: no finished run to report "
            f"({reasons or 'the folder holds no run'}); "
            "`tailtap run --resume` measures what is missing"
        )
    return experiment


def _load_run(folder: Path) -> tuple[str, Run]:
    """The experiment's name and the run of one run folder; damage becomes the run's failure."""
    try:
        record = read_json(folder / "run.json")
    except InputError as error:
        return "", _make_run(folder.name, {}, None, str(error))
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
    run = _make_run(folder.name, record, evaluation, failure, folder / "evaluation")
    return str(record.get("name") or ""), run


def _bare_evaluation(folder: Path) -> tuple[str, Run]:
    evaluation = load_evaluation(folder)
    record = {"number": 1, "status": "done"}
    return "", _make_run(folder.resolve().name, record, evaluation, "", folder)


def _make_run(
    slug: str,
    record: Mapping[str, Any],
    evaluation: Evaluation | None,
    failure: str,
    folder: Path | None = None,
) -> Run:
    taps = mapping(record, "taps")
    platform = mapping(mapping(record, "parameters"), "dut").get("platform")
    warnings = list(_notices(record))
    if evaluation and all(warning.code != "overload" for warning in warnings):
        # A bare evaluation and the runs of older versions have no such warning of their own.
        lost, offered = evaluation.counts["lost"], evaluation.offered or 0
        notice = overload(lost, offered, has_dut=platform != "wire")
        warnings += [] if notice is None else [notice]
    return Run(
        number=_integer(record.get("number")),
        slug=str(record.get("slug") or slug),
        repeat=_integer(record.get("repeat")) or 1,
        status=str(record.get("status", "failed")),
        failure=failure,
        variables={str(k): as_words(v) for k, v in mapping(record, "variables").items()},
        parameters=mapping(record, "parameters"),
        generator=mapping(record, "generator"),
        taps={str(side): mapping(taps, side) for side in taps},
        steal_ns={str(k): _integer(v) for k, v in mapping(record, "steal_ns").items()},
        counters=mapping(record, "counters"),
        warnings=tuple(warnings),
        environment=mapping(record, "environment"),
        started=str(record.get("started") or ""),
        evaluation=evaluation,
        valid=valid if isinstance(valid := record.get("valid"), bool) else None,
        folder=folder,
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
    first = mapping(stored.inputs, "ingress").get("first_ns")
    origin = int(worst.ingress_ns.min(initial=0)) if first is None else int(first)
    return Evaluation(
        counts={name: int(count) for name, count in stored.counts.items()},
        packets=int(counts.sum()),
        offered=stored.counts["matched"] + stored.counts["lost"],
        maximum=stored.max,
        mean=stored.mean,
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


def _integer(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def as_words(value: object) -> str:
    """A varied value as people read it: ``suricata (rules many)`` of the mapping of that name."""
    if not isinstance(value, Mapping):
        return str(value)
    parts: list[str] = []
    for key, inner in value.items():
        words = as_words(inner)
        if isinstance(inner, Mapping):
            parts.append(f"{key} ({words})" if inner else str(key))
        else:
            parts.append(f"{key} {words}")
    return ", ".join(parts)

"""Runs to compare, read from wherever they lie: run folders, evaluations, imported results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailtap.errors import InputError
from tailtap.evaluation import Evaluation, Percentile
from tailtap.evaluation.percentiles import DEFAULT
from tailtap.report.imported import load_imported
from tailtap.report.values import Origin, mapping
from tailtap.report.values import Run as ShownRun
from tailtap.store.sources import StoredRun, find_runs, find_unfinished
from tailtap.tail.stored import rate_of

#: Published percentiles are fractions in floating point; this near is the same.
_SAME = 1e-6
INVALID = "invalid: the generator did not send what was asked of it"


@dataclass(frozen=True)
class Sample:
    """One run: what a comparison needs to know of it. Latencies in ns; None where nobody says."""

    name: str
    repeat: int
    #: Runs of different origins are never repeats of each other.
    root: str
    variables: Mapping[str, str]
    #: The content of `run.json`; empty for what is no run of ours.
    record: Mapping[str, Any]
    origin: Origin | None = None
    #: The folder of its evaluation.
    folder: Path | None = None
    #: Packets a second before the device, as measured or as the published name says.
    rate: float | None = None
    packets: int | None = None
    lost: int | None = None
    maximum: int | None = None
    #: The clock of the stamps, where the evaluation says.
    clock: str | None = None
    #: Codes of the warnings that are stored with it.
    doubts: frozenset[str] = frozenset()
    #: Why it cannot be compared; empty where it can.
    excluded: str = ""
    evaluation: Evaluation | None = field(default=None, repr=False)
    published: tuple[Percentile, ...] = field(default=(), repr=False)

    @property
    def loss(self) -> float | None:
        """Lost packets as a share of those whose fate is known."""
        if self.lost is None or self.packets is None:
            return None
        known = self.packets + self.lost
        return self.lost / known if known else 0.0

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of a run of ours."""
        return mapping(self.record, "parameters")

    @property
    def environment(self) -> Mapping[str, Any]:
        """The environment of a run of ours."""
        return mapping(self.record, "environment")

    def percentile(self, p: float) -> Percentile | None:
        """The percentile `p` (0 to 1), 1 being the maximum; None where it is not known."""
        if self.evaluation is not None:
            return self.evaluation.percentile(p)
        if p == 1:
            top = self.maximum
            return None if top is None else Percentile(1.0, top, None, None, 0, False)
        near = (row for row in self.published if math.isclose(1 - row.p, 1 - p, rel_tol=_SAME))
        return next(near, None)

    def supported(self) -> frozenset[float] | None:
        """The default percentiles with enough packets above them; None where nobody says."""
        if self.packets is None:
            return None
        found = ((p, self.percentile(p)) for p in DEFAULT)
        return frozenset(p for p, row in found if row is not None and row.supported)


def read(
    sources: Sequence[tuple[str, Path]], progress: Callable[[str], None] = lambda _: None
) -> list[Sample]:
    """The runs of all `sources`, each a name (or "") and a path; none is read twice.

    Raises `InputError` when a path holds no runs.
    """
    found: dict[object, Sample] = {}
    for name, path in sources:
        progress(f"reading {path}")
        for sample in _read(name, path):
            found.setdefault(_identity(sample), sample)
    return list(found.values())


def _identity(sample: Sample) -> object:
    if sample.folder is not None:
        return sample.folder.resolve()
    return sample.root, sample.name, sample.origin.source if sample.origin else ""


def _read(name: str, path: Path) -> Iterator[Sample]:
    if path.is_file() and path.suffix == ".duckdb":
        yield from (_imported(name, run) for run in load_imported(path))
        return
    database = path / "results.duckdb"
    whole = (path / "runs").is_dir()
    one = any((path / record).is_file() for record in ("run.json", "evaluation.json"))
    if not whole and not one and not database.is_file():
        if path.is_dir() and any(path.rglob("latencies-*.csv*")):
            raise InputError(
                f"{path}: these are published result files: tailtap import {path} --into DIR puts "
                "them into a database that can be compared"
            )
        raise InputError(
            f"{path}: no run, experiment or imported results (no runs/*/run.json, run.json, "
            "evaluation.json, results.duckdb); give a folder that tailtap run, evaluate --out or "
            "import --into wrote"
        )
    if whole or one:
        unfinished = find_unfinished(path)
        for slug, record, reason in unfinished:
            yield _own(name, path, StoredRun(0, slug, "", record, path), reason)
        every = len(list(path.glob("runs/*/run.json"))) if whole else 1
        if len(unfinished) < every or not every:
            yield from (_own(name, path, run) for run in find_runs(path))
    if database.is_file():
        yield from (_imported(name, run) for run in load_imported(database))


def _own(name: str, path: Path, run: StoredRun, reason: str = "") -> Sample:
    record, folder = run.record, run.folder
    if not record:
        root = name or str(path.resolve())
    else:
        # An experiment's folder holds `runs`, which holds the run's.
        base = folder.parent.parent.parent if not reason else path
        root = name or str(base.resolve())
    common: dict[str, Any] = {
        "name": run.slug,
        "repeat": run.repeat,
        "root": root,
        "variables": {str(key): str(value) for key, value in run.variables.items()},
        "record": record,
    }
    if reason:
        return Sample(**common, excluded=reason)
    try:
        evaluation = run.evaluation()
    except InputError as error:
        return Sample(**common, folder=folder, excluded=str(error))
    if record.get("valid") is False:
        reason = INVALID
    elif not evaluation.distribution[0].size:
        reason = "no packet was seen on both sides of the device"
    return Sample(
        **common,
        folder=folder,
        rate=run.rate or rate_of(evaluation.inputs["ingress"]) or None,
        packets=evaluation.counts["matched"],
        lost=evaluation.counts["lost"],
        maximum=evaluation.max if evaluation.distribution[0].size else None,
        clock=evaluation.inputs["ingress"].get("clock"),
        doubts=frozenset([*_codes(record), *(warning.code for warning in evaluation.warnings)]),
        excluded=reason,
        evaluation=evaluation,
    )


def _codes(record: Mapping[str, Any]) -> Iterator[str]:
    rows = record.get("warnings")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            yield str(row.get("code"))


def _imported(name: str, run: ShownRun) -> Sample:
    assert run.origin is not None  # by the definition of `load_imported`
    place = run.origin.path
    return of_report(run, f"{name}/{place}" if name else place)


def of_report(run: ShownRun, root: str) -> Sample:
    """A run as a report knows it: by its percentiles, without times."""
    found = run.evaluation
    reason = run.failure
    if found is None and not reason:
        reason = "it has no result"
    elif found is not None and run.valid is False:
        reason = INVALID
    elif found is not None and not found.curve_percentiles:
        reason = "no percentiles are published of it"
    record = {} if run.origin else {"parameters": run.parameters, "environment": run.environment}
    percentiles: tuple[Percentile, ...] = ()
    if found is not None:
        percentiles = found.curve_percentiles if run.origin else found.percentiles
    return Sample(
        name=run.slug,
        repeat=run.repeat,
        root=root,
        variables=dict(run.variables),
        record=record,
        origin=run.origin,
        rate=run.rate,
        packets=found.packets if found else None,
        lost=found.counts.get("lost") if found else None,
        maximum=found.maximum if found else None,
        doubts=frozenset(warning.code for warning in run.warnings),
        excluded=reason,
        published=percentiles,
    )

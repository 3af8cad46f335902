"""The one reader of runs: own folders, evaluations and imported runs.

A run whose files are damaged is a run without a result, which says why; a folder without any run
is an error.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.model import SIDES
from tailtap.analysis.evaluation.values import Pair
from tailtap.analysis.runs.folder import RAW, resumed
from tailtap.analysis.runs.imported import load_imported
from tailtap.analysis.runs.run import Experiment, Run, RunEvaluation
from tailtap.analysis.runs.searched import Search, told
from tailtap.analysis.runs.text import as_words
from tailtap.base.document import load
from tailtap.base.errors import InputError
from tailtap.base.files import file_name
from tailtap.base.foreign import files_below, require_regular
from tailtap.records.record import Notice, read
from tailtap.records.run import Plan, PlanRow, RunRecord
from tailtap.records.search import SearchRecord

BAND_STEPS = 24
"""Percentiles in each decade of 1/(1-p) whose confidence limits make the band."""
WHOLE = 0.99
"""How long packets came in a second that counts as one, in s: the last is a gap short."""
DATABASE = "results.duckdb"
_UNFINISHED = {"running": "the run was never finished", "interrupted": "interrupted"}


def read_runs(path: Path, *, imported: bool = True) -> Experiment:
    """All runs at `path`, finished or not, in the order of their numbers.

    `path` is an experiment folder, a run folder, a folder of run folders, the folder of a search,
    what `tailtap evaluate --out` wrote, or a folder or database with imported runs. With
    `imported` false the runs of a database are left out. Raises `InputError` when it is none of
    these.
    """
    if path.is_file() and path.suffix == ".duckdb":
        database, name, pairs = path, path.stem, []
    elif not path.is_dir():
        if path.is_file():
            raise InputError(
                "this is a file: give the folder that `tailtap run` wrote; "
                "`tailtap evaluate` takes captures"
            ).at(path)
        raise InputError("no such folder; give the folder that `tailtap run` wrote").at(path)
    elif (path / "search.json").is_file():
        measured = read_runs(_measured(path), imported=imported)
        own = tuple(replace(run, top=path) for run in measured.runs)
        return replace(measured, folder=path, runs=own)
    else:
        database, name = path / DATABASE, path.resolve().name
        pairs = [own_run(folder, path) for folder in run_folders(path)]
        if not pairs and (path / "evaluation.json").is_file():
            pairs = [
                Run(
                    name,
                    experiment=name,
                    home=path,
                    top=path,
                    folder=path,
                    read=partial(_load, path),
                )
            ]
        elif not pairs and not (path / "runs").is_dir() and not database.is_file():
            raise InputError(_no_runs(path))
    found: list[Run] = []
    warnings = []
    if imported and database.is_file():
        try:
            found = load_imported(database)
        except InputError as error:
            if not pairs:
                raise
            text = f"imported runs are left out: {error}"
            warnings.append(Notice("imports-unreadable", text))
    trees = {run.experiment for run in found}
    names = [run.experiment for run in pairs if run.record and run.experiment]
    if not pairs and len(trees) == 1:
        names = list(trees)
    runs = sorted([*pairs, *found], key=lambda run: (run.number, run.slug))
    folder = path.parent if path.is_file() else path
    return Experiment(names[0] if names else name, folder, tuple(runs), tuple(warnings))


def load_experiment(path: Path) -> Experiment:
    """The same where a run has a result. Raises `InputError` when none has."""
    return with_result(read_runs(path))


def load_search(folder: Path) -> tuple[Experiment, Search]:
    """Read the folder of a search: the latencies at the rates found, or else the trials.

    Raises `InputError` when it is damaged, or there is no run with an evaluation.
    """
    found = told(read(folder / "search.json", SearchRecord))
    experiment = load_experiment(folder)
    return replace(experiment, warnings=(*found.warnings, *experiment.warnings)), found


def finished_runs(path: Path, *, imported: bool = False) -> list[Run]:
    """The finished runs that were measured or evaluated here; where there are none, and with
    `imported`, those of others.

    Raises `InputError` when there is none, or when a record is damaged.
    """
    runs = read_runs(path, imported=imported).runs
    for run in runs:
        if run.status == "damaged":
            raise InputError(run.error)
    finished = [run for run in runs if run.status == "done"]
    if imported and not any(run.origin is None for run in runs):
        finished = [run for run in runs if run.evaluation is not None]
    if not finished:
        raise InputError(f"no run of it was finished{resumed(path)}").at(path)
    return finished


def planned_runs(experiment: Experiment) -> list[Run]:
    """The runs that the experiment's plan has and its folder has not: they were never made.

    Raises `InputError` for a damaged plan: what is missing is then not known.
    """
    path = experiment.folder / "plan.json"
    if not path.exists():
        return []
    plan = read(path, Plan)
    made = {run.number for run in experiment.own}
    return [
        replace(
            _planned(row, experiment.folder, path),
            status="planned",
            experiment=plan.name,
            record=RunRecord(
                number=row.number,
                slug=row.slug,
                repeat=row.repeat,
                variables=row.variables,
                parameters=row.parameters,
                name=plan.name,
                status="interrupted",
                warnings=[],
            ),
            error=f"never made{resumed(experiment.folder)}",
        )
        for row in plan.runs
        if row.number not in made
    ]


def run_folders(path: Path) -> list[Path]:
    """The run folders of an experiment, of a folder of run folders, or the run folder itself."""
    if (path / "run.json").is_file():
        return [path]
    inside = path / "runs" if (path / "runs").is_dir() else path
    return sorted(record.parent for record in inside.glob("*/run.json"))


def with_result(experiment: Experiment) -> Experiment:
    """The experiment itself. Raises `InputError` when no run of it has an evaluation."""
    if not experiment.finished:
        reasons = "; ".join(f"{run.slug}: {run.failure}" for run in experiment.failed[:3])
        raise InputError(
            "no finished run to report "
            f"({reasons or 'the folder holds no run'}){resumed(experiment.folder)}"
        ).at(experiment.folder)
    return experiment


def required_texts(folder: Path) -> tuple[object, str]:
    """The `require` of a folder's experiment file as written, and its place; [] without one.

    Raises `InputError` when the file cannot be read.
    """
    file = folder / "experiment.yaml"
    if not file.is_file():
        return [], str(file)
    document = load(file)
    return document.data.get("require", []), document.place(("require",))


def home_of(path: Path) -> Path:
    """The experiment's folder that a folder is, or belongs to; else the folder itself."""
    if (path / "run.json").is_file() and path.absolute().parent.name == "runs":
        return path.absolute().parent.parent
    return path.absolute()


def require_own(folder: Path) -> None:
    """Raise `InputError` where what was measured of a run is no file of its experiment's folder.

    What cannot be opened is left to whoever reads it.
    """
    for kind in RAW:
        for path in folder.glob(kind):
            try:
                require_regular(path, home_of(folder))
            except ValueError as error:
                raise InputError(f"put the file itself there: {error}").at(path) from error
            except OSError:
                continue


def _no_runs(path: Path) -> str:
    """Why nothing was found."""
    names = [file.name for file in files_below(path)]
    if any(fnmatch(name, "latencies-*.csv*") for name in names):
        return (
            f"{path}: these are published result files: "
            f"`tailtap import {path} --into DIR` puts them into a database"
        )
    if any(fnmatch(name, "*_run*.loop") for name in names):
        return (
            f"{path}: this is a result tree of pos: "
            f"`tailtap import {path} --into DIR` puts its runs into a database"
        )
    return (
        f"{path}: no runs in it (no runs/*/run.json, */run.json, run.json, evaluation.json, "
        f"search.json or {DATABASE}); give the folder that `tailtap run --out`, "
        "`tailtap search --out`, `tailtap evaluate --out` or "
        "`tailtap import --into` wrote"
    )


def _measured(folder: Path) -> Path:
    """The runs of a search: at the rates found, or else the trials. Raises `InputError`."""
    measured = [inner for inner in ("latency", "trials") if any(folder.glob(f"{inner}/runs/*/"))]
    if not measured:
        raise InputError("this search has no trial yet; tailtap search --resume goes on").at(folder)
    return folder / measured[0]


def own_run(folder: Path, top: Path) -> Run:
    """The run of a run folder; damage becomes the reason why it has no result."""
    home = home_of(folder)
    home = folder.absolute().parent if home == folder.absolute() else home
    try:
        require_own(folder)
        record = read(folder / "run.json", RunRecord)
        run = _planned(record, home, folder / "run.json")
    except InputError as error:
        return Run(folder.name, 0, status="damaged", home=home, error=str(error))
    run = replace(
        run,
        status=record.status,
        experiment=record.name,
        record=record,
        top=top,
        folder=folder / "evaluation",
        notes=tuple(record.warnings),
        read=partial(
            _load,
            folder / "evaluation",
            sum(event.around.lost for event in record.events if event.around is not None),
        ),
    )
    if record.status == "done":
        return run
    known = _UNFINISHED.get(record.status, f"status {record.status!r} without a reason")
    return replace(run, error=record.error or known)


def _planned(row: PlanRow | RunRecord, home: Path, file: Path) -> Run:
    return Run(
        slug=file_name(row.slug, f"{file}: slug"),
        number=row.number,
        repeat=row.repeat,
        variables={name: as_words(value) for name, value in row.variables.items()},
        home=home,
    )


def _load(folder: Path, lost_around_events: int = 0) -> RunEvaluation:
    """Read one evaluation folder. Raises `InputError` when it is damaged or has no latency."""
    stored = Evaluation.load(folder)
    if not stored.distribution[0].size:
        raise InputError("no latency: no packet was seen on both sides").at(folder)
    return replace(as_shown(stored), lost_around_events=lost_around_events)


def experiment_of(stored: Evaluation, name: str) -> Experiment:
    """An evaluation as an experiment of one run, called `name`."""
    return Experiment(name, Path(), (Run(name, read=partial(as_shown, stored)),))


def as_shown(stored: Evaluation) -> RunEvaluation:
    """An evaluation as figures and tables need it."""
    latencies, counts = stored.distribution
    worst = stored.worst_packets
    origin = stored.inputs.ingress.first_ns
    burst_ns, burst_packets = stored.lost_packets.bursts
    rates = {side: _rates(stored, side) for side in SIDES}
    return RunEvaluation(
        counts=msgspec.structs.asdict(stored.counts),
        packets=int(counts.sum()),
        offered=stored.counts.matched + stored.counts.lost,
        maximum=stored.max,
        mean=stored.mean,
        percentiles=tuple(stored.percentiles()),
        curve_percentiles=tuple(stored.percentiles(_band_percentiles(int(counts.sum())))),
        latencies=latencies,
        latency_counts=counts,
        histogram=stored.histogram(),
        worst_latency=worst.latency_ns,
        worst_time=(worst.ingress_ns - origin) / 1e9,
        burst_time=(burst_ns - origin) / 1e9,
        burst_packets=burst_packets,
        gaps={side: stored.gaps(side) for side in SIDES},
        rate_start={side: (rates[side][0] - origin) / 1e9 for side in SIDES},
        rate_packets={side: rates[side][1] for side in SIDES},
        warnings=tuple(stored.warnings),
        stored=stored,
    )


def _rates(stored: Evaluation, side: str) -> Pair:
    """Start of each second (ns) and the packets in it, as far as the packets last.

    The second in which they end is left out, as its count is no rate. Where there is no other, it
    counts as much as a whole one would.
    """
    start, packets = stored.rates(side)
    if not start.size:
        return start, packets
    last = (stored.inputs.ingress if side == "ingress" else stored.inputs.egress).last_ns
    lasted = (last - int(start[-1])) / 1e9
    if lasted >= WHOLE:
        return start, packets
    if start.size > 1:
        return start[:-1], packets[:-1]
    return start, np.rint(packets / max(lasted, 1e-3)).astype(np.int64)


def _band_percentiles(packets: int) -> list[float]:
    """Percentiles for a smooth confidence band, evenly spaced over log 1/(1-p)."""
    decades = np.log10(max(packets, 2))
    return [float(p) for p in 1 - np.logspace(0, -decades, int(decades * BAND_STEPS) + 1)[1:-1]]

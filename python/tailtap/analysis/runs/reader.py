"""The one reader of runs, whoever made them.

A run whose files are damaged is a run without a result, which says why; a folder without any run
is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePath

import msgspec
import numpy as np
import pyarrow as pa

from tailtap.analysis.evaluation import Evaluation, Histogram, Percentile
from tailtap.analysis.evaluation import tables as files
from tailtap.analysis.evaluation.model import EVALUATION, SIDES
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.evaluation.percentiles import DEFAULT
from tailtap.analysis.evaluation.values import Pair
from tailtap.analysis.runs.folder import RAW, resumed
from tailtap.analysis.runs.run import Experiment, Origin, Run, RunEvaluation
from tailtap.analysis.runs.text import as_words, warnings_of
from tailtap.base.document import load
from tailtap.base.errors import InputError
from tailtap.base.files import file_name, read_json
from tailtap.base.foreign import files_below, require_regular
from tailtap.records.evaluation import EvaluationRecord, PartialEvaluation
from tailtap.records.record import Notice, parsed, read, tag_of
from tailtap.records.run import Plan, PlanRow, RunRecord
from tailtap.records.search import SearchRecord

BAND_STEPS = 24
"""Percentiles in each decade of 1/(1-p) whose confidence limits make the band."""
WHOLE = 0.99
"""How long packets came in a second that counts as one, in s: the last is a gap short."""
DATABASE = "results.duckdb"
_UNFINISHED = {"running": "the run was never finished", "interrupted": "interrupted"}


def read_runs(path: Path) -> Experiment:
    """All runs at `path`, finished or not, in the order of their numbers.

    `path` is an experiment folder, a run folder, a folder of run folders, the folder of a search,
    or what `tailtap evaluate --out` wrote. Raises `InputError` when it is none of these.
    """
    if path.is_file():
        if path.name == DATABASE and (path.parent / "runs").is_dir():
            return read_runs(path.parent)
        raise InputError(
            "this is a file: give the folder that `tailtap run` or `tailtap import` wrote; "
            "`tailtap evaluate` takes captures"
        ).at(path)
    if not path.is_dir():
        raise InputError("no such folder; give the folder that `tailtap run` wrote").at(path)
    if (path / "search.json").is_file():
        measured = read_runs(_measured(path))
        runs = tuple(replace(run, top=path) for run in measured.runs)
        return replace(measured, folder=path, runs=runs)
    name = path.resolve().name
    found = _with_short_origins([run_in(folder, path) for folder in run_folders(path)])
    if all(run.origin for run in found) and (path / EVALUATION).is_file():
        found.append(
            Run(name, experiment=name, home=path, top=path, folder=path, read=partial(_load, path))
        )
    elif not found and not (path / "runs").is_dir():
        raise InputError(_no_runs(path))
    found.sort(key=lambda run: (run.number, run.slug))
    own = [run.experiment for run in found if run.record and run.experiment and not run.origin]
    trees = {run.experiment for run in found if run.origin}
    names = own or (list(trees) if len(trees) == 1 else [])
    return Experiment(names[0] if names else name, path, tuple(found))


def _with_short_origins(runs: list[Run]) -> list[Run]:
    """The runs, of which imported ones know how little tells their folders apart."""
    short = short_places({run.origin.path for run in runs if run.origin})
    return [
        replace(run, origin=replace(run.origin, short=short[run.origin.path]))
        if run.origin
        else run
        for run in runs
    ]


def short_places(places: set[str]) -> dict[str, str]:
    """Folders without the parts that all of their neighbours share, which tell nothing.

    ``a/measurements/v1`` beside ``a/measurements/v2`` and ``b/v1`` is ``a/v1``. Different folders
    have different names, if need be their own; a folder without neighbours keeps its own.
    """
    below: dict[tuple[str, ...], set[str]] = {}
    for place in places:
        parts = PurePath(place).parts
        for depth, part in enumerate((*parts, "")):
            below.setdefault(parts[:depth], set()).add(part)
    result = {}
    for place in places:
        parts = PurePath(place).parts
        told = [part for depth, part in enumerate(parts) if len(below[parts[:depth]]) > 1]
        result[place] = "/".join(told) or place
    return result if len(set(result.values())) == len(places) else {p: p for p in places}


def load_experiment(path: Path) -> Experiment:
    """The same where a run has a result. Raises `InputError` when none has."""
    return with_result(read_runs(path))


def load_search(folder: Path) -> tuple[Experiment, SearchRecord]:
    """Read the folder of a search: the latencies at the rates found, or else the trials.

    Raises `InputError` when it is damaged, or there is no run with an evaluation.
    """
    found = read(folder / "search.json", SearchRecord)
    experiment = load_experiment(folder)
    return replace(experiment, warnings=(*warnings_of(found), *experiment.warnings)), found


def finished_runs(path: Path) -> list[Run]:
    """The runs that have a result, whoever measured them.

    Raises `InputError` when there is none, or when a record is damaged.
    """
    runs = read_runs(path).runs
    for run in runs:
        if run.status == "damaged":
            raise InputError(run.error)
    finished = [run for run in runs if run.status == "done" or (run.origin and not run.error)]
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
    if (path / DATABASE).is_file():
        return (
            f"{path / DATABASE}: there are no runs beside it: an earlier version put imported runs "
            "into the database alone: import their files again, "
            f"`tailtap import TREE --into {path}`"
        )
    names = [file.name for file in files_below(path)]
    if any(fnmatch(name, "latencies-*.csv*") for name in names):
        return (
            f"{path}: these are published result files: "
            f"`tailtap import {path} --into DIR` makes runs of them"
        )
    if any(fnmatch(name, "*_run*.loop") for name in names):
        return (
            f"{path}: this is a result tree of pos: "
            f"`tailtap import {path} --into DIR` makes runs of it"
        )
    return (
        f"{path}: no runs in it (no runs/*/run.json, */run.json, run.json, evaluation.json, "
        "or search.json); give the folder that `tailtap run --out`, "
        "`tailtap search --out`, `tailtap evaluate --out` or "
        "`tailtap import --into` wrote"
    )


def _measured(folder: Path) -> Path:
    """The runs of a search: at the rates found, or else the trials. Raises `InputError`."""
    measured = [inner for inner in ("latency", "trials") if any(folder.glob(f"{inner}/runs/*/"))]
    if not measured:
        raise InputError("this search has no trial yet; tailtap search --resume goes on").at(folder)
    return folder / measured[0]


def run_in(folder: Path, top: Path) -> Run:
    """The run of a run folder; damage becomes the reason why it has no result."""
    home = home_of(folder)
    home = folder.absolute().parent if home == folder.absolute() else home
    try:
        require_own(folder)
        record = read(folder / "run.json", RunRecord)
        run = _planned(record, home, folder / "run.json")
    except InputError as error:
        return Run(folder.name, 0, status="damaged", home=home, error=str(error))
    lost = sum(event.around.lost for event in record.events if event.around is not None)
    run = replace(
        run,
        status=record.status,
        experiment=record.name,
        record=record,
        top=top,
        folder=folder / "evaluation",
        notes=tuple(record.warnings),
        read=partial(_load, folder / "evaluation", lost),
    )
    if record.status == "imported":
        return _imported(run, record)
    if record.status == "done":
        return run
    known = _UNFINISHED.get(record.status, f"status {record.status!r} without a reason")
    return replace(run, error=record.error or known)


def _imported(run: Run, record: RunRecord) -> Run:
    """A run of others: where it was found is no variable, and is told once, not in each warning."""
    variables = {name: text for name, text in run.variables.items() if name != "source"}
    source = str(record.parameters.whole.get("source", ""))
    notes = (Notice(one.code, one.message.removeprefix(f"{source}: ")) for one in record.warnings)
    return replace(
        run,
        variables=variables,
        origin=Origin(record.name, str(record.variables.get("source", "")), source),
        error=record.error or "",
        notes=tuple(notes),
    )


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
    content = read_json(folder / EVALUATION)
    if content.get("schema") == tag_of(PartialEvaluation):
        record = parsed(folder / EVALUATION, content, PartialEvaluation)
        try:
            return partly_shown(Partial.load(folder, record))
        except (ValueError, OverflowError) as error:
            raise InputError(f"not all of what was imported ({error}); import it again").at(
                folder
            ) from error
    meta = parsed(folder / EVALUATION, content, EvaluationRecord)
    stored = Evaluation.load(folder, meta)
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


def partly_shown(found: Partial) -> RunEvaluation:
    """Results of others as figures and tables need them. Raises `ValueError` for damaged ones."""
    record, tables = found.record, found.tables
    counts, latency, width = record.counts, record.latency_ns, record.bucket_ns
    rows = tables["percentiles"].to_pylist() if "percentiles" in tables else []
    # How many packets are above is 0 where nobody says: then `packets` is None.
    listed = tuple(Percentile(**{**row, "above": row["above"] or 0}) for row in rows)
    worst, arrived = _columns(tables, "worst", "latency_ns", "ingress_ns")
    gaps = _by_side(tables, "gaps", "bucket_ns", "count")
    rates = _by_side(tables, "rates", "start_ns", "packets")
    starts = [start[:1] for start in (rates["ingress"][0], arrived[np.argsort(arrived)])]
    origin = next((int(start[0]) for start in starts if start.size), 0)
    kept = counts.get("ingress")
    maximum = latency.max
    if listed and "matched" in counts and not listed[-1].above:
        maximum = listed[-1].value
    values, times = _columns(tables, "distribution", "latency_ns", "count")
    return RunEvaluation(
        counts=counts,
        packets=counts.get("matched"),
        offered=None if kept is None else kept - counts.get("trimmed_ingress", 0),
        mean=latency.mean,
        maximum=int(worst.max()) if worst.size else maximum,
        percentiles=tuple(row for row in listed if row.p in DEFAULT),
        curve_percentiles=listed,
        latencies=values,
        latency_counts=times,
        histogram=_histogram(_columns(tables, "histogram", "bucket_ns", "count"), width),
        worst_latency=worst,
        worst_time=(arrived - origin) / 1e9,
        gaps={side: _histogram(pair, width) for side, pair in gaps.items()},
        rate_start={side: (rates[side][0] - origin) / 1e9 for side in SIDES},
        rate_packets={side: rates[side][1] for side in SIDES},
        partial=found,
    )


def _columns(tables: Mapping[str, pa.Table], name: str, left: str, right: str) -> Pair:
    nothing = np.empty(0, np.int64)
    return files.pair(tables[name], left, right) if name in tables else (nothing, nothing)


def _by_side(tables: Mapping[str, pa.Table], name: str, left: str, right: str) -> dict[str, Pair]:
    if name in tables:
        return files.of_sides(tables[name], SIDES, (left, right))
    return dict.fromkeys(SIDES, (np.empty(0, np.int64), np.empty(0, np.int64)))


def _histogram(pair: Pair, width: int | None) -> Histogram:
    """Buckets of `width` or, where nobody says it, of the widest that fits the edges."""
    edges, counts = pair
    if np.any(edges[1:] < edges[:-1]):
        raise ValueError("the buckets of a histogram are not in order")
    return Histogram(edges, counts, width or int(np.gcd.reduce(edges)) or 1)


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

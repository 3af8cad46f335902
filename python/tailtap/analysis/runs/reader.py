"""The one reader of runs, whoever made them, and which of them a selection means.

A run whose files are damaged is a run without a result, which says why; a folder without any run
is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch, fnmatchcase
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.model import BACK, EVALUATION, Latencies
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.runs.folder import RAW, resumed
from tailtap.analysis.runs.run import Experiment, Origin, Run
from tailtap.analysis.runs.text import as_words, warnings_of
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.files import file_name, read_json
from tailtap.base.foreign import files_below, require_regular
from tailtap.base.units import parse_rate
from tailtap.records.evaluation import EvaluationRecord, PartialEvaluation
from tailtap.records.record import Notice, parsed, read, tag_of
from tailtap.records.run import Plan, PlanRow, RunRecord

if TYPE_CHECKING:
    from tailtap.records.search import SearchRecord


DATABASE = "results.duckdb"
REASONS = 3
"""So many reasons are given why runs have no result, the most frequent first."""
_UNFINISHED = {"running": "the run was never finished", "interrupted": "interrupted"}


def read_runs(path: Path, *, late: bool = False) -> Experiment:
    """All runs at `path`, finished or not, in the order of their numbers.

    Tables of an evaluation are read with it, so that one which is damaged is no result; those that
    are read `late`, when they are asked for, raise `InputError` then.

    `path` is an experiment folder, a run folder, a folder of run folders, the folder of a search,
    or what `tailtap evaluate --out` wrote. Raises `InputError` when it is none of these.
    """
    if path.is_file():
        if path.name == DATABASE and (path.parent / "runs").is_dir():
            return read_runs(path.parent, late=late)
        raise InputError(
            "this is a file: give the folder that `tailtap run` or `tailtap import` wrote; "
            "`tailtap evaluate` takes captures"
        ).at(path)
    if not path.is_dir():
        raise InputError("no such folder; give the folder that `tailtap run` wrote").at(path)
    if (path / "search.json").is_file():
        measured = read_runs(_measured(path), late=late)
        runs = tuple(replace(run, top=path) for run in measured.runs)
        return replace(measured, folder=path, runs=runs)
    name = path.resolve().name
    found = [run_in(folder, path, late=late) for folder in run_folders(path)]
    # Imported ones know how little tells their folders apart.
    short = short_places({run.origin.path for run in found if run.origin})
    found = [
        replace(run, origin=replace(run.origin, short=short[run.origin.path]))
        if run.origin
        else run
        for run in found
    ]
    if all(run.origin for run in found) and (path / EVALUATION).is_file():
        # Captures of both directions: each is a run, as in an experiment.
        both = {"there": path, BACK: path / BACK} if (path / BACK / EVALUATION).is_file() else {}
        found += [
            Run(
                f"{name}-{way}" if way == BACK else name,
                number=number,
                experiment=name,
                variables={"direction": way} if way else {},
                home=path,
                top=path,
                folder=folder,
                read=partial(_load, folder, late=late),
            )
            for number, (way, folder) in enumerate((both or {"": path}).items(), 1)
        ]
    elif not found and not (path / "runs").is_dir():
        raise InputError(_no_runs(path))
    found.sort(key=lambda run: (run.number, run.slug))
    own = [run.experiment for run in found if run.record and run.experiment and not run.origin]
    trees = {run.experiment for run in found if run.origin}
    names = own or (list(trees) if len(trees) == 1 else [])
    return Experiment(names[0] if names else name, path, tuple(found))


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
    from tailtap.records.search import SearchRecord

    found = read(folder / "search.json", SearchRecord)
    experiment = load_experiment(folder)
    return replace(experiment, warnings=(*warnings_of(found), *experiment.warnings)), found


def finished_runs(path: Path) -> list[Run]:
    """The runs that have a result, whoever measured them; their tables are read late.

    Raises `InputError` when there is none, or when a record is damaged.
    """
    runs = read_runs(path, late=True).runs
    for run in runs:
        if run.status == "damaged":
            raise InputError(run.error)
    finished = [run for run in runs if run.status == "done" or (run.origin and not run.error)]
    if not finished:
        raise _nothing_finished(path, runs)
    return finished


def _nothing_finished(path: Path, runs: Sequence[Run]) -> InputError:
    by_reason = Counter(run.failure for run in runs)
    first = {run.failure: run.slug for run in reversed(runs)}
    said = "; ".join(
        f"{first[reason]}{f' and {times - 1} more' if times > 1 else ''}: {reason}"
        for reason, times in by_reason.most_common(REASONS)
    )
    said = said or "the folder holds no run"
    return InputError(f"no run of it was finished ({said}){resumed(path)}").at(path)


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
        raise _nothing_finished(experiment.folder, experiment.failed)
    return experiment


def required_texts(folder: Path) -> tuple[object, str]:
    """The `require` of a folder's experiment file as written, and its place; [] without one.

    Raises `InputError` when the file cannot be read.
    """
    file = folder / "experiment.yaml"
    if not file.is_file():
        return [], str(file)
    from tailtap.base.document import load

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


def run_in(folder: Path, top: Path, *, late: bool = False) -> Run:
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
        read=partial(_load, folder / "evaluation", lost, late=late),
    )
    if record.status == "imported":
        return _imported(run, record)
    if record.status == "done":
        return run
    known = _UNFINISHED.get(record.status, f"status {record.status!r} without a reason")
    return replace(run, error=record.error or known)


def _without(message: str, source: str) -> str:
    """A message that does not begin with the file that it is about."""
    file, _, words = message.partition(": ")
    return words if words and f"/{source}".endswith(f"/{file}") else message


def _imported(run: Run, record: RunRecord) -> Run:
    """A run of others: where it was found is no variable, and is told once, not in each warning."""
    variables = {name: text for name, text in run.variables.items() if name != "source"}
    source = str(record.parameters.whole.get("source", ""))
    notes = (Notice(one.code, _without(one.message, source)) for one in record.warnings)
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


def _load(folder: Path, lost_around_events: int = 0, *, late: bool = False) -> Latencies:
    """Read one evaluation folder; `late` as `read_runs` has it.

    Raises `InputError` when it is damaged or has no latency.
    """
    content = read_json(folder / EVALUATION)
    if content.get("schema") == tag_of(PartialEvaluation):
        return Partial.load(folder, parsed(folder / EVALUATION, content, PartialEvaluation))
    meta = parsed(folder / EVALUATION, content, EvaluationRecord)
    found = Evaluation.load(folder, meta, late=late)
    if not found.distribution[0].size:
        raise InputError("no latency: no packet was seen on both sides").at(folder)
    return replace(found, lost_around_events=lost_around_events)


def experiment_of(evaluation: Evaluation, name: str) -> Experiment:
    """An evaluation as an experiment of one run, called `name`."""
    return Experiment(name, Path(), (Run(name, read=lambda: evaluation),))


def select(experiment: Experiment, selections: Sequence[str]) -> Experiment:
    """The experiment with only the runs that fit any of `selections`; all when there is none.

    A selection is words with commas between them, all of which must fit a run: ``own`` or
    ``imported``, a packet rate such as ``10 kpkt/s``, a run's number, or one of its `names`, in
    which * and ? stand for any letters. Case does not matter. Raises `InputError` for a selection
    that no run fits, and when no run that fits has a result.
    """
    if not selections:
        return experiment
    chosen: set[int] = set()
    for selection in selections:
        words = [word.strip() for word in selection.split(",") if word.strip()]
        fitting = [
            place
            for place, run in enumerate(experiment.runs)
            if words and all(fits(run, word) for word in words)
        ]
        if not fitting:
            raise WrongValue("--runs", selection, f"no run fits; {_choice(experiment)}")
        chosen.update(fitting)
    kept = tuple(run for place, run in enumerate(experiment.runs) if place in chosen)
    return with_result(replace(experiment, runs=kept))


def names(run: Run) -> list[str]:
    """What a run can be called by.

    Its folder's name, the values that were varied, and platform and forwarder; of an imported run
    each part of its path from the tree's name on.
    """
    known = [run.dut.platform, run.dut.forwarder]
    parts = (run.origin.tree, *PurePath(run.origin.place).parts) if run.origin else ()
    every = [run.slug, *run.variables.values(), *known, *parts]
    return list(dict.fromkeys(str(name) for name in every if name))


def fits(run: Run, word: str) -> bool:
    """Whether one word of a selection fits a run."""
    if word.lower() in ("own", "imported"):
        return (run.origin is None) == (word.lower() == "own")
    if word.isdecimal():
        return str(run.number) == word.lstrip("0")
    try:
        return run.rate == parse_rate(word)
    except InputError:
        return any(fnmatchcase(name.lower(), word.lower()) for name in names(run))


def _choice(experiment: Experiment) -> str:
    own, imported = len(experiment.own), len(experiment.imported)
    every = dict.fromkeys(name for run in experiment.runs for name in names(run)[1:])
    shown = ", ".join(list(every)[:20])
    more = ", …" if len(every) > 20 else ""
    return f"there are {own} own and {imported} imported runs, known by {shown}{more}"

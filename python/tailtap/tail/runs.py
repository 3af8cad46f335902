"""`model_runs`: the library function behind `tailtap model`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.errors import InputError
from tailtap.evaluation import tables
from tailtap.evaluation.values import Warning
from tailtap.store.sources import StoredRun, find_runs
from tailtap.tail.analysis import Options, TailModel, analyse
from tailtap.tail.record import Json, record
from tailtap.tail.stored import load_tail

SCHEMA = "tailtap.model/1"
#: Why imported runs have no model.
IMPORTED = (
    "imported result files say how often latencies occurred, not when: they hold no exceedances "
    "and give no tail model"
)


@dataclass(frozen=True)
class Modelled:
    """A run, its tail model, and the folder that its `tail.json` belongs to."""

    run: StoredRun
    model: TailModel
    folder: Path


@dataclass(frozen=True)
class Summary:
    """Runs that differ in nothing but the repeat, as the papers' tables 4 and 5 sum them up.

    `bursts` is the mean number of bursts above the level that one is expected above, `bounded`
    the share of bounded models; None without a model. The `papers_` values are those of the
    published method.
    """

    label: str
    runs: int
    models: int
    bursts: float | None
    bounded: float | None
    papers_bursts: float | None
    papers_bounded: float | None


@dataclass(frozen=True)
class ModelledRuns:
    """The tail models of some runs; `warnings` are about runs that have none."""

    runs: tuple[Modelled, ...]
    summary: tuple[Summary, ...]
    warnings: tuple[Warning, ...]

    def as_json(self, method: str) -> Json:
        """The object that `tailtap model --json` prints."""
        return {
            "schema": SCHEMA,
            "method": method,
            "runs": [record(found.model) for found in self.runs],
            "summary": [vars(row) for row in self.summary],
            "warnings": [warning._asdict() for warning in self.warnings],
        }


def model_runs(
    paths: Sequence[Path],
    options: Options | None = None,
    *,
    out: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ModelledRuns:
    """Model the tails of runs and write a `tail.json` for each.

    Each of `paths` is a run folder, an experiment folder (all its finished runs) or what
    `tailtap evaluate --out` wrote. `tail.json` goes into the run's folder, or `out`/SLUG.
    `progress` gets a short text before each run. Raises `InputError` when no run of `paths` can
    be modelled, `MachineError` when `tail.json` cannot be written.
    """
    found: list[Modelled] = []
    warnings: list[Warning] = []
    first: InputError | None = None
    for path in paths:
        for run in _runs(path):
            progress(run.slug)
            try:
                tail = load_tail(run.folder, run.slug)
            except InputError as error:
                first = first or error
                warnings.append(Warning("no-tail", str(error)))
                continue
            folder = run.folder.parent if run.record else run.folder
            target = out / run.slug if out else folder
            modelled = Modelled(run, analyse(tail, options), target)
            tables.write(target, {}, {"tail": record(modelled.model)})
            found.append(modelled)
        if _has_imported(path):
            warnings.append(Warning("imported", f"{path / 'results.duckdb'}: {IMPORTED}"))
    if not found and first:
        raise first
    return ModelledRuns(tuple(found), tuple(summarise(found)), tuple(warnings))


def summarise(modelled: Iterable[Modelled]) -> list[Summary]:
    """One row for each set of runs that differ only in the repeat, in the order given."""
    groups: dict[tuple[str, str], list[Modelled]] = {}
    for found in modelled:
        variables = json.dumps(dict(found.run.variables), sort_keys=True)
        # A bare evaluation is no repeat of another.
        own = "" if found.run.record else str(found.folder)
        groups.setdefault((found.run.experiment, variables + own), []).append(found)
    return [_row(members) for members in groups.values()]


def _row(members: Sequence[Modelled]) -> Summary:
    run = members[0].run
    text = ", ".join(f"{value}" for value in run.variables.values())
    return sum_up(text or run.experiment, [found.model for found in members])


def sum_up(label: str, models: Sequence[TailModel]) -> Summary:
    """The models of repeats in one row."""
    chosen = [model.chosen for model in models if model.chosen and not model.chosen.refused]
    papers = [model.papers_chosen for model in models if model.papers_chosen]
    return Summary(
        label,
        len(models),
        len(chosen),
        _mean(found.check.bursts for found in chosen if found.check),
        _mean(found.limit is not None for found in chosen),
        _mean(found.bursts for found in papers if found.bursts is not None),
        _mean(bool(found.bounded) for found in papers),
    )


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _runs(path: Path) -> list[StoredRun]:
    if path.is_file() and path.suffix == ".duckdb":
        raise InputError(
            f"{path}: give the folder of the runs instead, as a database holds no exceedances; "
            f"{IMPORTED}"
        )
    try:
        return find_runs(path)
    except InputError:
        bare = path.is_dir() and not (path / "runs").is_dir()
        if bare and (_has_imported(path) or any(path.rglob("latencies-*.csv*"))):
            raise InputError(f"{path}: {IMPORTED}; evaluate the captures themselves") from None
        raise


def _has_imported(path: Path) -> bool:
    database = path / "results.duckdb"
    if not database.is_file():
        return False
    import duckdb

    try:
        with duckdb.connect(str(database), read_only=True) as connection:
            query = "SELECT count(*) FROM runs WHERE status = 'imported'"
            row = connection.execute(query).fetchone()
    except duckdb.Error:
        return False
    return bool(row and row[0])

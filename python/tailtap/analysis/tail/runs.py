"""`model_runs`: the library function behind `tailtap model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.runs.groups import configuration_label, group
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import INVALID, NO_TIMES, Run
from tailtap.analysis.tail.analysis import Options, TailModel, analyse, record
from tailtap.base.errors import InputError
from tailtap.records.record import Notice
from tailtap.records.tail import ModelledRun, ModelRecord, RepeatsRow, TailRecord


@dataclass(frozen=True)
class Modelled:
    """A run, its tail model, and the folder that its `tail.json` belongs to."""

    run: Run
    model: TailModel
    record: TailRecord
    folder: Path


def model_runs(
    paths: Sequence[Path],
    options: Options | None = None,
    *,
    method: str = "tailtap",
    out: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ModelRecord, list[Modelled]]:
    """Model the tails of runs and write a `tail.json` for each.

    Gives what `tailtap model --json` prints, with warnings about runs without a model, and what
    there is to draw.

    Each of `paths` is a run folder, an experiment folder (all its finished runs) or what
    `tailtap evaluate --out` wrote. `tail.json` goes into the run's folder, or `out`/SLUG.
    `progress` gets a short text before each run. Raises `InputError` when no run of `paths` can
    be modelled, `MachineError` when `tail.json` cannot be written.
    """
    found: list[Modelled] = []
    warnings: list[Notice] = []
    first: InputError | None = None
    taken: dict[Path, Path] = {}
    for path in paths:
        others = 0
        for run in finished_runs(path):
            if out is not None and taken.setdefault(out / run.slug, path) != path:
                raise InputError(
                    f"its run {run.slug} and that of {taken[out / run.slug]} would have "
                    "one place in --out: model them one after the other"
                ).at(path)
            progress(run.slug)
            try:
                tail = run.tail
            except InputError as error:
                first = first or error
                if isinstance(run.evaluation, Partial):
                    others += 1
                else:
                    warnings.append(Notice("no-tail", str(error)))
                continue
            assert run.own_folder is not None
            target = out / run.slug if out else run.own_folder
            model = analyse(tail, options)
            told = record(model)
            tables.write(target, {}, {"tail": told}, below=out or run.top)
            found.append(Modelled(run, model, told, target))
            if run.valid is False:
                warnings.append(Notice("invalid-run", f"{run.slug}: {INVALID}"))
        if others:
            warnings.append(Notice("imported", f"{path}: {others} imported runs: {NO_TIMES}"))
    if not found and first:
        raise first
    runs = [ModelledRun(**asdict(one.record), valid=one.run.valid) for one in found]
    return ModelRecord(method=method, runs=runs, summary=summarise(found), warnings=warnings), found


def summarise(modelled: Sequence[Modelled]) -> list[RepeatsRow]:
    """One row for each set of runs that differ only in the repeat, in the order given.

    Invalid runs are left out: they were under another load.
    """
    models = {id(found.run): found.model for found in modelled}
    groups = group(found.run for found in modelled if found.run.valid is not False)
    return [
        sum_up(
            configuration_label(members[0], members[0].experiment),
            [models[id(run)] for run in members],
        )
        for members in groups
    ]


def sum_up(label: str, models: Sequence[TailModel]) -> RepeatsRow:
    """The models of repeats in one row, as the papers' tables 4 and 5 sum them up.

    Without a model there is no mean and no share.
    """
    chosen = [model.chosen for model in models if model.chosen and not model.chosen.refused]
    papers = [model.papers_chosen for model in models if model.papers_chosen]
    return RepeatsRow(
        label=label,
        runs=len(models),
        models=len(chosen),
        bursts=_mean(found.check.bursts_above for found in chosen if found.check),
        bounded=_mean(found.limit is not None for found in chosen),
        papers_bursts=_mean(
            found.bursts_above for found in papers if found.bursts_above is not None
        ),
        papers_bounded=_mean(bool(found.bounded) for found in papers),
    )


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None

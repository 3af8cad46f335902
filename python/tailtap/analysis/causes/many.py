"""`explain_many`: the late packets of many runs, in this process or on an executor.

A task is a run: a function of its folder alone, so that it can be done again anywhere. It gives
what is told of the run, and not the timelines of its cores. Whoever asks writes the files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa

from tailtap.analysis.causes.control import controls
from tailtap.analysis.causes.late import DEFAULT
from tailtap.analysis.causes.record import record, tables
from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.runs import Progress, explain, traced_runs
from tailtap.analysis.causes.stalls import Line, worst_stalls
from tailtap.analysis.evaluation import tables as files
from tailtap.analysis.evaluation.executors import Executor, Task
from tailtap.analysis.evaluation.many import NEWS_SECONDS
from tailtap.analysis.runs.reader import finished_runs
from tailtap.records.bugs import foreseen
from tailtap.records.causes import CausesRecord, Control
from tailtap.records.errors import MachineError, TailtapError

READ = ("run.json", "trace.json", "trace.events", "ingress.stamps", "egress.stamps")
"""What a worker must see of a run folder; what there is not is not asked for."""


@dataclass(frozen=True)
class Told:
    """Why the late packets of a run were late, as it is stored and printed."""

    folder: Path
    record: CausesRecord
    tables: Mapping[str, pa.Table]
    worst: Sequence[Line]
    """The worst stalls in words."""


def tell(
    folder: Path,
    late: str,
    knobs: Sequence[Knob],
    stalls: int,
    control: Control | None,
) -> Told:
    """The task that explains the run in `folder`. Writes nothing."""
    [run] = finished_runs(folder)
    found = explain(run, late=late, knobs=knobs, control=control)
    return Told(folder, record(found), tables(found), worst_stalls(found, stalls))


def size_of(folder: Path) -> int:
    """How many bytes of a run folder are read to explain it."""
    files = [folder / name for name in READ]
    return sum(file.stat().st_size for file in files if file.exists())


def explain_many(
    paths: Sequence[Path],
    executor: Executor | None = None,
    *,
    late: str = DEFAULT,
    knobs: Sequence[Knob] = (),
    stalls: int = 0,
    progress: Progress = lambda _: None,
) -> list[tuple[Path, Told | TailtapError]]:
    """Explain the late packets of runs, and write `causes.json` and its tables into their folders.

    `paths`, `late` and `knobs` are those of `explain_runs`; `stalls` is how many of the worst ones
    are told in words. Gives each run's folder, and what is told of it or the error that it gave:
    after an error the others go on. `progress` gets the name of each run that begins. Raises
    `InputError` when there is no such run, and `MachineError` when the executor cannot go on or a
    folder cannot be written.
    """
    runs = list(traced_runs(paths))
    tops = {run.own_folder: run.top for run in runs}
    known = controls(runs)
    folders = [folder for folder in known if folder]
    asked = (late, tuple(knobs), stalls)
    if executor is None:
        return [
            (folder, _here(folder, tops[folder], progress, *asked, known[folder]))
            for folder in folders
        ]
    seen = [executor.place(folder) / name for folder in folders for name in READ]
    executor.prepare([file for file in seen if file.exists()])
    found: dict[int, Told | TailtapError] = {}
    waiting = deque(enumerate(folders))
    under_way: set[_Step] = set()
    news: SimpleQueue[_Step] = SimpleQueue()
    while waiting or under_way:
        while waiting and len(under_way) < executor.slots():
            place, folder = waiting.popleft()
            progress(folder.name)
            step = _Step(
                place, folder, executor.submit(tell, executor.place(folder), *asked, known[folder])
            )
            under_way.add(step)
            step.tell(news)
        try:
            step = news.get(timeout=NEWS_SECONDS)
        except Empty:
            executor.check()
            continue
        under_way.remove(step)
        found[step.place] = _kept(step.folder, tops[step.folder], _result(executor, step))
    return [(folder, found[place]) for place, folder in enumerate(folders)]


def _here(folder: Path, top: Path | None, progress: Progress, *asked: Any) -> Told | TailtapError:
    """What is told of a run in this process; `asked` is that of `tell`."""
    progress(folder.name)
    try:
        told: Told | TailtapError = tell(folder, *asked)
    except Exception as error:  # a bug in one run costs that run
        told = foreseen(error)
    return _kept(folder, top, told)


@dataclass(eq=False)
class _Step:
    """A task and the run that it is for."""

    place: int
    folder: Path
    task: Task

    def tell(self, news: SimpleQueue[_Step]) -> None:
        """Put itself into `news` once the task has ended."""
        self.task.add_done_callback(lambda _: news.put(self))


def _result(executor: Executor, step: _Step) -> Told | TailtapError:
    """What a task told, or the error of its run."""
    error = executor.error(step.task)
    if error is None:
        told: Told = executor.result(step.task)
        return told
    if isinstance(error, TailtapError):
        return error
    return MachineError(f"{step.folder}: {executor.explain(error)}")


def _kept(folder: Path, top: Path | None, told: Told | TailtapError) -> Told | TailtapError:
    """What is told of a run, once it is on the disk."""
    if isinstance(told, TailtapError):
        return told
    files.write(folder, told.tables, {"causes": told.record}, below=top)
    return told

"""`explain_many`: the late packets of many runs, in this process or on an executor.

A task is a run: a function of its folder alone, so that it can be done again anywhere. It gives
what is told of the run, and not the timelines of its cores. Whoever asks writes the files.

What a trace cost the run that has it, runs of the same experiment without a trace say.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue

import pyarrow as pa

from tailtap.analysis.causes.explain import Explained, explain
from tailtap.analysis.causes.late import DEFAULT
from tailtap.analysis.causes.record import Line, record, tables, worst_stalls
from tailtap.analysis.causes.trace import Trace, has_trace
from tailtap.analysis.evaluation import tables as files
from tailtap.analysis.evaluation.executors import Executor, Task, Threads
from tailtap.analysis.evaluation.many import NEWS_SECONDS
from tailtap.analysis.runs.reader import finished_runs, run_folders, run_in
from tailtap.analysis.runs.run import Run
from tailtap.base.bugs import foreseen
from tailtap.base.errors import InputError, MachineError, NotTraced, TailtapError, ThroughLink
from tailtap.base.units import format_time
from tailtap.records.causes import CausesRecord, Control, TraceCost
from tailtap.records.evaluation import UndisturbedRecord
from tailtap.records.record import Notice

MODE = "trace"
"""The key of an experiment that says what is traced."""
SHOWN = {0.5: "median", 0.999: "p99.9"}


def controls(runs: Collection[Run]) -> dict[Path | None, Control | None]:
    """The control of each run, by the run's folder; None where the experiment has none.

    A control is a run with the same varied values, of the same repeat, that was measured without a
    trace; invalid runs are none, and have none. All such pairs of the run's mode count: of the
    median and of the 99.9th percentile, what is told is the median over the pairs.
    """
    read = {run.own_folder.absolute(): run for run in runs if run.own_folder is not None}
    experiments = {home: _beside(home, read) for home in {run.home for run in runs}}
    return {run.own_folder: _control(run, experiments[run.home]) for run in runs}


def _beside(home: Path, read: Mapping[Path, Run]) -> Sequence[Run]:
    """The runs of an experiment, those that were read already among them. No evaluation is loaded
    yet.
    """
    runs = (
        read.get(path.absolute()) or run_in(path, home, late=True) for path in run_folders(home)
    )
    return [run for run in runs if run.origin is None]


def _control(run: Run, beside: Iterable[Run]) -> Control | None:
    if run.parameters.trace == "none":
        return None
    like = [one for one in beside if _but_for_trace(one) == _but_for_trace(run)]
    traced, plain = (
        {one.repeat: one for one in like if one.parameters.trace == mode}
        for mode in (run.parameters.trace, "none")
    )
    both = [(traced[repeat], plain[repeat]) for repeat in sorted(traced.keys() & plain.keys())]
    pairs = [pair for pair in both if not any(one.excluded for one in pair)]
    return Control(runs=len(pairs), percentiles=list(_rows(pairs))) if pairs else None


def _rows(pairs: list[tuple[Run, Run]]) -> Iterator[TraceCost]:
    for p in SHOWN:
        values = []
        for pair in pairs:
            both = [one.percentile(p) for one in pair]
            values += [[one.value for one in both if one is not None and one.supported]]
        if not all(len(both) == 2 and min(both) > 0 for both in values):
            continue
        more = [with_trace / without - 1 for with_trace, without in values]
        traced, plain = (round(statistics.median(column)) for column in zip(*values, strict=True))
        yield TraceCost(
            p=p,
            traced_ns=traced,
            plain_ns=plain,
            more=statistics.median(more),
            least=min(more),
            most=max(more),
        )


def _but_for_trace(run: Run) -> Mapping[str, str]:
    return {name: value for name, value in run.variables.items() if name != MODE}


def control_words(control: Control | None) -> str:
    """What the control of a run says, as people read it."""
    if control is None:
        return (
            "cost of the trace: unknown; measure runs with and without it "
            "(vary: {trace: [none, thin]})"
        )
    runs, rows = control.runs, control.percentiles
    pairs = "a run without it" if runs == 1 else f"{runs} pairs of runs with and without it"
    if not rows:
        return f"cost of the trace: unknown; {pairs} had too few packets"
    parts = [f"{SHOWN[row.p]} {100 * row.more:+.1f} %{_spread(row, runs)}" for row in rows]
    usual = format_time(rows[0].plain_ns)
    return f"cost of the trace, by {pairs}: {', '.join(parts)}; median without it {usual}"


def _spread(row: TraceCost, runs: int) -> str:
    return "" if runs == 1 else f" ({100 * row.least:+.1f} to {100 * row.most:+.1f} %)"


READ = ("run.json", "trace.json", "trace.events", "ingress.stamps", "egress.stamps")
"""What a worker must see of a run folder; what there is not is not asked for."""
BRIEF_BYTES = 64_000_000
"""What is explained while somebody waits: 50 MB take two seconds of CPU time."""
Progress = Callable[[str], None]
Keep = Callable[[Explained], object]
Outside = Callable[[Run, Trace | None], UndisturbedRecord | None]
"""What is left of a run without pauses from outside; its trace, if that was read here. Raises
`InputError`."""


@dataclass(frozen=True)
class Told:
    """Why the late packets of a run were late, as it is stored and printed."""

    record: CausesRecord
    tables: Mapping[str, pa.Table]
    worst: Sequence[Line]
    """The worst stalls in words."""
    trace: Trace | None
    """Of a run that was read already."""


class Here(Threads):
    """This process alone: a task is done once it is given, and Ctrl-C ends it."""

    def __init__(self) -> None:
        """One task at a time."""
        super().__init__(1)

    def slots(self) -> int:
        """One: the next one is given when this one is done."""
        return 1

    def submit(self, function: Callable[..., object], *arguments: object) -> Task:
        """Run `function` now. A bug in one run costs that run."""
        done: Future[object] = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(foreseen(error))
        return done


def explain_many(
    paths: Sequence[Path],
    executor: Executor | None = None,
    *,
    late: str = DEFAULT,
    stalls: int = 0,
    undisturbed: Outside = lambda *_: None,
    progress: Progress = lambda _: None,
) -> list[tuple[Path, Told | TailtapError]]:
    """Explain the late packets of runs, and write `causes.json` and its tables into their folders.

    Each of `paths` is a run folder or an experiment folder; of an experiment all finished runs that
    have a trace are explained. `late` is a percentile such as ``p99.9`` or a latency such as
    ``100 us``. `stalls` is how many of the worst
    ones are told in words, and `undisturbed` finds out what is left of a run without pauses from
    outside. Gives each run's folder, and what is told of it or the error that it
    gave: after an error the others go on. `progress` gets the name of each run that begins. Raises
    `InputError` when there is no such run, and `MachineError` when the executor cannot go on or a
    folder cannot be written.
    """
    runs = _traced(paths)
    found = dict(_each(runs, executor or Here(), progress, undisturbed, late, stalls))
    return [(folder, found[folder]) for folder in runs]


def explain_runs(
    paths: Sequence[Path],
    *,
    late: str = DEFAULT,
    progress: Progress = lambda _: None,
) -> list[Explained]:
    """As `explain_many` in this process, with all that was found of each run.

    Raises the first error that a run gave: one without a trace, or with one that does not belong to
    it, is an `InputError`.
    """
    found: list[Explained] = []
    runs = _traced(paths)
    for _, told in _each(runs, Here(), progress, lambda *_: None, late, 0, found.append):
        if isinstance(told, TailtapError):
            raise told
    return found


def tell(
    run: Run | Path,
    control: Control | None,
    late: str,
    stalls: int,
    keep: Keep | None = None,
) -> Told:
    """The task that explains a run, read already or in a folder; `keep` gets all of it.

    Writes nothing.
    """
    [one] = [run] if isinstance(run, Run) else finished_runs(run)
    found = explain(one, late=late, control=control)
    if keep is not None:
        keep(found)
    trace = found.trace if isinstance(run, Run) else None
    return Told(record(found), tables(found), worst_stalls(found, stalls), trace)


def size_of(folder: Path) -> int:
    """How many bytes of a run folder are read to explain it."""
    files = [folder / name for name in READ]
    return sum(file.stat().st_size for file in files if file.exists())


def _each(
    runs: dict[Path, Run],
    executor: Executor,
    progress: Progress,
    undisturbed: Outside,
    *asked: object,
) -> Iterator[tuple[Path, Told | TailtapError]]:
    """The folders of runs as they come to an end, and what is told of them once it is on the disk.

    `asked` goes to `tell`.
    """
    seen = [executor.place(folder) / name for folder in runs for name in READ]
    executor.prepare([file for file in seen if file.exists()])
    known = controls(runs.values())
    waiting = deque(runs)
    under_way: set[Path] = set()
    news: SimpleQueue[tuple[Path, Task]] = SimpleQueue()

    def begin(folder: Path) -> None:
        progress(folder.name)
        under_way.add(folder)
        given = runs[folder] if isinstance(executor, Here) else executor.place(folder)
        task = executor.submit(tell, given, known[folder], *asked)
        task.add_done_callback(lambda _: news.put((folder, task)))

    while waiting or under_way:
        while waiting and len(under_way) < executor.slots():
            begin(waiting.popleft())
        try:
            folder, task = news.get(timeout=NEWS_SECONDS)
        except Empty:
            executor.check()
            continue
        under_way.remove(folder)
        told = _result(executor, folder, task)
        if isinstance(told, Told):
            try:
                told.record.undisturbed = undisturbed(runs[folder], told.trace)
            except ThroughLink:
                raise
            except InputError as error:
                unknown = Notice("not-undisturbed", str(error))
                told.record.warnings = [*told.record.warnings, unknown]
            files.write(folder, told.tables, {"causes": told.record}, below=runs[folder].top)
        runs[folder] = replace(runs[folder])  # what was read of it is not needed any more
        yield folder, told


def _result(executor: Executor, folder: Path, task: Task) -> Told | TailtapError:
    error = executor.error(task)
    if error is None:
        told: Told = executor.result(task)
        return told
    if isinstance(error, TailtapError):
        return error
    return MachineError(executor.explain(error)).at(folder)


def _traced(paths: Sequence[Path]) -> dict[Path, Run]:
    """The runs to explain, by their folders: those that are named, and those of experiments that
    have a trace.

    Raises `NotTraced` when an experiment has none.
    """
    found: dict[Path, Run] = {}
    for path in paths:
        named = (path / "run.json").is_file()
        finished = finished_runs(path)
        runs = [run for run in finished if named or has_trace(run)]
        if not runs and all(run.origin for run in finished):
            raise InputError("it was imported, and only runs of tailtap have a trace").at(path)
        if not runs:
            raise NotTraced(
                "no run of it has a trace",
                place=str(path),
                remedy="measure with `trace: thin` in the experiment file",
            )
        found |= {run.own_folder: run for run in runs if run.own_folder}
    return found

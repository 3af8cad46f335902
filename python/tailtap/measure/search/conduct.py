"""`tailtap search`: make the trials that a method asks for, and measure latency at its rates.

Every trial is a run like any other, in a folder of its own. ``search.json`` is written after each
trial, so that an interrupted search continues there: the method starts again and is sent the
results of the trials that were made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import asdict

from tailtap.analysis.runs.folder import RunFolder, RunStore, require_folder
from tailtap.analysis.runs.summary import summarize
from tailtap.experiment.combinations import CASES, VARY
from tailtap.experiment.model import Experiment, Matching
from tailtap.experiment.plan import PlannedRun, plan_run
from tailtap.experiment.reading import CheckedExperiment, read_experiment
from tailtap.host.changes.privileges import require_root
from tailtap.lab.generators.model import MAX_PACKETS
from tailtap.lab.generators.pattern import Ramp
from tailtap.lab.topology.graph import EGRESS, INGRESS
from tailtap.measure.preconditions import require_clock, require_cpus
from tailtap.measure.progress import Reporting
from tailtap.measure.quality import shortfall, slipped, too_slow
from tailtap.measure.runner import (
    beside,
    experiment_text,
    first_difference,
    interruptible,
    make_run,
    remove_own_leftovers,
    run_experiment,
    storage_errors,
)
from tailtap.measure.search import METHODS
from tailtap.measure.search.answer import Answer, answer
from tailtap.measure.search.folder import Made, SearchFolder, made_of, settings_record
from tailtap.measure.search.guard import LossGuard
from tailtap.measure.search.trial import Bounds, Result, Settings, Trial
from tailtap.records.document import load
from tailtap.records.errors import (
    InputError,
    Interrupted,
    MachineError,
    NothingBegun,
    Occupied,
    TailtapError,
)
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.experiment import ExperimentRecord
from tailtap.records.files import make_folder, slugify, write_text
from tailtap.records.record import as_json, read
from tailtap.records.run import RunRecord
from tailtap.records.search import Ended, SearchedRecord, SearchRecord
from tailtap.records.units import exact_rate, format_rate, format_time
from tailtap.records.warnings import invalidating

MOST_TRIALS = 500
"""A search that needs more trials than this follows noise."""
SHARES = (1.0, 0.9, 0.5, 0.1)
"""Latency is measured at these shares of the rates found."""

PrintLine = Callable[[str], object]
"""Called with a line about each trial."""


@dataclass(frozen=True)
class Plan:
    """A search whose experiment and settings are valid."""

    checked: CheckedExperiment
    source: Path
    settings: Settings
    method: str
    keep_stamps: bool = False
    latency: bool = True

    def __post_init__(self) -> None:
        """Raise `InputError` for an experiment or settings that no search can use."""
        document = self.checked.document
        for key in (VARY, CASES):
            if document.data.get(key):
                raise InputError(
                    f"{document.place((key,))}: {key}: a search looks at one configuration: choose "
                    f"a value with --set and remove {key} from the file"
                )
        if any(said.partition("=")[0].strip() == "traffic.rate" for said in self.checked.overrides):
            raise InputError(
                "--set traffic.rate: the search chooses the rate: give --from and --to"
            )
        for name, flow in self.experiment.dut.flows.items():
            if "rate" in flow:
                place = self.checked.document.place(("dut", "flows", name, "rate"))
                raise InputError(
                    f"{place}: dut.flows.{name}.rate: the search sets one rate for all flows: "
                    "leave it out"
                )
        if isinstance(self.experiment.traffic.pattern, Ramp):
            place = self.checked.document.place(("traffic", "pattern"))
            raise InputError(f"{place}: traffic.pattern: a ramp has no rate to search for")
        replay = self.experiment.traffic.replay
        if replay is not None and (replay.pace == "own" or replay.ids == "keep"):
            place = self.checked.document.place(("traffic", "replay"))
            raise InputError(
                f"{place}: traffic.replay: a search needs {{pace: rate, ids: stamp}}, as "
                "it sends the capture at many rates"
            )
        least = Trial(self.settings.low, self.settings.short)
        if self.trial(least).traffic.packets < 1:
            raise InputError(
                f"not a single packet fits in --short {format_time(least.duration)} at --from "
                f"{format_rate(least.rate)}: raise one of them"
            )
        most = Trial(self.settings.high, self.settings.trial)
        if self.trial(most).traffic.packets >= MAX_PACKETS:
            raise InputError(
                f"--to {format_rate(most.rate)} for --trial {format_time(most.duration)} are more "
                "packets than the 32-bit ids can tell apart: lower one of them"
            )

    @property
    def experiment(self) -> Experiment:
        """The experiment as the file describes it; the search sets its rate and duration."""
        return self.checked.combinations[0][1]

    def trial(self, trial: Trial) -> Experiment:
        """The experiment of one trial, in which loss is counted from the first packet on."""
        base = self.experiment
        traffic = base.traffic.model_copy(update={"rate": trial.rate, "duration": trial.duration})
        evaluation = base.evaluation.model_copy(update={"trim": 0})
        assert isinstance(evaluation, Matching)
        return base.model_copy(update={"traffic": traffic, "evaluation": evaluation, "vary": {}})


def search_experiment(
    plan: Plan,
    out: Path,
    *,
    store: RunStore,
    resume: bool,
    reporting: Reporting,
    print_line: PrintLine,
    on_loss: PrintLine,
) -> Search:
    """Search in the folder `out` and, if the plan says so, measure latency at what was found.

    With `resume`, trials and runs that were made already stay as they are. `on_loss` is told what
    could not be kept. Raises `InputError` for a folder that does not fit, `MachineError` when a
    trial cannot be made, `Interrupted` when the user stopped it: what was made until then is kept.
    """
    require_root()
    first = _planned(plan, 1, 1, Trial(plan.settings.high, plan.settings.trial))
    require_cpus([first])
    require_clock([first])
    search = Search(plan, SearchFolder(out), store, print_line, on_loss)
    with storage_errors(out):
        require_folder(out, resume=resume)
        with search.folder.locked(), interruptible():
            search.prepare(resume=resume)
            try:
                with search.folder.trials.locked():
                    search.make_trials()
                search.measure_latency(resume=resume, reporting=reporting)
                search.end("done", None)
            except (KeyboardInterrupt, Interrupted):
                remove_own_leftovers()
                search.end("interrupted", "stopped by the user")
                kept = f"{len(search.record.trials)} trials are kept"
                raise Interrupted(
                    f"interrupted: {'the rates are known' if search.answers else kept}; `tailtap "
                    f"search {plan.source} --out {out} --resume` with the same options goes on"
                ) from None
            except (TailtapError, OSError) as error:
                with contextlib.suppress(OSError):  # the first error tells more
                    search.end("failed", str(error))
                raise
    return search


@dataclass
class Search:
    """A search in progress."""

    plan: Plan
    folder: SearchFolder
    store: RunStore
    """The database of the runs at the rates found."""
    print_line: PrintLine
    on_loss: PrintLine
    made: list[Made] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    latency: ExperimentRecord | None = None
    """The runs at the rates found, as ``tailtap run --json`` prints runs."""
    _kept: list[Made] = field(default_factory=list)
    record: SearchRecord = field(init=False)
    """``search.json``."""

    def prepare(self, *, resume: bool) -> None:
        """Fill the folder, or check that its content belongs to this search. Call it locked."""
        out, plan = self.folder.path, self.plan
        settings = settings_record(plan.settings, plan.method)
        if resume:
            if not self.folder.record.exists():
                raise NothingBegun("there is no search to resume", place=str(out))
            self.record = self.folder.read()
            found = first_difference(
                as_json(self.record.settings), as_json(settings), ()
            ) or first_difference(load(self.folder.experiment).data, plan.checked.document.data, ())
            if found is not None:
                raise Occupied(
                    f"this search differs in {found}",
                    place=str(out),
                    remedy="resume it with the options that it was begun with",
                )
            self._kept = [made_of(row) for row in self.record.trials]
            self.record.status, self.record.error = "running", None
        else:
            if any(out.iterdir()):
                raise Occupied("the folder is not empty", place=str(out), begun="the search")
            make_folder(self.folder.trials.runs, below=out)
            text = experiment_text(plan.checked, plan.source)
            write_text(self.folder.experiment, text, below=out)
            self.record = SearchRecord(
                name=plan.checked.name,
                status="running",
                error=None,
                settings=settings,
                parameters=plan.experiment.parameters(),
                started=_now(),
                finished=None,
                answers=[],
                trials=[],
            )
        self._store()

    def make_trials(self) -> None:
        """Make trials until the method has found its bounds."""
        steps = METHODS[self.plan.method](self.plan.settings)
        found: list[Bounds] = []
        try:
            trial = next(steps)
            while len(self.made) < MOST_TRIALS:
                made = self._again(trial)
                if made is None:
                    made = self._make(trial)
                    self.print_line(_line(made))
                self.made.append(made)
                self._store()
                trial = steps.send(made.result)
            raise MachineError(
                f"{MOST_TRIALS} trials did not settle it: the loss here depends on chance more "
                "than on the rate; longer trials (--trial) or a coarser --precision may"
            )
        except StopIteration as end:
            found = end.value
        results = [made.result for made in self.made]
        self.answers = [answer(self.plan.settings, bounds, results) for bounds in found]
        self._store()

    def measure_latency(self, *, resume: bool, reporting: Reporting) -> None:
        """Measure latency at shares of the rates found, as an experiment of its own."""
        rates = latency_rates(self.answers) if self.plan.latency else []
        if not rates:
            return
        folder = self.folder.latency
        wanted = ", ".join(f"'{exact_rate(rate)}'" for rate in rates)
        override = f"vary.traffic.rate=[{wanted}]"
        checked = read_experiment(self.folder.experiment, [override])
        resume = resume and folder.experiment.exists()
        runs = run_experiment(
            checked,
            self.folder.experiment,
            folder.path,
            store=self.store,
            resume=resume,
            reporting=reporting,
            on_loss=self.on_loss,
        )
        self.latency = summarize(folder.path, runs)

    def end(self, status: Ended, error: str | None) -> None:
        """Record how it ended."""
        self.record.status, self.record.error, self.record.finished = status, error, _now()
        self._store()

    def printed(self) -> SearchedRecord:
        """What ``--json`` prints."""
        whole = asdict(self.record)
        return SearchedRecord(**whole, folder=str(self.folder.path), latency=self.latency)

    def _store(self) -> None:
        self.record.answers = [found.record() for found in self.answers]
        kept = [*self.made, *self._kept[len(self.made) :]]
        self.record.trials = [made.record() for made in kept]
        self.folder.write(self.record)

    def _again(self, trial: Trial) -> Made | None:
        """The trial as it was made before the interruption, if it was."""
        place = len(self.made)
        if place < len(self._kept) and self._kept[place].result.trial == trial:
            return self._kept[place]
        del self._kept[place:]
        return None

    def _make(self, trial: Trial) -> Made:
        earlier = sum(made.result.trial.rate == trial.rate for made in self.made)
        flows = len(self.plan.experiment.flows)
        run = _planned(self.plan, flows * len(self.made) + 1, earlier + 1, trial)
        folder = self.folder.trials.run(run.slug)
        sent = [run.experiment.traffic_of(flow) for flow in run.experiment.flows]
        warm_up = sum(one.warm_up * one.rate // 1_000_000_000 + one.warm_up_packets for one in sent)
        # Where all flows together have lost so much, one of them has lost so much of its own.
        packets = sum(one.packets for one in sent)
        allowed = float("inf") if trial.give_up is None else trial.give_up * packets
        guard = LossGuard(allowed, warm_up, run.experiment.seconds)
        keep = self.plan.keep_stamps
        record = make_run(run, folder, None, guard, keep_stamps=keep)
        if record.taps is None:
            raise MachineError(f"trial {run.number} failed: {record.error}")
        results = []
        for one in run.group:
            there = beside(folder, one)
            results.append(_result(one, there, there.read(), trial, guard))
        codes = tuple(warning.code for warning in record.warnings)
        return Made(run.number, run.slug, _worse(results), codes)


def _planned(plan: Plan, number: int, repeat: int, trial: Trial) -> PlannedRun:
    text = exact_rate(trial.rate)
    return plan_run(number, slugify(text), repeat, {"traffic.rate": text}, plan.trial(trial))


def _worse(results: Sequence[Result]) -> Result:
    """The result of all flows: a rate must hold for each of them."""
    doubted = [result for result in results if not result.valid]
    return doubted[0] if doubted else max(results, key=lambda result: result.loss)


def _result(
    run: PlannedRun, folder: RunFolder, record: RunRecord, trial: Trial, guard: LossGuard
) -> Result:
    """The result that a trial's record gives."""
    traffic = run.experiment.traffic_of(run.flow)
    taps = {side: tap.known for side, tap in (record.taps or {}).items()}
    came = taps[INGRESS].seen or 0
    lost = max(0, came - (taps[EGRESS].seen or 0))
    if record.status == "done" and not any(tap.lost for tap in taps.values()):
        # Matched packet by packet: duplicates do not make up for losses.
        lost = read(folder.evaluation / "evaluation.json", EvaluationRecord).counts.lost
    generator = record.generator.known if record.generator else None
    achieved = generator.achieved_rate if generator else None
    achieved = trial.rate if achieved is None else achieved
    return Result(
        trial,
        packets=traffic.packets if guard.gave_up else came,
        lost=lost,
        achieved=achieved,
        doubt=_doubt(record, came, trial, guard, achieved, traffic.slip_limit),
        given_up=guard.gave_up,
    )


def _doubt(
    record: RunRecord,
    came: int,
    trial: Trial,
    guard: LossGuard,
    achieved: float,
    slip_limit: int,
) -> str | None:
    """Why the generator did not send what was asked of it; None when it did."""
    if guard.overtime:
        return (
            f"the generator took far longer than {format_time(trial.duration)}, at "
            f"{format_rate(achieved)}"
        )
    if not came:
        return "no packet with an id came to the ingress tap"
    # What follows from these for a search is not what follows for a run, which the warnings say.
    if record.generator is not None:
        generator = record.generator.known
        if too_slow(generator):
            return shortfall(generator)
        if slip := slipped(generator, slip_limit):
            return slip
    for warning in invalidating(record.warnings):
        return warning.message
    return None


def latency_rates(answers: Sequence[Answer]) -> list[int]:
    """The rates at which latency is measured: `SHARES` of each rate found."""
    rates = [answer.rate for answer in answers if answer.rate is not None]
    return list(dict.fromkeys(max(1, round(rate * share)) for rate in rates for share in SHARES))


def _line(made: Made) -> str:
    result = made.result
    text = f"trial {made.number}: {format_rate(result.trial.rate)} for "
    text += f"{format_time(result.trial.duration)}: "
    if not result.valid:
        return f"{text}invalid: {result.doubt}"
    if result.given_up:
        return f"{text}more than {100 * (result.trial.give_up or 0):g} % lost, given up"
    return f"{text}{result.lost:,} of {result.packets:,} lost"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

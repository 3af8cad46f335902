"""Runs that are compared: made one by one until a time is over, and in pairs of random order."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailtap.analysis.compare.significance import ERROR, FALSE_WORSE, against, interval
from tailtap.analysis.evaluation.values import label
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import slugify
from tailtap.base.units import format_time
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import plan_run
from tailtap.experiment.reading import CheckedExperiment
from tailtap.host.facts.needs import require_root
from tailtap.measure.campaign import (
    Campaign,
    Recorded,
    experiment_text,
    now,
    reasons,
    seconds_of,
)
from tailtap.measure.preconditions import require_here
from tailtap.measure.runner import make_run
from tailtap.records.run import RunRecord
from tailtap.records.search import AgainstRecord

MOST_SPOILED = 4
"""After so many pairs without a result in a row there are no more."""
TAIL_LOST_NS = 10**18
"""The percentile of a run whose queues were full, or where nothing came out: above any other."""


@dataclass(frozen=True)
class Made:
    """One measurement: its runs, one of each flow; without any where it failed or is invalid."""

    slug: str
    runs: Sequence[Run]
    folders: Sequence[Path]
    error: str | None = None

    @property
    def counted(self) -> bool:
        """Whether it says something about the device."""
        return self.error is None

    def late(self, threshold_ns: int) -> tuple[int, int]:
        """How many packets took that long or were lost, and of how many, over all flows."""
        late = packets = 0
        for run in self.runs:
            found = run.evaluation
            assert found is not None and found.packets is not None  # it was measured here
            lost = found.lost_at_least or 0
            latencies, counts = found.distribution
            late += int(counts[latencies >= threshold_ns].sum()) + lost
            packets += found.packets + lost
        return late, packets

    def share(self, threshold_ns: int) -> float:
        """The share of late packets; above zero, as if half a packet more had been late."""
        late, packets = self.late(threshold_ns)
        return (late + 0.5) / (packets + 1)

    def percentile(self, p: float) -> int:
        """The percentile `p` (0 to 1) of the worst flow, in ns."""
        found = [row.value for run in self.runs if (row := run.percentile(p)) is not None]
        return max(found, default=TAIL_LOST_NS)

    @property
    def lost_heavily(self) -> bool:
        """Whether a flow lost so much that its tail is not known."""
        return any(run.evaluation is not None and run.evaluation.lost_heavily for run in self.runs)


@dataclass
class Runs:
    """Makes runs, one after the other, until the time of a campaign is over.

    Those that are there already are taken as they are, where it is resumed.
    """

    campaign: Campaign
    until: float
    """When no further run may begin, by the monotonic clock."""
    estimate: float
    """How long a run takes, in seconds, as long as none was made."""
    number: int = 0
    made: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many runs there is time for, each as long as they were so far."""
        each = sum(self.seconds) / len(self.seconds) if self.seconds else self.estimate
        return max(0, int((self.until - time.monotonic()) / each))

    def make(
        self, name: str, experiment: Experiment, variables: Mapping[str, Any], p: float
    ) -> Made:
        """Measure once; `p` is the percentile that is printed."""
        repeat = self.repeat_of(variables)
        run = plan_run(self.number + 1, slugify(name), repeat, variables, experiment)
        return self.take(
            [one.slug for one in run.group],
            p,
            lambda: make_run(run, self.campaign.folder.run(run.slug)),
        )

    def repeat_of(self, variables: Mapping[str, Any]) -> int:
        """Which run with these variables the next one is, from 1."""
        self.made[str(variables)] += 1
        return self.made[str(variables)]

    def take(self, slugs: Sequence[str], p: float, make: Callable[[], RunRecord]) -> Made:
        """The measurement whose runs, one of each flow, are called so: kept, or made now."""
        began = time.monotonic()
        self.number += len(slugs)
        folders = [self.campaign.folder.run(slug).path for slug in slugs]
        kept = self._kept(slugs)
        record = kept or make()
        if kept is None:
            self.seconds.append(time.monotonic() - began)
        if record.error is None:
            runs = [one for path in folders for one in finished_runs(path)]
            why = "; ".join(reasons(record)) or "the run is invalid"
            made = Made(slugs[0], runs, folders, why if record.valid is False else None)
            said = f"{label(p)} {format_time(made.percentile(p))}"
            said += f"; {why}" if made.error else ""
        else:
            made = Made(slugs[0], (), folders, record.error)
            said = record.error
        if kept is None:
            self.campaign.note(f"{slugs[0]}: {said}")
        return made

    def _kept(self, slugs: Sequence[str]) -> RunRecord | None:
        """The record of the first run, where all were made before; one that failed stays so."""
        if not self.campaign.resume:
            return None
        folders = [self.campaign.folder.run(slug) for slug in slugs]
        if not all(one.record.exists() for one in folders):
            return None
        try:
            records = [one.read() for one in folders]
        except InputError as error:
            self.campaign.note(f"{error}: measuring it again")
            return None
        failed = all(one.status == "failed" for one in records)
        return records[0] if failed or all(one.whole for one in folders) else None


def in_pairs(
    one: Callable[[], Made], other: Callable[[], Made], order: random.Random
) -> Iterator[tuple[Made, Made] | None]:
    """Pairs of measurements, in random order within each; None for one without a result.

    It ends when `MOST_SPOILED` in a row had none.
    """
    spoiled = 0
    while spoiled < MOST_SPOILED:
        if order.random() < 0.5:
            first = one()
            second = other()
        else:
            second = other()
            first = one()
        counted = first.counted and second.counted
        spoiled = 0 if counted else spoiled + 1
        yield (first, second) if counted else None


MOST_PAIRS = 200
NEW, BASE = "new", "base"


@dataclass(frozen=True)
class Question:
    """Whether one experiment's percentile `p` is worse than that of another, its base."""

    new: CheckedExperiment
    new_source: Path
    base: CheckedExperiment
    base_source: Path
    p: float
    margin: float
    within_ns: int

    def __post_init__(self) -> None:
        """Raise `InputError` for experiments of several configurations, and for odd settings."""
        for checked in (self.new, self.base):
            if len(checked.combinations) > 1:
                key = "vary" if "vary" in checked.document.data else "cases"
                raise checked.document.wrong(
                    (key,),
                    "only one configuration is held "
                    f"against another: choose a value with --set and remove {key} from "
                    "the file",
                )
        if not 0 <= self.margin <= 1:
            raise InputError("give a share from 0 to 100 %, such as '5 %'").at("--worse-than")
        if not 0 < self.p < 1:
            raise InputError("a percentile lies between p0 and p100").at("--at")
        if self.within_ns <= 0:
            raise InputError("give a time above zero, such as 30min").at("--within")


@dataclass
class Pairs(Recorded[AgainstRecord]):
    """The pairs made so far."""

    FILE = "against.json"

    question: Question

    def kept(self) -> str:
        """What an interruption leaves."""
        return f"{len(self.record.pairs)} pairs are kept in {self.campaign.out}"

    def make(self, runs: Runs) -> None:
        """Measure until it is decided, or the time is over. Raises `MachineError` where no pair
        has a result.
        """
        question = self.question

        def side(name: str, checked: CheckedExperiment) -> Made:
            return runs.make(name, _experiment(checked), {"against": name}, question.p)

        for pair in in_pairs(
            lambda: side(NEW, question.new),
            lambda: side(BASE, question.base),
            random.SystemRandom(),
        ):
            if pair is None:
                self.record.spoiled += 1
            else:
                self._decide(*pair)
            self.store()
            over = runs.left < 2 or len(self.record.pairs) >= MOST_PAIRS
            if over or self.record.answer != "not shown":
                break
        if not self.record.pairs:
            raise MachineError("no pair of runs had a result: their run.json say why")

    def _decide(self, *pair: Made) -> None:
        record, p = self.record, self.question.p
        record.pairs.append(
            [TAIL_LOST_NS if one.lost_heavily else max(1, one.percentile(p)) for one in pair]
        )
        record.runs += [one.slug for one in pair]
        found = interval([(new, base) for new, base in record.pairs], ERROR, FALSE_WORSE)
        record.ratio, record.low, record.high = found.ratio, found.low, found.high
        record.answer = against(found, record.margin)


def measure_against(question: Question, campaign: Campaign) -> AgainstRecord:
    """Answer the question by runs. Raises what `Campaign.opened` raises, and `MachineError` where
    nothing can be measured.
    """
    require_root()
    sides = [_experiment(question.new), _experiment(question.base)]
    require_here([plan_run(1, NEW, 1, {}, one) for one in sides])
    runs = Runs(
        campaign,
        time.monotonic() + question.within_ns / 1e9,
        max(seconds_of(one) for one in sides),
    )
    pairs = Pairs(campaign, begun(question), question)
    texts = {
        campaign.folder.experiment.name: experiment_text(question.new, question.new_source),
        "against.yaml": experiment_text(question.base, question.base_source),
    }
    with campaign.opened():
        campaign.prepare("", texts)
        with campaign.ending(pairs.kept, pairs.end):
            pairs.make(runs)
    return pairs.record


def _experiment(checked: CheckedExperiment) -> Experiment:
    return checked.combinations[0][1]


def begun(question: Question) -> AgainstRecord:
    """The record of a question that nothing was measured for yet."""
    return AgainstRecord(
        name=question.new.name,
        base=question.base.name,
        status="running",
        error=None,
        p=question.p,
        margin=question.margin,
        error_rate=ERROR,
        error_rate_worse=FALSE_WORSE,
        within_ns=question.within_ns,
        parameters=_experiment(question.new).parameters(),
        base_parameters=_experiment(question.base).parameters(),
        started=now(),
        finished=None,
        answer="not shown",
        pairs=[],
        spoiled=0,
        ratio=None,
        low=None,
        high=None,
        runs=[],
    )

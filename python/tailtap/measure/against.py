"""`tailtap run --against`: two experiments, interleaved, until it is decided which is worse."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from tailtap.analysis.compare.significance import ERROR, FALSE_WORSE, against, interval
from tailtap.base.errors import InputError, MachineError
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import plan_run
from tailtap.experiment.reading import CheckedExperiment
from tailtap.host.facts.needs import require_root
from tailtap.measure.campaign import Campaign, Recorded, experiment_text, now, seconds_of
from tailtap.measure.pairs import TAIL_LOST_NS, Made, Runs, in_pairs
from tailtap.measure.preconditions import require_here
from tailtap.records.compare import AgainstRecord

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
            experiment = _experiment(checked)
            return runs.make(name, experiment, {"against": name}, question.p)

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
        """Enter a pair, and what all of them say."""
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
    until = time.monotonic() + question.within_ns / 1e9
    runs = Runs(campaign, until, max(seconds_of(one) for one in sides))
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

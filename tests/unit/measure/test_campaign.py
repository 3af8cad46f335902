"""Interruptions, what a person is told, pairs that decide, other measurements beside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import speaking
from made_records import made
from traced import HOG, arrivals, random_jobs, simulate, write_run

from tailtap.base.errors import MachineError
from tailtap.cli.progress import Lines, Reasons, listener
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.experiment.reading import read_experiment
from tailtap.host.changes.journal import Journal
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.lab.generators.model import Traffic
from tailtap.measure.beside import Beside, other_measurements
from tailtap.measure.campaign import Campaign
from tailtap.measure.live import explained
from tailtap.measure.pairs import TAIL_LOST_NS, Made, Pairs, Question, begun
from tailtap.records.record import read
from tailtap.records.search import AgainstRecord
from tailtap.records.warnings import is_valid

PROGRAM = """
import contextlib, os, signal, sys
from tailtap.measure.campaign import interruptible

def raised(number):
    try:
        os.kill(os.getpid(), number)
        return False
    except KeyboardInterrupt:
        return True

number = int(sys.argv[1])
if "ignored" in sys.argv:
    signal.signal(number, signal.SIG_IGN)
before = signal.getsignal(number)
with interruptible():
    with interruptible() if "nested" in sys.argv else contextlib.nullcontext():
        print(raised(number))
    print(raised(number))
print(signal.getsignal(number) == before)
"""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize(
    ("number", "how", "first"),
    [
        *((number, how, "True") for number in SIGNALS for how in ("alone", "nested")),
        # As after nohup.
        (signal.SIGHUP, "ignored", "False"),
        (signal.SIGINT, "ignored", "True"),
    ],
)
def test_the_first_signal_interrupts_and_no_other(
    number: signal.Signals, how: str, first: str
) -> None:
    """By a program that sends itself the signal twice."""
    command = [sys.executable, "-c", PROGRAM, str(int(number)), how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [first, "False", "True"]


RUN = PlannedRun(2, "002-a", 1, {}, Experiment(name="a", traffic=Traffic()), "forward")


def test_a_log_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    told = listener(quiet=False)
    assert isinstance(told, Lines)
    assert not told.wants_ticks
    told.begun([RUN], 3)
    told.started(RUN)
    told.finished(RUN, made(warnings=[{"code": "steal", "message": "stolen"}]))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "run 2 of 3: 002-a\n002-a: warning: stolen\n"


def test_quiet_says_why_there_is_no_result_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = listener(quiet=True)
    assert isinstance(told, Reasons)
    warnings = [
        {"code": "steal", "message": "stolen"},
        {"code": "generator-slip", "message": "late"},
    ]
    told.begun([RUN], 3)
    told.noted("a word")
    told.started(RUN)
    told.tick(1.0)
    told.finished(RUN, made(warnings=warnings[:1]))
    assert capsys.readouterr().err == ""
    told.finished(RUN, made(status="failed", error="broken", valid=None))
    told.finished(RUN, made(warnings=warnings, valid=False))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "002-a: failed: broken\n002-a: invalid: late\n"


def test_a_run_that_is_done_has_causes_and_nothing_is_written(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    blocks = random_jobs(HOG, 5, (1_900_000, 2_100_000), 1.0, random)
    simulated = simulate(arrivals(20_000, 1.0, random), blocks, random)
    folder = write_run(tmp_path / "runs" / "001-run", simulated)
    before = sorted(folder.rglob("*"))
    rows = explained(folder)
    assert [(row.cause, row.packets > 0) for row in rows if row.claim == "cause"] == [
        ("task", True)
    ]
    assert sorted(folder.rglob("*")) == before


def test_a_run_that_nobody_can_explain_has_none(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    folder = write_run(tmp_path / "001-run", simulate(arrivals(1_000, 1.0, random), [], random))
    (folder / "trace.json").unlink()
    assert explained(folder) == []


@dataclass(frozen=True)
class Run(Made):
    ns: int = 1
    full: bool = False

    def percentile(self, p: float) -> int:
        return self.ns

    @property
    def lost_heavily(self) -> bool:
        return self.full


class Machine:
    """Makes up runs of both sides; it has time for so many."""

    def __init__(self, time: int, **sides: Iterator[Run]) -> None:
        self.left, self.sides = time, sides

    def make(self, name: str, experiment: object, variables: object, p: float) -> Made:
        self.left -= 1
        return next(self.sides[name])


def around(median: float, noise: float, seed: int) -> Iterator[Run]:
    random = np.random.default_rng(seed)
    while True:
        yield Run("run", (), (), None, int(median * np.exp(random.normal(0, noise))))


def broken(error: str = "the run is invalid") -> Iterator[Run]:
    while True:
        yield Run("run", (), (), error)


def full() -> Iterator[Run]:
    while True:
        yield Run("run", (), (), None, 100_000, full=True)


def asked(folder: Path, time: int = 400, **sides: Any) -> AgainstRecord:
    """What pairs of these runs say."""
    file = folder / "a.yaml"
    file.write_text("name: a\ndut: {cpus: [1]}\ntraffic: {rate: 10 kpkt/s}\n")
    checked = read_experiment(file)
    question = Question(checked, file, checked, file, 0.999, 0.05, 1)
    pairs = Pairs(Campaign(folder), begun(question), question)
    pairs.make(Machine(time, **sides))  # type: ignore[arg-type]
    pairs.end("done")
    return read(folder / "against.json", AgainstRecord)


@pytest.mark.parametrize(
    ("new", "noise", "time", "answer", "least", "most"),
    [
        (130_000, 0.03, 400, "worse", 5, 12),
        (70_000, 0.03, 400, "better", 5, 12),
        (100_000, 0.01, 400, "no worse", 5, 40),
        (200_000, 0.2, 400, "worse", 5, 25),
        (130_000, 0.03, 6, "not shown", 3, 3),
    ],
)
def test_pairs_end_when_it_is_decided_or_the_time_is_over(
    tmp_path: Path, new: int, noise: float, time: int, answer: str, least: int, most: int
) -> None:
    found = asked(tmp_path, time, new=around(new, noise, 1), base=around(100_000, noise, 2))
    assert found.answer == answer
    assert least <= len(found.pairs) <= most
    assert found.status == "done" and len(found.runs) == 2 * len(found.pairs)


def test_a_side_that_loses_its_tail_to_overload_is_worse(tmp_path: Path) -> None:
    """Though what did come out was as fast; where both do, nothing is shown to be worse."""
    found = asked(tmp_path, new=full(), base=around(100_000, 0.03, 2))
    assert found.answer == "worse"
    assert {new for new, _ in found.pairs} == {TAIL_LOST_NS}


def test_runs_without_a_result_end_it(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no pair of runs had a result"):
        asked(tmp_path, new=broken(), base=around(100_000, 0.03, 2))


def test_pairs_without_a_result_do_not_count(tmp_path: Path) -> None:
    """Some runs are spoiled by chance: the others decide."""
    runs, bad = around(130_000, 0.03, 1), broken()
    mixed = (next(bad) if at % 3 == 1 else next(runs) for at in range(400))
    found = asked(tmp_path, new=mixed, base=around(100_000, 0.03, 2))
    assert found.answer == "worse"
    assert found.spoiled >= 1


OTHER = """\
import sys
from pathlib import Path
from tailtap.host.changes.journal import Journal
journal = Journal.create(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_measurement_under_way_is_named_by_its_process(tmp_path: Path) -> None:
    ours = Journal.create(tmp_path)
    assert Beside.look(tmp_path) == Beside([], [])
    with speaking([sys.executable, "-c", OTHER, str(tmp_path)], stdin=subprocess.PIPE) as other:
        seen = Beside.look(tmp_path)
        assert seen.running == [other.pid]
        [sentence] = seen.sentences
        assert sentence.startswith(f"process {other.pid} of tailtap is measuring on this machine")
        [warning] = other_measurements(Beside([], []), seen)
        assert warning.code == "other-measurement"
        assert f"process {other.pid} " in warning.message
        assert is_valid([warning])
    # It changed nothing, so nothing is left of it.
    assert Beside.look(tmp_path) == Beside([], [])
    assert other_measurements(Beside([], []), Beside([], [])) == []
    ours.close()


def test_what_a_killed_measurement_left_leads_to_clean(tmp_path: Path) -> None:
    value = tmp_path / "value"
    value.write_text("0\n")
    child = os.fork()
    if child == 0:
        journal = Journal.create(tmp_path)
        change = KernelValue((str(value),), "1")
        journal.apply(journal.enter(change), change)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    seen = Beside.look(tmp_path)
    assert (seen.running, seen.ended) == ([], [child])
    [sentence] = seen.sentences
    assert sentence.startswith(f"process {child} of tailtap, which has ended, left ")
    assert "`sudo tailtap clean`" in sentence
    assert other_measurements(seen) == []

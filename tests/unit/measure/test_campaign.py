"""Being interrupted, what a person is told meanwhile, and what is told of runs that are done."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_records import made
from traced import HOG, arrivals, random_jobs, simulate, write_run

from tailtap.cli.progress import Lines, Reasons, listener
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.lab.generators.model import Traffic
from tailtap.measure.live import explained

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


@pytest.mark.parametrize("how", ["alone", "nested"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_and_no_other(number: signal.Signals, how: str) -> None:
    assert said(number, how) == ["True", "False", "True"]


def test_after_nohup_a_hangup_has_no_effect() -> None:
    assert said(signal.SIGHUP, "ignored") == ["False", "False", "True"]
    assert said(signal.SIGINT, "ignored") == ["True", "False", "True"]


def said(number: signal.Signals, *options: str) -> list[str]:
    """What the program prints, which sends itself the signal twice."""
    command = [sys.executable, "-c", PROGRAM, str(int(number)), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


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

"""What a person is told while an experiment runs."""

from __future__ import annotations

import pytest
from made_records import made

from tailtap.cli.progress import Lines, Reasons, listener
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.lab.generators.model import Traffic

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

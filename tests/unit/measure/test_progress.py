"""What a person is told while an experiment runs."""

from __future__ import annotations

from typing import Any

import pytest

from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.measure.progress import Lines, Silent, complaints, make_reporter
from tailtap.traffic.model import Traffic

RUN = PlannedRun(2, "002-a", 1, {}, Experiment(name="a", traffic=Traffic()), "forward")


def record(**changes: Any) -> dict[str, Any]:
    return {"status": "done", "error": None, "warnings": [], **changes}


def test_a_log_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = make_reporter([RUN], 3, quiet=False)
    assert isinstance(reporter, Lines)
    assert not reporter.wants_ticks
    with reporter:
        reporter.started(RUN)
        reporter.finished(RUN, record(warnings=[{"code": "steal", "message": "stolen"}]))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "run 2 of 3: 002-a\n002-a: warning: stolen\n"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = make_reporter([RUN], 3, quiet=True)
    assert isinstance(reporter, Silent)
    with reporter:
        reporter.started(RUN)
        reporter.tick(1.0)
        reporter.finished(RUN, record(status="failed", error="broken"))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_complaints() -> None:
    assert complaints(record()) == []
    assert complaints(record(status="failed", error="broken")) == ["failed: broken"]

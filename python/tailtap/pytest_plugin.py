"""A plug-in of pytest with one fixture, `tail_latency`: a test that holds while a tail does.

    def test_forwarder(tail_latency):
        tail_latency("load.yaml", require=["p99.9 < 1 ms", "loss == 0"])

It is loaded with every pytest beside which tailtap is installed, and so imports nothing else yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from tailtap.analysis.runs.run import Experiment
    from tailtap.records.verdict import VerdictRecord


class TailLatency(Protocol):
    """What the fixture is: a function."""

    def __call__(
        self,
        experiment: str | Path | Mapping[str, Any],
        require: str | Sequence[str] = (),
        *,
        set: Sequence[str] = (),
        confidence: float = 0.95,
        allow_not_shown: bool = False,
    ) -> Experiment:
        """Measure, and fail the test unless everything that is required holds.

        `experiment` is an experiment file or what would be in it, which is measured on this machine
        as root; or a folder with results, which is judged as it is. Without `require`, what the
        experiment says is required. What is not shown fails, too, unless that is allowed. Gives the
        runs. The results of a measurement are in a folder of the test's `tmp_path`.
        """


@pytest.fixture
def tail_latency(tmp_path: Path) -> TailLatency:
    """Measure the tail of an experiment, and fail unless what is required of it holds."""
    count = iter(range(1, 1_000_000))

    def measure(
        experiment: str | Path | Mapping[str, Any],
        require: str | Sequence[str] = (),
        *,
        set: Sequence[str] = (),
        confidence: float = 0.95,
        allow_not_shown: bool = False,
    ) -> Experiment:
        from tailtap import library
        from tailtap.analysis.runs.reader import read_runs
        from tailtap.base.errors import TailtapError

        try:
            if not isinstance(experiment, Mapping) and Path(experiment).is_dir():
                folder = Path(experiment)
                found = read_runs(folder)
            else:
                folder = tmp_path / f"tail-latency-{next(count)}"
                found = library.run(experiment, folder, set=set)
            answer = library.verdict(folder, require, confidence=confidence)
        except TailtapError as error:
            pytest.fail(f"tailtap: {error}", pytrace=False)
        if wrong := list(_wrong(answer, allow_not_shown)):
            pytest.fail("\n".join([*wrong, f"results: {folder}"]), pytrace=False)
        return found

    return measure


def _wrong(answer: VerdictRecord, allow_not_shown: bool) -> Sequence[str]:
    good = ("holds", "not shown") if allow_not_shown else ("holds",)
    return [
        f"{row.configuration}: {row.requirement}: {row.answer}: {row.decided_by}: {row.reason}"
        for row in answer.verdicts
        if row.answer not in good
    ]

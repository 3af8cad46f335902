"""Flows measured together: which of them was worst, and how fairly they were served."""

from __future__ import annotations

from typing import Any

import pytest
from evaluations import counts, evaluation, run_row
from hypothesis import given
from hypothesis import strategies as st

from tailtap.analysis.runs.flows import jain, printed, together
from tailtap.cli.results import print_flows
from tailtap.records.evaluation import Latency, Percentile
from tailtap.records.experiment import LatencyOfFlow, LossOfFlow, RunRow


def row(
    number: int, variables: dict[str, Any], matched: int = 100, p99: int = 1000, repeat: int = 1
) -> RunRow:
    """A run of ``tailtap run --json`` that was sent 100 packets, and ten that were trimmed."""
    percentiles = [
        Percentile(0.5, 10, None, None, 50, supported=True),
        Percentile(0.99, p99, None, None, 10, supported=True),
        Percentile(0.999, 9999, None, None, 1, supported=number != 2),
    ]
    found = counts(ingress=110, matched=matched, lost=100 - matched, trimmed_ingress=10)
    latency = Latency(min=1, mean=10, max=9999, percentiles=percentiles)
    return run_row(
        f"{number:03}",
        variables=variables,
        repeat=repeat,
        evaluation=evaluation(found, latency),
    )


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_the_index_lies_between_one_nth_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("values", "index"),
    [([3, 3, 3], 1), ([1, 0, 0, 0], 0.25), ([0, 0], 1), ([1, 2, 3], 36 / 42)],
)
def test_the_index(values: list[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)


def test_the_worst_flows_are_found() -> None:
    rows = [
        row(1, {"dut.line": 1, "flow": "a"}, matched=50, p99=1000),
        row(2, {"dut.line": 1, "flow": "b"}, p99=3000),
        row(3, {"dut.line": 2, "flow": "a"}),
        row(4, {"dut.line": 2, "flow": "b"}),
    ]
    first, second = together(map(printed, rows))
    assert (first.run, first.flows) == ("001", ["a", "b"])
    assert first.lossiest == LossOfFlow(flow="a", lost=0.5)
    assert first.delivery_fairness == pytest.approx(1.5**2 / (2 * 1.25))
    # Run 2 does not support p99.9.
    assert (first.percentile, first.slowest) == (0.99, LatencyOfFlow(flow="b", latency_ns=3000))
    assert first.latency_fairness == pytest.approx(16 / 20)
    assert second.percentile == 0.999
    assert (second.delivery_fairness, second.latency_fairness) == (1, 1)


def test_only_whole_measurements_of_several_flows_count() -> None:
    failed = row(2, {"direction": "reverse"})
    failed.evaluation = None
    alone = row(3, {"dut.line": 1})
    other = row(4, {"direction": "forward"}, repeat=2)
    rows = [row(1, {"direction": "forward"}), failed, alone, other]
    assert list(together(map(printed, rows))) == []


def test_the_table_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(1, {"flow": "a"}, matched=90), row(2, {"flow": "b"}, p99=2500)]
    print_flows(list(together(map(printed, rows))))
    said = capsys.readouterr().out
    assert "invalid" not in said
    assert "a: 10 %" in said
    assert "b: p99 2.5 us" in said
    # The load is that of all flows: when one generator was late, all of them are invalid.
    rows[1].valid = False
    print_flows(list(together(map(printed, rows))))
    assert "001 (invalid)" in capsys.readouterr().out
    print_flows([])
    assert capsys.readouterr().out == ""

"""Packets in each second, as figures show them: no second counts that the packets did not fill."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_folders import write_run

from tailtap.analysis.runs.reader import load_experiment


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        (2_500, [1000, 1000]),  # half a second more
        (2_000, [1000, 1000]),  # the last packet comes one gap before the second ends
        (600, [1000]),  # no whole second: at the rate at which they came
    ],
)
def test_the_second_in_which_packets_end_is_no_rate(
    packets: int, expected: list[int], tmp_path: Path
) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=packets, rate=1_000)
    (run,) = load_experiment(tmp_path).finished
    assert run.evaluation is not None
    for side, shown in run.evaluation.rate_packets.items():
        assert shown.tolist() == pytest.approx(expected, abs=3), side
        assert run.evaluation.rate_start[side].size == len(expected)

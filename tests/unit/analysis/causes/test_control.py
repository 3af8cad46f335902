"""What a trace cost, told by runs without one: held against numbers taken from the stamps."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path

import numpy as np
import pytest
from program import TAILTAP
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.control import control_words
from tailtap.records.causes import CausesRecord, Control, TraceCost
from tailtap.records.record import read

SECONDS, RATE, REPEATS = 1.0, 20_000, 3


def add(home: Path, number: int, repeat: int, mode: str, slower_ns: int, **more: str) -> list[int]:
    """A run of an experiment; its latencies in ns, ascending."""
    random = np.random.default_rng(number)
    blocks = random_blocks(hog, 10, (300_000, 900_000), SECONDS, random)
    simulated = simulate(arrivals(RATE, SECONDS, random), blocks, random)
    simulated.egress += slower_ns
    folder = write_run(home / f"runs/{number:03}-{mode}", simulated)
    record = json.loads((folder / "run.json").read_text())
    record |= {"number": number, "repeat": repeat, "variables": {"trace": mode, **more}}
    record["parameters"]["trace"] = mode
    (folder / "run.json").write_text(json.dumps(record))
    if mode == "none":
        (folder / "trace.events").unlink()
        (folder / "trace.json").unlink()
    return sorted((simulated.egress - simulated.ingress).tolist())


def value(latencies: list[int], p: float) -> int:
    """The nearest rank."""
    return latencies[int(np.ceil(round(p * len(latencies), 6))) - 1]


@pytest.fixture
def taken(tmp_path: Path) -> dict[str, list[list[int]]]:
    """Latencies by mode, in the order of the repeats; each mode is slower than the one before."""
    found: dict[str, list[list[int]]] = {"none": [], "thin": [], "full": []}
    number = 0
    for repeat in range(1, REPEATS + 1):
        for place, mode in enumerate(found):
            number += 1
            found[mode].append(add(tmp_path, number, repeat, mode, place * 200 * repeat))
    (tmp_path / "experiment.yaml").write_text("name: control\n")
    return found


def expected(taken: dict[str, list[list[int]]], mode: str) -> Control:
    rows = []
    for p in (0.5, 0.999):
        traced, plain = ([value(one, p) for one in taken[which]] for which in (mode, "none"))
        more = [one / other - 1 for one, other in zip(traced, plain, strict=True)]
        rows.append(TraceCost(
            p=p, traced_ns=round(statistics.median(traced)),
            plain_ns=round(statistics.median(plain)),
            more=statistics.median(more), least=min(more), most=max(more),
        ))  # fmt: skip
    return Control(runs=REPEATS, percentiles=rows)


def test_each_mode_is_held_against_runs_without_a_trace(
    tmp_path: Path, taken: dict[str, list[list[int]]]
) -> None:
    found = explain_runs([tmp_path])
    assert len(found) == 2 * REPEATS
    for one in found:
        mode = str(one.run.variables["trace"])
        assert one.control == expected(taken, mode)
        assert one.run.own_folder is not None
        stored = read(one.run.own_folder / "causes.json", CausesRecord)
        assert stored.control == expected(taken, mode)
    [row, _] = expected(taken, "thin").percentiles
    done = subprocess.run(
        [str(TAILTAP), "explain", str(tmp_path / "runs/002-thin"), "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        f"cost of the trace, by 3 pairs of runs with and without it: median {row.more:+.1%} "
        f"({row.least:+.1%} to {row.most:+.1%})" in done.stdout
    )


def test_runs_that_differ_in_more_than_the_trace_are_no_control(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("name: control\n")
    add(tmp_path, 1, 1, "none", 0, rate="10 kpkt/s")
    add(tmp_path, 2, 1, "thin", 0, rate="50 kpkt/s")
    add(tmp_path, 3, 2, "none", 0, rate="50 kpkt/s")
    [found] = explain_runs([tmp_path])
    assert found.control is None
    assert "no valid pair of runs" in control_words(found.control)


def test_percentiles_that_few_packets_support_are_left_out() -> None:
    row = TraceCost(p=0.5, traced_ns=11, plain_ns=10, more=0.1, least=0.1, most=0.1)
    assert control_words(Control(runs=1, percentiles=[row])) == (
        "cost of the trace, by a run without it: median +10.0%; median without it 10 ns"
    )
    assert control_words(Control(runs=2, percentiles=[])).endswith("had too few packets")

"""How long it takes to join late packets with a trace, compared with evaluating the same captures.

The device is simulated: packets at a constant rate, one in twenty thousand held up by a task, and a
trace with a timer's interrupt, a task and idle for each packet. Both run in turn, from the page
cache, on all cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from program import TAILTAP
from traced import write_record
from traces import IDLE, TASK, VECTOR

from benches import process, timing
from benches.long import BLOCK, stamp_file
from benches.timing import MIB, MILLION
from tailtap.analysis import evaluation
from tailtap.analysis.causes import explain_runs
from tests.simulation.device import CORE, HOG, NAMES, SERVED_BIT, SERVES
from tests.simulation.machine import Integers
from tests.simulation.records import LAYOUT
from tests.simulation.traffic import START_NS

GAP_NS = 10_000
LATENCY_NS = 3_000
HELD_NS = 500_000
HELD_ONE_IN = 20_000


def write_run(folder: Path, pairs: int) -> Path:
    """A run folder of so many packets, with its trace, made in blocks."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    left = START_NS  # when the last packet left
    with (
        stamp_file(folder / "ingress.stamps", pairs) as before,
        stamp_file(folder / "egress.stamps", pairs) as after,
        (folder / "trace.events").open("wb") as trace,
    ):
        trace.write(b"TTTRACE1")
        for first in range(0, pairs, BLOCK):
            ids = np.arange(first, min(first + BLOCK, pairs))
            ingress, egress, held = _packets(ids, random)
            before(ingress, ids)
            after(egress, ids)
            _records(ingress, egress, held, left).tofile(trace)
            left = int(egress[-1])
    (folder / "trace.json").write_text(
        json.dumps({
            "schema": "tailtap.trace/1", "clock": "monotonic", "mode": "thin", "cpus": [CORE],
            "started_ns": START_NS - 1, "ended_ns": left + 1, "lost": {}, "names": NAMES,
            "served": {"by": "task", "pids": [SERVES], "cpus": [CORE]},
        })
    )  # fmt: skip
    write_record(folder)
    evaluation.evaluate(folder / "ingress.stamps", folder / "egress.stamps").write(
        folder / "evaluation"
    )
    return folder


def _packets(ids: Integers, random: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """When packets come and leave, and the places of those that the task takes the core from."""
    ingress = START_NS + ids * GAP_NS
    egress = ingress + LATENCY_NS + random.integers(0, 500, ids.size)
    held = np.arange(HELD_ONE_IN // 2, ids.size - 200, HELD_ONE_IN)
    for place in range(HELD_NS // GAP_NS):  # those that come while the task has the core
        done = ingress[held] + HELD_NS + 2_000 * (place + 1)
        egress[held + place] = np.maximum(egress[held + place], done)
    return ingress, np.maximum.accumulate(egress), held


def _records(ingress: Integers, egress: Integers, held: Integers, left: int) -> npt.NDArray[Any]:
    """The server's stretch before each egress, an interrupt in it, idle between, and the task."""
    before = np.concatenate(([left], egress[:-1]))
    start = np.maximum(egress - 1_500, before)
    serving = _column(start, egress, TASK, SERVES, SERVED_BIT)
    interrupts = _column(start + 200, np.minimum(start + 600, egress), VECTOR, 1)
    idle = _column(before, start, IDLE, 1)
    tasks = _column(ingress[held] + 100, ingress[held] + HELD_NS, TASK, HOG, HOG)
    found = np.concatenate((serving, interrupts, idle[idle["dur"] > 0], tasks))
    return found[np.argsort(found["start"] + found["dur"], kind="stable")]


def _column(start: Integers, end: Integers, kind: int, id: int, aux: int = 0) -> npt.NDArray[Any]:
    records = np.zeros(start.size, LAYOUT)
    records["start"], records["dur"] = start, np.maximum(end - start, 0)
    records["kind"], records["cpu"], records["id"], records["aux"] = kind, CORE, id, aux
    return records


def in_turn(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each work in seconds, over rounds in which each has its turn."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, taken in zip(works, seconds, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in seconds]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="benches.explain", description=__doc__)
    parser.add_argument("--pairs", type=float, nargs="+", default=[1, 10], help="millions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep the runs here, and use those that are here")
    options = parser.parse_args()
    print(f"{timing.machine()}; median of {options.rounds} rounds\n")
    print(
        f"{'M pairs':>8}{'M records':>11}{'late':>9}{'evaluate s':>12}{'explain s':>11}"
        f"{'ratio':>7}{'peak MiB':>10}"
    )
    for millions in options.pairs:
        with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
            run = (options.keep or Path(folder)) / f"001-simulated-{millions:g}"
            if not run.exists():
                write_run(run, int(millions * MILLION))
            sides = run / "ingress.stamps", run / "egress.stamps"
            evaluation.evaluate(*sides)  # which brings the stamps into the page cache
            found = explain_runs([run])[0]
            assert found.labels.rows[0].cause == "task", "another cause than the simulated one"
            records = found.joined.laid.notes["records"] / MILLION
            late = found.joined.state.size
            del found
            evaluating, joining = in_turn(
                [partial(evaluation.evaluate, *sides), partial(explain_runs, [run])], options.rounds
            )
            program = process.run(TAILTAP, "explain", run, "--quiet", "--json")
            ratio, peak = joining / evaluating, program.peak / MIB
            print(f"{millions:8g}{records:11.1f}{late:9,}{evaluating:12.2f}{joining:11.2f}"
                  f"{ratio:7.1f}{peak:10,.0f}", flush=True)  # fmt: skip
    print(f"\na record takes 32 bytes in the file: {32 * MILLION / MIB:.0f} MiB for a million")


if __name__ == "__main__":
    main()

"""Run folders with stamps in them, as `tailtap run` leaves them, also of lines of nodes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from made_records import rewrite
from stamps import write_sides, write_stamps

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.evaluate import Settings
from tailtap.analysis.evaluation.hops import evaluate_hops
from tailtap.analysis.evaluation.values import HopCaptures
from tailtap.results.database import refresh
from tailtap.results.tables import TABLES
from tests.simulation.folders import write_run as made_run
from tests.simulation.traffic import NEVER, Packets

SECOND = 1_000_000_000


def passed(packets: int, seed: int) -> Packets:
    """100 kpkt/s with a tail, some loss and some reordering."""
    random = np.random.default_rng(seed)
    ingress = 7 * SECOND + np.arange(packets) * 10_000 + random.integers(0, 5_000, packets)
    egress = ingress + 4_000 + (random.pareto(1.5, packets) * 2_000).astype(np.int64)
    return Packets(ingress, np.where(random.random(packets) > 0.001, egress, NEVER))


def write_pair(
    folder: Path, packets: int, seed: int, names: tuple[str, str] = ("in", "out")
) -> tuple[Path, Path]:
    """Stamps of both sides of these packets, in files of these names."""
    made = passed(packets, seed)
    write_sides(folder, made.sent, made.left, *np.flatnonzero(made.left == NEVER))
    one, other = (folder / f"{name}.stamps" for name in names)
    return (folder / "ingress.stamps").rename(one), (folder / "egress.stamps").rename(other)


def write_run(
    folder: Path,
    number: int,
    *,
    packets: int = 20_000,
    status: str = "done",
    settings: dict[str, Any] | None = None,
) -> Path:
    """A run folder in `folder`; one that is done has stamps and an evaluation."""
    return made_run(
        folder / f"{number:03}-bare-metal",
        number,
        passed(packets, number),
        {"traffic.rate": f"{number} kpkt/s"},
        name="again",
        status=status,
        settings=settings,
        warnings=[("steal", "the hypervisor took 3 % of CPU 1's time")],
        changes={"taps": None},
    )


def write_experiment(folder: Path, packets: tuple[int, ...]) -> Path:
    """An experiment whose runs have so many `packets` each, and one run that failed."""
    for number, count in enumerate(packets, 1):
        write_run(folder / "runs", number, packets=count)
    write_run(folder / "runs", len(packets) + 1, status="failed")
    refresh(folder)
    return folder


def rows(folder: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """What the database of an experiment's folder, or another one, answers."""
    file = folder if folder.suffix == ".duckdb" else folder / "results.duckdb"
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(query, list(values)).fetchall()


def all_rows(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of each table of ours as texts, in their order."""
    query = "SELECT COLUMNS(*)::VARCHAR FROM {} ORDER BY ALL"
    return {table: rows(folder, query.format(table)) for table in TABLES}


def evaluations(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of all evaluations below `folder`, by their paths in it."""
    files = sorted(folder.rglob("evaluation/*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


PACKETS = 20_000
STALLED, LOST = 777, 4_000
STALL_NS = 3_900_000


def write_line_run(folder: Path, nodes: int = 3, number: int = 1) -> Path:
    """A run folder in `folder`: the third node held up one packet, the second lost one.

    Every hop takes from 5 us to 60 us.
    """
    run = write_run(folder, number, packets=PACKETS)
    took = np.random.default_rng(7).integers(5_000, 60_000, (PACKETS, nodes))
    took[STALLED, 2] = STALL_NS
    sent = 9_000_000_000 + np.arange(PACKETS) * 100_000
    times = np.column_stack((sent, sent[:, None] + np.cumsum(took, axis=1)))
    names = ["ingress", *(f"dut{node}" for node in range(2, nodes + 1)), "egress"]
    for place, name in enumerate(names):
        ids = np.arange(PACKETS) if place < 2 else np.delete(np.arange(PACKETS), LOST)
        ids = ids[np.argsort(times[ids, place], kind="stable")]
        write_stamps(run / f"{name}.stamps", times[ids, place], ids)
    before = [*(f"dut{node}" for node in range(1, nodes + 1)), None]
    points = [
        {"name": name, "port": f"{name}:tt-in", "file": f"{name}.stamps", "before": node}
        for name, node in zip(names, before, strict=True)
    ]
    taps = {"facts": [], "files": [], "points": points}
    rewrite(run / "run.json", instruments={"taps": taps})
    evaluated(run, names).write(run / "evaluation")
    return run


def evaluated(run: Path, names: list[str]) -> Evaluation:
    files = [run / f"{name}.stamps" for name in names]
    captures = [HopCaptures(f"dut{n}", *pair) for n, pair in enumerate(pairwise(files), 1)]
    return evaluate_hops(evaluate(files[0], files[-1]), captures, Settings())

"""What is read by many is what one process makes of a run; runs that nobody explains."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_cluster import DaskCluster, dask_cluster
from made_records import rewrite
from program import TAILTAP
from traced import (
    HOG,
    KWORKER,
    traffic,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs, many
from tailtap.analysis.causes.explain import explain
from tailtap.analysis.causes.many import Told, explain_many
from tailtap.analysis.causes.record import record, worst_stalls
from tailtap.analysis.evaluation.cluster import Cluster
from tailtap.analysis.evaluation.executors import Executor, Threads
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError

FILES = ("causes.json", "causes-late.parquet", "causes-parts.parquet", "causes-stalls.parquet")
STALLS = 3


@pytest.fixture(scope="module")
def empty() -> Iterator[DaskCluster]:
    """A scheduler to which tests add workers."""
    with dask_cluster(workers=0) as cluster:
        yield cluster


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Four runs; the second one has the trace of another boot."""
    for number in range(1, 5):
        kinds = (HOG, 3 * number, (300_000, 900_000)), (KWORKER, 20, (100_000, 400_000))
        folder = tmp_path / f"out/runs/{number:03}-traced"
        boot = {"boot_id": "other"} if number == 2 else {}
        write_run(folder, traffic(number, 1.0, *kinds), **boot)
        rewrite(folder / "run.json", number=number)
    return tmp_path / "out"


def written(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}


def explained(experiment: Path, executor: Executor | None) -> list[tuple[str, object, object]]:
    told = explain_many([experiment], executor, late="p99", stalls=STALLS)
    found: list[tuple[str, object, object]] = []
    for folder, one in told:
        if isinstance(one, Told):
            found.append((folder.name, (one.record, list(one.worst)), written(folder)))
            for name in FILES:
                (folder / name).unlink()
        else:
            found.append((folder.name, f"{type(one).__name__}: {one}", written(folder)))
    return found


def test_runs_are_told_in_order_as_one_by_one(experiment: Path) -> None:
    found = explained(experiment, None)
    with Threads(2) as threads:
        assert explained(experiment, threads) == found
    assert [name for name, _, _ in found] == [f"{number:03}-traced" for number in range(1, 5)]
    for name, told, files in found:
        folder = experiment / "runs" / name
        if name == "002-traced":
            assert isinstance(told, str) and "boot" in told
            assert files == {}
            continue
        [one] = explain_runs([folder], late="p99")
        assert told == (record(one), worst_stalls(one, STALLS))
        assert files == written(folder)
        assert set(written(folder)) == set(FILES)


def test_a_bug_in_one_run_costs_that_run(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def breaks(run: Run, **options: Any) -> Explained:
        if run.slug == "003-traced":
            raise KeyError("of nobody")
        return explain(run, **options)

    monkeypatch.setattr(many, "explain", breaks)
    found = {name: told for name, told, _ in explained(experiment, None)}
    untold = [name for name, told in found.items() if isinstance(told, str)]
    assert untold == ["002-traced", "003-traced"]
    assert str(found["003-traced"]).startswith("Bug: a bug of tailtap: KeyError: 'of nobody'")


def test_workers_give_the_bytes_of_this_process_and_the_program_prints_the_same(
    experiment: Path, empty: DaskCluster
) -> None:
    command = [str(TAILTAP), "explain", str(experiment), "--late", "p99", "--json"]
    here = subprocess.run(command, capture_output=True, text=True, check=False)
    with empty.workers(2):
        there = subprocess.run(
            [*command, "--scheduler", empty.address], capture_output=True, text=True, check=False
        )
        with Cluster(empty.address) as cluster:
            assert explained(experiment, cluster) == explained(experiment, None)
    assert here.returncode == there.returncode == InputError.exit_status
    assert json.loads(here.stdout) == json.loads(there.stdout)
    told = [run["run"] for run in json.loads(here.stdout)["runs"]]
    assert told == ["001-traced", "003-traced", "004-traced"]
    for run in (here, there):
        assert "1 of 4 runs could not be explained, 002-traced first: " in run.stderr
        assert "Traceback" not in run.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "001-small", traffic(1, 0.5, (HOG, 3, (500_000, 600_000))))


def without(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def saying(**changes: object) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / "trace.json", **changes)


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "trace.events").write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "late", "says"),
    [
        (without("trace.json"), "p99.9", "cut off"),
        (without("trace.json", "trace.events"), "p99.9", "no trace: measure it with `trace: thin`"),
        (without("ingress.stamps"), "p99.9", "the stamps of the run are gone"),
        (saying(boot_id="other"), "p99.9", "another boot"),
        (saying(clock="realtime"), "p99.9", "by the clock monotonic, its trace by realtime"),
        (saying(started_ns=5, ended_ns=6), "p99.9", "another run: .* s before"),
        (saying(started_ns=10**17, ended_ns=10**17 + 1), "p99.9", "another run: .* s after"),
        (saying(schema="tailtap.trace/9"), "p99.9", "schema: 'tailtap.trace/9' is wrong"),
        (saying(cpus=[0]), "p99.9", "packets are served on CPUs 1, and traced were 0"),
        (saying(served={"by": "magic"}), "p99.9", r"served\.by: 'magic' is wrong"),
        (saying(served=None), "p99.9", "does not say by what packets are served"),
        (saying(served={}), "p99.9", r"served\.by: this key is missing"),
        (holding(b""), "p99.9", r"trace\.events: this is no trace"),
        (holding(b"TTTR"), "p99.9", r"trace\.events: this is no trace"),
        (holding(b"something else entirely"), "p99.9", r"trace\.events: this is no trace"),
        (without(), "p100", "lies between p0 and p100"),
        (without(), "soon", "give a percentile such as p99.9"),
        (without(), "1 s", "no packet took longer than 1 s"),
    ],
)
def test_what_is_refused(
    folder: Path, spoil: Callable[[Path], object], late: str, says: str
) -> None:
    spoil(folder)
    with pytest.raises(InputError, match=says):
        explain_runs([folder], late=late)
    assert not (folder / "causes.json").exists()

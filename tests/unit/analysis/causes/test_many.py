"""Many runs on a real Dask cluster: byte for byte what this process makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_cluster import PATIENCE_SECONDS, DaskCluster, dask_cluster
from program import TAILTAP
from traced import arrivals, hog, kworker, random_blocks, simulate, write_run

from tailtap.analysis.causes import Explained, explain_runs, many
from tailtap.analysis.causes.explain import explain
from tailtap.analysis.causes.many import Told, explain_many
from tailtap.analysis.causes.record import record
from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.stalls import worst_stalls
from tailtap.analysis.evaluation.cluster import Cluster
from tailtap.analysis.evaluation.executors import Executor, Task, Threads
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError, MachineError

SECONDS = 1.0
FILES = ("causes.json", "causes-late.parquet", "causes-parts.parquet", "causes-stalls.parquet")
KNOBS = (Knob("workqueues", ("kernel-thread",), 1, "runtime"),)
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
        random = np.random.default_rng(number)
        blocks = [
            *random_blocks(hog, 3 * number, (300_000, 900_000), SECONDS, random),
            *random_blocks(kworker, 20, (100_000, 400_000), SECONDS, random),
        ]
        simulated = simulate(arrivals(20_000, SECONDS, random), blocks, random)
        folder = tmp_path / f"out/runs/{number:03}-traced"
        write_run(folder, simulated, **({"boot_id": "other"} if number == 2 else {}))
        content = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**content, "number": number}))
    return tmp_path / "out"


def written(folder: Path) -> dict[str, bytes]:
    """What stands in a run folder of its causes."""
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}


def explained(experiment: Path, executor: Executor | None) -> list[tuple[str, object, object]]:
    """What is told and written of each run."""
    told = explain_many([experiment], executor, late="p99", knobs=KNOBS, stalls=STALLS)
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
    assert [name for name, _, _ in found] == [f"{number:03}-traced" for number in range(1, 5)]
    for name, told, files in found:
        folder = experiment / "runs" / name
        if name == "002-traced":
            assert isinstance(told, str) and "boot" in told
            assert files == {}
            continue
        [one] = explain_runs([folder], late="p99", knobs=KNOBS)
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
    assert [name for name, told in found.items() if isinstance(told, str)] == [
        "002-traced",
        "003-traced",
    ]
    assert str(found["003-traced"]).startswith("Bug: a bug of tailtap: KeyError: 'of nobody'")


def test_threads_give_the_bytes_of_one(experiment: Path) -> None:
    with Threads(2) as threads:
        assert explained(experiment, threads) == explained(experiment, None)


def test_a_worker_killed_in_mid_work_costs_time_only(experiment: Path, empty: DaskCluster) -> None:
    here = explained(experiment, None)
    found: list[object] = []
    given = threading.Event()

    class Watched(Cluster):
        """Says when there is a task."""

        def submit(self, function: Callable[..., object], *arguments: object) -> Task:
            task = super().submit(function, *arguments)
            given.set()
            return task

    def work() -> None:
        with Watched(empty.address) as cluster:
            found.extend(explained(experiment, cluster))

    with empty.worker() as first:
        working = threading.Thread(target=work)
        working.start()
        assert given.wait(PATIENCE_SECONDS)
        first.kill()
        with empty.worker():
            working.join(timeout=PATIENCE_SECONDS)
    assert found == here


@pytest.mark.skipif(os.geteuid() != 0, reason="another user for the worker needs root")
def test_workers_that_do_not_see_a_trace_are_refused(experiment: Path, empty: DaskCluster) -> None:
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]
    if subprocess.run([*nobody, "-c", "import distributed"], check=False).returncode != 0:
        pytest.skip("another user cannot run this Python")
    with (
        empty.worker(nobody),
        Cluster(empty.address) as cluster,
        pytest.raises(MachineError, match=r"cannot read .*001-traced/run.json nor 19 other"),
    ):
        explain_many([experiment], cluster)


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
    assert [run["run"] for run in json.loads(here.stdout)["runs"]] == [
        "001-traced",
        "003-traced",
        "004-traced",
    ]
    for told in (here, there):
        assert "1 of 4 runs could not be explained, 002-traced first: " in told.stderr
        assert "Traceback" not in told.stderr

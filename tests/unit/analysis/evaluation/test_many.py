"""Many pairs of captures, and large ones in pieces: on threads, and on a real Dask cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import runs
from captures import write_many
from dask_cluster import PATIENCE_SECONDS, DaskCluster, dask_cluster, wait_until
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from tailtap import __version__, _core
from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Captures, Evaluation, Settings, evaluate_many
from tailtap.analysis.evaluation.cluster import Cluster
from tailtap.analysis.evaluation.executors import Task, Threads, stopped
from tailtap.analysis.evaluation.many import Place, Tree, evaluate_piece, plan
from tailtap.base.errors import (
    InputError,
    Interrupted,
    MachineError,
    TailtapError,
)


def files(found: Evaluation, folder: Path) -> dict[str, bytes]:
    """The bytes of all files that an evaluation writes."""
    found.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def stamped(folder: Path, packets: int) -> tuple[Path, Path]:
    return runs.write_pair(folder, packets, 1)


def ended(
    captures: list[Captures], chunk_bytes: int, executor: Threads | None = None
) -> list[Evaluation | TailtapError]:
    with executor or Threads(2) as threads:
        found = dict(evaluate_many(captures, threads, chunk_bytes=chunk_bytes))
    return [found[index] for index in range(len(captures))]


class Counting(Threads):
    """Threads that count how many tasks were under way at most."""

    def __init__(self) -> None:
        super().__init__(2)
        self.under_way = self.most = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., object], *arguments: object) -> Task:
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        task = super().submit(function, *arguments)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, _: object) -> None:
        with self._lock:
            self.under_way -= 1


def test_files_are_called_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks get absolute paths, which would otherwise turn up in results and messages."""
    (tmp_path / "out.stamps").write_bytes(stamped(tmp_path, 5_000)[1].read_bytes()[:-3])
    monkeypatch.chdir(tmp_path)
    pair = (Path("in.stamps"), Path("out.stamps"))
    [found, refused] = ended([Captures(*pair), Captures(pair[0], Path("none"))], 10_000)
    assert isinstance(found, Evaluation)
    assert found.inputs.ingress.path == "in.stamps"
    assert found.warnings == evaluation.evaluate(*pair).warnings
    assert any(warning.message.startswith("out.stamps: ") for warning in found.warnings)
    assert str(refused).startswith("none: ")


def test_an_unexpected_failure_is_one_line(tmp_path: Path) -> None:
    class Failing(Threads):
        def submit(self, function: Callable[..., object], *arguments: object) -> Task:
            return super().submit(int, "many\nlines")

    [found] = ended([Captures(tmp_path / "a", tmp_path / "b")], 1, Failing(1))
    assert isinstance(found, MachineError)
    assert str(found).startswith(f"{tmp_path}/a: ValueError: ")
    assert "\n" not in str(found)


def test_progress_counts_pieces(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with Counting() as executor:
        list(evaluate_many([Captures(*stamped(tmp_path, 30_000))], executor, chunk_bytes=50_000,
                           progress=lambda *now: told.append(now)))  # fmt: skip
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] == len(told) - 1 > 3
    assert executor.most <= executor.slots() + 1


def test_leaving_the_threads_stops_what_is_under_way() -> None:
    begun = threading.Event()

    def until_stopped() -> str:
        begun.set()
        while not stopped():
            time.sleep(0.001)
        return "stopped"

    with Threads(1) as threads:
        task = threads.submit(until_stopped)
        assert begun.wait(60)
    assert task.result() == "stopped"
    assert not stopped()
    with pytest.raises(InputError, match="0 jobs do nothing"):
        Threads(0)


def test_a_piece_is_given_up_when_that_is_said(tmp_path: Path) -> None:
    [piece] = plan(*stamped(tmp_path, 30_000), Settings(), 0)
    assert _core.evaluate_piece(piece, stopped=lambda: False) == evaluate_piece(piece)
    with pytest.raises(Interrupted):
        _core.evaluate_piece(piece, stopped=lambda: True)


def test_ctrl_c_waits_until_a_task_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a pool's own code it would leave a lock taken, which the threads wait for."""
    handed = []

    def submit(pool: ThreadPoolExecutor, *_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        handed.append(pool)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Threads(1) as executor, pytest.raises(KeyboardInterrupt):
            executor.submit(len, "")
        assert len(handed) == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


Span = list[int]


@given(st.integers(1, 200), st.integers(2, 9), st.randoms(use_true_random=False))
def test_pieces_are_merged_side_by_side_whatever_their_order(
    pieces: int, fan_in: int, random: Random
) -> None:
    """Every merge gets neighbours in order, at most `fan_in`, and the last one makes the whole."""
    tree: Tree[Span] = Tree(pieces, fan_in)
    arriving = [(Place(0, number), [number]) for number in range(pieces)]
    whole = None
    while arriving:
        assert whole is None
        place, span = arriving.pop(random.randrange(len(arriving)))
        ready = tree.add(place, span)
        if ready is None:
            continue
        where, parts = ready
        assert 1 <= len(parts) <= fan_in
        joined = [number for part in parts for number in part]
        assert joined == list(range(joined[0], joined[-1] + 1))
        if len(parts) == 1:
            assert where == tree.root
            whole = joined
        else:
            arriving.append((where, joined))
    assert whole == list(range(pieces))


SITE = Path(sysconfig.get_path("purelib"))


@pytest.fixture(scope="module")
def empty() -> Iterator[DaskCluster]:
    """A scheduler to which tests add workers."""
    with dask_cluster(workers=0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Captures]:
    """Pairs of several kinds: large, small, compressed, out of order, broken, missing."""
    folder = tmp_path_factory.mktemp("pairs")
    runs.write_pair(folder, 40_000, 1, ("a-in", "a-out"))
    runs.write_pair(folder, 2_000, 2, ("b-in", "b-out"))
    times = 9_000_000_000 + np.arange(20_000) * 1_000
    times[15_000], times[15_001] = times[15_001], times[15_000]
    write_many(folder / "c-in.pcap", times, np.arange(20_000))
    write_many(folder / "c-out.pcap", times + 700, np.arange(20_000))
    (folder / "junk").write_bytes(b"junk" * 99)
    names = [
        ("a-in.stamps", "a-out.stamps"), ("b-in.stamps", "b-out.stamps"),
        ("c-in.pcap", "c-out.pcap"), ("a-out.stamps", "a-in.stamps"),
        ("junk", "b-out.stamps"), ("b-in.stamps", "missing"),
    ]  # fmt: skip
    return [Captures(folder / one, folder / other) for one, other in names]


def written(found: Evaluation | TailtapError, folder: Path) -> dict[str, bytes] | str:
    return files(found, folder) if isinstance(found, Evaluation) else f"{type(found)}: {found}"


def whole(pair: Captures) -> Evaluation | TailtapError:
    try:
        return evaluation.evaluate(pair.ingress, pair.egress)
    except TailtapError as error:
        return error


def test_two_workers_give_the_bytes_of_this_machine(
    empty: DaskCluster, pairs: list[Captures], tmp_path: Path
) -> None:
    with empty.workers(2), Cluster(empty.address) as cluster:
        found = dict(evaluate_many(pairs, cluster, chunk_bytes=50_000))
    assert sorted(found) == list(range(len(pairs)))
    for index, pair in enumerate(pairs):
        there = written(found[index], tmp_path / f"there-{index}")
        assert there == written(whole(pair), tmp_path / f"here-{index}"), pair
        assert isinstance(there, str) == (index >= 3)


def test_a_worker_killed_in_mid_work_costs_time_only(
    empty: DaskCluster, pairs: list[Captures], tmp_path: Path
) -> None:
    """The first worker dies with finished pieces in its memory and others in its hands."""
    found: list[Any] = []
    waiting, stopped = threading.Event(), threading.Event()

    class Waiting(Cluster):
        """Gives no more tasks, from the eighth on, until the first worker stands still."""

        given = 0

        def submit(self, function: Callable[..., object], *arguments: object) -> Task:
            self.given += 1
            if self.given == 8:
                waiting.set()
                assert stopped.wait(PATIENCE_SECONDS)
            return super().submit(function, *arguments)

    def work() -> None:
        with Waiting(empty.address) as cluster:
            found.extend(evaluate_many(pairs[:1], cluster, chunk_bytes=6_000))

    with (
        Client(empty.address, set_as_default=False) as watching,
        empty.worker() as first,
    ):
        working = threading.Thread(target=work)
        working.start()

        def holds_results() -> bool:
            return any(watching.has_what().values())

        # The client needs nothing of the first worker before it gives the next task.
        assert waiting.wait(PATIENCE_SECONDS)
        wait_until(holds_results, "the first results")
        first.send_signal(signal.SIGSTOP)
        stopped.set()
        wait_until(lambda: any(watching.processing().values()), "tasks in its hands")
        first.kill()
        assert not found
        with empty.worker():
            working.join(timeout=PATIENCE_SECONDS)
    [(_, one)] = found
    assert written(one, tmp_path / "there") == written(whole(pairs[0]), tmp_path / "here")


def test_a_scheduler_that_is_lost_is_told(pairs: list[Captures]) -> None:
    with dask_cluster(workers=1) as cluster, Cluster(cluster.address) as executor:
        work = evaluate_many([pairs[1]] * 100, executor)
        next(work)
        cluster.scheduler.kill()
        with pytest.raises(MachineError, match="scheduler"):
            list(work)


def test_workers_that_all_died_are_not_waited_for_for_ever(
    empty: DaskCluster, pairs: list[Captures], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailtap.analysis.evaluation.cluster.PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("tailtap.analysis.evaluation.cluster.CONNECT_SECONDS", 0.5)
    with Cluster(empty.address) as cluster:
        with pytest.raises(MachineError, match="has no workers"):
            list(evaluate_many(pairs[:1], cluster))
        with empty.worker() as worker:
            work = evaluate_many([pairs[1]] * 50, cluster)
            next(work)
            worker.kill()
        with pytest.raises(MachineError, match="has no workers"):
            list(work)


def test_a_result_that_died_with_its_worker_is_not_waited_for_for_ever(
    empty: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended well, and is to be computed again once there are workers, which never come."""
    monkeypatch.setattr("tailtap.analysis.evaluation.cluster.LOOK_SECONDS", 0.2)
    monkeypatch.setattr("tailtap.analysis.evaluation.cluster.PATIENCE_SECONDS", 1.0)
    with Cluster(empty.address) as cluster:
        with empty.worker() as worker:
            cluster.slots()  # which sees the worker
            task: Any = cluster.submit(os.getpid)
            assert task.result() != os.getpid()
            worker.kill()
            wait_until(lambda: task.status == "lost", "the loss of the result")
        for ask in (cluster.error, cluster.result):
            with pytest.raises(MachineError, match="has no workers"):
                ask(task)


@pytest.mark.parametrize("theirs", [None, "0.0.9"])
def test_workers_with_another_tailtap_are_refused(
    empty: DaskCluster, pairs: list[Captures], tmp_path: Path, theirs: str | None
) -> None:
    """A worker in an environment like ours but for tailtap."""
    for entry in SITE.iterdir():
        if not entry.name.startswith("tailtap"):
            (tmp_path / entry.name).symlink_to(entry)
    if theirs is not None:
        info = tmp_path / f"tailtap-{theirs}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tailtap\nVersion: {theirs}\n")
    python = [sys.executable, "-S"]
    has = "has no tailtap" if theirs is None else f"has tailtap {theirs}"
    with (
        empty.worker(python, {"PYTHONPATH": str(tmp_path)}),
        Cluster(empty.address) as cluster,
        pytest.raises(MachineError, match=f"worker tcp://.* {has}, and here it is {__version__}"),
    ):
        list(evaluate_many(pairs[:1], cluster))


@pytest.mark.skipif(os.geteuid() != 0, reason="another user for the worker needs root")
def test_workers_that_do_not_see_the_captures_are_refused(
    empty: DaskCluster, pairs: list[Captures]
) -> None:
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]
    if subprocess.run([*nobody, "-c", "import distributed"], check=False).returncode != 0:
        pytest.skip("another user cannot run this Python")
    with (
        empty.worker(nobody),
        Cluster(empty.address) as cluster,
        pytest.raises(MachineError, match=r"cannot read .*a-in.stamps nor 3 other files: put"),
    ):
        list(evaluate_many(pairs[:2], cluster))


@pytest.mark.parametrize("address", ["nonsense", "", "carrier-pigeon://here:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="this is no address"):
        Cluster(address)


def test_an_address_where_nobody_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody, and a service that waits for something else."""
    monkeypatch.setattr("tailtap.analysis.evaluation.cluster.CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        for port in (1, mute.getsockname()[1]):
            with pytest.raises(MachineError, match="no Dask scheduler answers there"):
                Cluster(f"tcp://127.0.0.1:{port}")

"""Many pairs of captures, and large ones in pieces, on this machine's threads."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
import runs
from captures import write_many
from hypothesis import given
from hypothesis import strategies as st

from tailtap import _core
from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.executors import Task, Threads, stopped
from tailtap.analysis.evaluation.many import (
    Captures,
    Place,
    Tree,
    evaluate_many,
    evaluate_piece,
    plan,
)
from tailtap.analysis.evaluation.settings import Settings
from tailtap.base.errors import (
    InputError,
    Interrupted,
    MachineError,
    NothingMatched,
    NotRead,
    OfAnotherKind,
    TailtapError,
)

SECOND = 1_000_000_000


def files(found: Evaluation, folder: Path) -> dict[str, bytes]:
    """The bytes of all files that an evaluation writes."""
    found.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def ended(
    captures: list[Captures], chunk_bytes: int, executor: Threads | None = None
) -> list[Evaluation | TailtapError]:
    """What came of each of `captures`."""
    with executor or Threads(2) as threads:
        found = dict(evaluate_many(captures, threads, chunk_bytes=chunk_bytes))
    return [found[index] for index in range(len(captures))]


class Counting(Threads):
    """Threads that count the pieces they were given, and how many tasks were under way at most."""

    def __init__(self) -> None:
        super().__init__(2)
        self.pieces = self.under_way = self.most = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., object], *arguments: object) -> Task:
        with self._lock:
            self.pieces += function is evaluate_piece
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        task = super().submit(function, *arguments)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, _: object) -> None:
        with self._lock:
            self.under_way -= 1


@pytest.mark.parametrize("chunk_bytes", [20_000, 100_000, 1 << 30])
@pytest.mark.parametrize("kind", ["stamps", "pcap"])
def test_pieces_give_the_bytes_of_the_whole(tmp_path: Path, kind: str, chunk_bytes: int) -> None:
    settings = Settings(trim_ns=SECOND // 50, worst=300, window_ns=SECOND // 10)
    pair = (tmp_path / f"in.{kind}", tmp_path / f"out.{kind}")
    if kind == "stamps":
        runs.write_pair(tmp_path, 30_000, 1, names=(pair[0].name, pair[1].name))
    else:
        times = 9 * SECOND + np.arange(10_000) * 10_000
        write_many(pair[0], times, np.arange(10_000))
        write_many(pair[1], times[3:] + 5_000, np.arange(3, 10_000))
    whole = evaluation.evaluate(
        *pair, trim_ns=settings.trim_ns, worst=settings.worst, window_ns=settings.window_ns
    )
    counting = Counting()
    [found] = ended([Captures(*pair, settings)], chunk_bytes, counting)
    assert isinstance(found, Evaluation)
    assert files(found, tmp_path / "pieces") == files(whole, tmp_path / "whole")
    size = pair[0].stat().st_size
    assert counting.pieces == 1 if chunk_bytes > size else counting.pieces > size // chunk_bytes / 2
    assert counting.most <= counting.slots() + 1


def test_errors_come_back_in_place_of_evaluations(tmp_path: Path) -> None:
    runs.write_pair(tmp_path, 5_000, 1, names=("in.stamps", "out.stamps"))
    (tmp_path / "junk").write_bytes(b"junk" * 100)
    good = (tmp_path / "in.stamps", tmp_path / "out.stamps")
    missing, junk = (good[0], tmp_path / "missing"), (tmp_path / "junk", good[1])
    pairs = [good, missing, good[::-1], junk, good]
    found = ended([Captures(*pair) for pair in pairs], 10_000)
    assert [type(one) for one in found] == [
        Evaluation, NotRead, NothingMatched, OfAnotherKind, Evaluation,
    ]  # fmt: skip
    for pair, one in list(zip(pairs, found, strict=True))[1:4]:
        with pytest.raises(InputError) as whole:
            evaluation.evaluate(*pair)
        assert str(one) == str(whole.value)


def test_captures_out_of_order_are_evaluated_in_one_piece(tmp_path: Path) -> None:
    times = SECOND + np.arange(20_000) * 1_000
    times[15_000], times[15_001] = times[15_001], times[15_000]
    write_many(tmp_path / "in.pcap", times, np.arange(20_000))
    write_many(tmp_path / "out.pcap", times + 700, np.arange(20_000))
    pair = (tmp_path / "in.pcap", tmp_path / "out.pcap")
    [found] = ended([Captures(*pair)], 100_000)
    assert isinstance(found, Evaluation)
    whole = evaluation.evaluate(*pair)
    assert files(found, tmp_path / "pieces") == files(whole, tmp_path / "whole")


def test_files_are_called_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks get absolute paths, which would otherwise turn up in results and messages."""
    runs.write_pair(tmp_path, 5_000, 1, names=("in.stamps", "out.stamps"))
    (tmp_path / "out.stamps").write_bytes((tmp_path / "out.stamps").read_bytes()[:-3])
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
    runs.write_pair(tmp_path, 30_000, 1, names=("in.stamps", "out.stamps"))
    told: list[tuple[int, int]] = []
    pair = Captures(tmp_path / "in.stamps", tmp_path / "out.stamps")
    with Threads(1) as executor:
        for _ in evaluate_many(
            [pair], executor, chunk_bytes=50_000, progress=lambda *now: told.append(now)
        ):
            pass
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] == len(told) - 1 > 3


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


def test_a_piece_is_given_up_when_that_is_said(tmp_path: Path) -> None:
    runs.write_pair(tmp_path, 30_000, 1, names=("in.stamps", "out.stamps"))
    [piece] = plan(tmp_path / "in.stamps", tmp_path / "out.stamps", Settings(), 0)
    assert _core.evaluate_piece(piece, stopped=lambda: False) == evaluate_piece(piece)
    with pytest.raises(Interrupted):
        _core.evaluate_piece(piece, stopped=lambda: True)


def test_no_jobs_are_too_few() -> None:
    with pytest.raises(InputError, match="0 jobs do nothing"):
        Threads(0)


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

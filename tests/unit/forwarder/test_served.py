"""By what packets are served: written, read back, and found out of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tailtap.errors import InputError
from tailtap.forwarder.in_kernel import InKernel
from tailtap.forwarder.own import Forwarding
from tailtap.forwarder.served import SOFTIRQ, Served, is_running, threads_of
from tailtap.stations.process import Process


@pytest.mark.parametrize(
    "served", [SOFTIRQ, Served("task", (12, 13)), Served("poll", (7,)), Served("vcpu", (8, 9))]
)
def test_what_is_written_is_read_back(served: Served) -> None:
    """The option of `tailtap trace` holds all of it."""
    assert Served.parse(str(served)) == served


@pytest.mark.parametrize(
    "text", ["", "task", "task:", "softirq:12", "poll:a", "task:1,,2", "nobody:3", "task:-1"]
)
def test_anything_else_is_refused(text: str) -> None:
    """A thread without a number, and numbers without threads, say nothing."""
    with pytest.raises(InputError, match="does not say by what packets are served"):
        Served.parse(text)


def test_a_trace_has_it_with_the_cpus() -> None:
    """The softirq's number is that of NET_RX; threads have none."""
    assert SOFTIRQ.document([1, 2]) == {
        "by": "softirq", "vector": 3, "pids": [], "cpus": [1, 2]
    }  # fmt: skip
    assert Served("task", (5,)).document([1])["vector"] is None


def test_threads_are_those_of_children_too() -> None:
    """A shell that waits for a program is not what serves, but the program below it is found."""
    with subprocess.Popen(["sh", "-c", "sleep 60; true"]) as shell:
        found: tuple[int, ...] = ()
        while len(found) < 2:
            found = threads_of(shell.pid)
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in found]
        assert names[0] == "sh"
        assert found[0] == shell.pid
        os.kill(found[1], 15)
        shell.wait()
    assert threads_of(shell.pid) == ()


def test_a_thread_that_never_sleeps_runs() -> None:
    """One that works is running, one that waits is not, and one that is gone is not either."""
    over = threading.Event()
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        while not is_running(busy.pid):
            pass
        assert waiting.native_id is not None
        assert not is_running(waiting.native_id)
        busy.kill()
    over.set()
    waiting.join()
    assert not is_running(busy.pid)


def test_the_kernel_serves_by_its_softirq() -> None:
    """Where rules forward, and where a program only installed what does."""
    assert InKernel("tc-mirred").served() == SOFTIRQ
    process = Process(["sleep", "60"], "sleep")
    try:
        assert Forwarding("xdp", process, kernel=SOFTIRQ).served() == SOFTIRQ
        task = Forwarding("fault", process).served()
        assert task.by == "task"
        assert process.pid in task.pids
    finally:
        process.close()

"""Threads of the kernel on a recorded machine, threads of our own, and which CPUs there are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import child, speaking
from scratch_machine import judged, retold, scratch_machine

from tailtap.base.errors import MachineError
from tailtap.base.proc import ALLOWED, status
from tailtap.host.cpu.cpus import is_offline, usable
from tailtap.host.cpu.threads import ThreadAffinity, ThreadPriority
from tailtap.host.knobs.scheduling import threads
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import plan
from tailtap.records.printed import AuditRow

FREE, BOUND, USERS = 0x00208040, 0x04208040, 0x00400040
"""Flags of a kernel thread, of one that cannot be moved, and of a program."""
RUNNING = (
    # number, name, flags, CPUs, priority, policy
    (2, "kthreadd", FREE, "0-3", 0, 0),
    (14, "ksoftirqd/2", BOUND, "2", 0, 0),
    (15, "rcuop/2", FREE, "0-3", 0, 0),
    (16, "rcuog/2", FREE, "0-1", 0, 0),
    (17, "kworker/2:0", BOUND, "2", 0, 0),
    (18, "kswapd0", FREE, "0-3", 0, 0),
    (19, "irq/30-eth1-rx-0", FREE, "3", 50, 1),
    (20, "kauditd", FREE, "1", 0, 0),
    (300, "a program) 1 (2", USERS, "0-3", 0, 0),
)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    for row in RUNNING:
        thread(tmp_path, *row)
    return Tree(scratch_machine(tmp_path))


def thread(
    root: Path, number: int, name: str, flags: int, cpus: str, priority: int, policy: int
) -> None:
    folder = root / "proc" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    between = " ".join(["0"] * 30)
    (folder / "stat").write_text(
        f"{number} ({name}) S 2 0 0 0 -1 {flags} {between} {priority} {policy} 0 0\n"
    )
    (folder / "status").write_text(f"Name:\t{name}\nCpus_allowed:\tf\nCpus_allowed_list:\t{cpus}\n")


def said(tree: Tree, name: str) -> AuditRow:
    return judged(name, tree, Purpose.of(tree, "bare-metal", "2-3"))


def test_threads_of_a_recorded_machine(tree: Tree) -> None:
    names = {one.name: one.movable for one in threads(tree)}
    assert names == {row[1]: row[2] == FREE for row in RUNNING if row[2] != USERS}
    callbacks, others = said(tree, "rcu-threads"), said(tree, "kernel-threads")
    assert (callbacks.answer, callbacks.value, callbacks.wanted) == (
        "not-met",
        "0-3 (1), 0-1 (1)",
        "within 0-1",
    )
    assert (others.answer, others.value) == ("not-met", "0-3 (1), 1 (1)")
    left = plan(tree, Purpose.of(tree, "bare-metal", "2-3"), ["rcu-threads"]).left
    assert left == [("rcu-threads", "threads of a recorded machine cannot be moved")]
    thread(tree.root, 15, "rcuop/2", FREE, "0", 0, 0)
    thread(tree.root, 18, "kswapd0", FREE, "0-1", 0, 0)
    assert said(tree, "rcu-threads").answer == said(tree, "kernel-threads").answer == "met"


def test_threads_that_are_not_there(tmp_path: Path) -> None:
    tree = Tree(scratch_machine(tmp_path))
    assert said(tree, "rcu-threads").why == "no core has its callbacks offloaded (rcu_nocbs)"
    assert said(tree, "kernel-threads").why == "no thread of the kernel can be seen here"


def test_the_priority_of_softirqs_matters_on_real_time_kernels(tree: Tree) -> None:
    assert "PREEMPT_RT" in said(tree, "softirq-priority").why
    version = tree.root / "proc/sys/kernel/version"
    version.write_text("#1 SMP PREEMPT_RT Debian 6.12.1-1\n")
    found = said(tree, "softirq-priority")
    assert (found.answer, found.value, found.differs) == ("not-applicable", "0", True)
    left = plan(tree, Purpose.of(tree, "bare-metal", "2-3"), ["softirq-priority"]).left
    assert left == [("softirq-priority", "threads of a recorded machine cannot be changed")]
    thread(tree.root, 14, "ksoftirqd/2", BOUND, "2", 11, 1)
    assert said(tree, "softirq-priority").answer == "met"
    thread(tree.root, 21, "rcuc/3", BOUND, "3", 1, 1)
    thread(tree.root, 22, "rcuc/1", BOUND, "1", 1, 1)  # of another core
    assert said(tree, "softirq-priority").value == "11 (1), 1 (1)"


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"]
    with speaking(command) as process:
        yield process


def test_a_move_is_undone_from_the_journal_alone(sleeping: subprocess.Popen[bytes]) -> None:
    number = str(sleeping.pid)
    mine = sorted(os.sched_getaffinity(sleeping.pid))
    if len(mine) < 2:
        pytest.skip("this machine has one CPU, so that nothing can be moved")
    name = Path("/proc", number, "comm").read_text().strip()
    made = ThreadAffinity({number: name, "999999999": "gone"}, str(mine[-1]))
    old = made.read()
    assert set(old) == {number}
    made.apply()
    assert status(number)[ALLOWED] == str(mine[-1])
    again = retold(made, old)
    assert again.pending(old)
    os.sched_setaffinity(sleeping.pid, {mine[0]})
    assert f"somebody else changed {name} (CPUs {mine[0]}," in str(again.undo(old))
    made.apply()
    assert again.undo(old) is None
    assert os.sched_getaffinity(sleeping.pid) == set(mine)
    assert not again.pending(old)
    # The number of a thread that has ended may be another's by now.
    assert ThreadAffinity({number: "another"}, "0").read() == {}


def test_a_priority_is_undone_from_the_journal_alone(sleeping: subprocess.Popen[bytes]) -> None:
    number = str(sleeping.pid)
    name = Path("/proc", number, "comm").read_text().strip()
    made = ThreadPriority({number: name, "999999999": "gone"}, 3)
    old = made.read()
    assert old == {number: [os.SCHED_OTHER, 0]}
    try:
        made.apply()
    except MachineError as error:
        assert "cannot have policy FIFO, priority 3: Operation not permitted" in str(error)
        pytest.skip("this user may not give real-time priorities")
    assert os.sched_getscheduler(sleeping.pid) == os.SCHED_FIFO
    again = retold(made, old)
    assert again.pending(old)
    os.sched_setscheduler(sleeping.pid, os.SCHED_RR, os.sched_param(5))
    assert f"{name} (policy round robin, priority 5, before tailtap policy other" in str(
        again.undo(old)
    )
    made.apply()
    assert again.undo(old) is None
    assert os.sched_getscheduler(sleeping.pid) == os.SCHED_OTHER
    assert not again.pending(old)
    # The number of a thread that has ended may be another's by now.
    assert ThreadPriority({number: "another"}, 3).read() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_stranger_s_thread_of_that_name_is_not_taken_for_ours() -> None:
    with child(["sleep", "30"], user=65534, cwd="/") as theirs:
        threads = {str(theirs.pid): "sleep"}
        assert Path(f"/proc/{theirs.pid}/comm").read_text() == "sleep\n"
        assert ThreadAffinity(threads, "0").read() == {}
        assert ThreadPriority(threads, 3).read() == {}


def test_what_isolation_keeps_free_may_be_asked_for() -> None:
    before = os.sched_getaffinity(0)
    try:
        # As for a process on a machine whose other CPUs are isolated.
        os.sched_setaffinity(0, {min(before)})
        assert usable() >= before
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_a_cpu_that_is_listed_but_not_allowed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "online").write_text("0-8000\n")
    assert 8000 not in usable(tmp_path)


def test_a_cpu_that_is_off(tmp_path: Path) -> None:
    for cpu, state in ((1, "1"), (2, "0")):
        (tmp_path / f"cpu{cpu}").mkdir()
        (tmp_path / f"cpu{cpu}/online").write_text(state + "\n")
    assert [is_offline(cpu, tmp_path) for cpu in (0, 1, 2)] == [False, False, True]

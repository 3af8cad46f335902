"""Threads of virtual machines on a scratch host of four cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from scratch_machine import judged, scratch_machine

from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.records.printed import AuditRow


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(scratch_machine(tmp_path))


def said(tree: Tree, name: str) -> AuditRow:
    return judged(name, tree, Purpose.of(tree, "vm-host", "2-3", interfaces=[]))


def process(tree: Tree, pid: int, name: str, **threads: str) -> None:
    """A process, and its threads' CPUs by their names, ``_`` for a space and ``__`` for a slash."""
    (tree.root / f"proc/{pid}").mkdir()
    (tree.root / f"proc/{pid}/comm").write_text(f"{name}\n")
    for number, (thread, cpus) in enumerate(threads.items(), pid):
        folder = tree.root / f"proc/{pid}/task/{number}"
        folder.mkdir(parents=True)
        (folder / "comm").write_text(thread.replace("__", "/").replace("_", " ") + "\n")
        (folder / "status").write_text(f"Cpus_allowed_list:\t{cpus}\n")


@pytest.mark.parametrize(
    ("first", "second", "value", "answer"),
    [
        ("2", "3", "one of the device's cores each", "met"),
        ("0-3", "0-3", "on 0-3", "not-met"),
        ("2-3", "2", "on 2-3", "not-met"),
        # Both on one core; on a core of everybody else.
        ("3", "3", "on 3", "not-met"),
        ("2", "1", "on 1", "not-met"),
    ],
)
def test_virtual_cores(tree: Tree, first: str, second: str, value: str, answer: str) -> None:
    process(tree, 100, "qemu-system-x86", main="0-1", CPU_0__KVM=first, CPU_1__KVM=second)
    found = said(tree, "virtual-cores")
    assert (found.value, found.answer) == (value, answer)


def test_two_guests_share_no_core(tree: Tree) -> None:
    process(tree, 100, "qemu-system-x86", main="0", CPU_0__KVM="2")
    process(tree, 200, "qemu-system-x86", main="0", CPU_0__KVM="2")
    assert said(tree, "virtual-cores").value == "on 2"


def test_what_else_a_virtual_machine_runs(tree: Tree) -> None:
    process(tree, 100, "qemu-system-x86", main="0-1", IO_iothread1="1", CPU_0__KVM="2")
    process(tree, 200, "another", main="0-3")
    assert said(tree, "emulator-threads").answer == "met"
    (tree.root / "proc/100/task/101/status").write_text("Cpus_allowed_list:\t0-3\n")
    found = said(tree, "emulator-threads")
    assert (found.answer, found.value) == ("not-met", "0-1 (1), 0-3 (1)")


def test_without_a_virtual_machine(tree: Tree) -> None:
    reason = "no virtual machine of QEMU with named threads runs"
    process(tree, 200, "bash", main="0-3")
    assert {said(tree, name).why for name in ("virtual-cores", "emulator-threads")} == {reason}
    process(tree, 300, "qemu-system-x86", main="0-3")
    assert said(tree, "virtual-cores").why == reason

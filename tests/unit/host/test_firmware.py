"""Interrupts of the firmware, who holds files of the kernel, and threads of virtual machines."""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

import pytest
from scratch_machine import judged, scratch_machine

from tailtap.host.knobs.interrupts import SMI_COUNT
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.records.printed import AuditRow

INTEL = "vendor_id\t: GenuineIntel\nflags\t\t: fpu tsc msr\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(scratch_machine(tmp_path))
    (made.root / "proc/cpuinfo").write_text(INTEL)
    return made


def said(tree: Tree, name: str = "firmware-interrupts") -> AuditRow:
    return judged(name, tree, Purpose.of(tree, "bare-metal", "2-3", interfaces=[]))


def register(tree: Tree, value: int) -> None:
    path = tree.root / "dev/cpu/2/msr"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(SMI_COUNT) + struct.pack("<Q", value))


@pytest.mark.parametrize(
    ("before", "after", "value", "answer"),
    [(7, 7, "0", "met"), (7, 10, "3", "not-met"), (1 << 40 | 7, 1 << 40 | 8, "1", "not-met")],
)
def test_interrupts_in_a_second(
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    after: int,
    value: str,
    answer: str,
) -> None:
    register(tree, before)
    monkeypatch.setattr(time, "sleep", lambda _seconds: register(tree, after))
    found = said(tree)
    assert (found.value, found.answer) == (value, answer)


def test_where_nothing_counts_them(tree: Tree) -> None:
    assert said(tree).why.startswith("nothing shows the count: load the module msr")
    (tree.root / "dev/cpu/2").mkdir(parents=True)
    (tree.root / "dev/cpu/2/msr").write_bytes(b"short")
    assert said(tree).answer == "unknown"
    (tree.root / "proc/cpuinfo").write_text(INTEL.replace("msr", "msr hypervisor"))
    assert said(tree).why == "a virtual machine is not told"
    (tree.root / "proc/cpuinfo").write_text(INTEL.replace("GenuineIntel", "AuthenticAMD"))
    assert said(tree).why == "only processors of Intel count them"


def process(tree: Tree, number: int, name: str, *files: str) -> None:
    folder = tree.root / f"proc/{number}/fd"
    folder.mkdir(parents=True)
    (folder.parent / "comm").write_text(f"{name}\n")
    for place, file in enumerate(files):
        (folder / str(place)).symlink_to(file)


def test_programs_that_count_or_wish(tree: Tree) -> None:
    process(tree, 10, "bash", "/dev/null")
    assert {said(tree, name).answer for name in ("counting-programs", "wake-up-wishes")} == {"met"}
    process(tree, 11, "parca", "/dev/null", "anon_inode:[perf_event]")
    process(tree, 12, "tuned", "/dev/cpu_dma_latency")
    assert said(tree, "counting-programs").value == "parca"
    assert said(tree, "wake-up-wishes").value == "tuned"
    assert said(tree, "wake-up-wishes").answer == "not-met"


def test_this_process_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the live machine it is the one that measures."""
    tree = Tree(scratch_machine(tmp_path))
    monkeypatch.setattr(Tree, "is_live", property(lambda _self: True))
    process(tree, os.getpid(), "python", "anon_inode:[perf_event]")
    assert said(tree, "counting-programs").value == "nobody"
    process(tree, os.getpid() + 1, Path(sys.executable).name, "anon_inode:[perf_event]")
    assert said(tree, "counting-programs").value == Path(sys.executable).name


@pytest.fixture
def host(tmp_path: Path) -> Tree:
    return Tree(scratch_machine(tmp_path))


def told(host: Tree, name: str) -> AuditRow:
    return judged(name, host, Purpose.of(host, "vm-host", "2-3", interfaces=[]))


def running(host: Tree, pid: int, name: str, **threads: str) -> None:
    """A running, and its threads' CPUs by their names, ``_`` for a space and ``__`` for a slash."""
    (host.root / f"proc/{pid}").mkdir()
    (host.root / f"proc/{pid}/comm").write_text(f"{name}\n")
    for number, (thread, cpus) in enumerate(threads.items(), pid):
        folder = host.root / f"proc/{pid}/task/{number}"
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
def test_virtual_cores(host: Tree, first: str, second: str, value: str, answer: str) -> None:
    running(host, 100, "qemu-system-x86", main="0-1", CPU_0__KVM=first, CPU_1__KVM=second)
    found = told(host, "virtual-cores")
    assert (found.value, found.answer) == (value, answer)


def test_two_guests_share_no_core(host: Tree) -> None:
    running(host, 100, "qemu-system-x86", main="0", CPU_0__KVM="2")
    running(host, 200, "qemu-system-x86", main="0", CPU_0__KVM="2")
    assert told(host, "virtual-cores").value == "on 2"


def test_what_else_a_virtual_machine_runs(host: Tree) -> None:
    running(host, 100, "qemu-system-x86", main="0-1", IO_iothread1="1", CPU_0__KVM="2")
    running(host, 200, "another", main="0-3")
    assert told(host, "emulator-threads").answer == "met"
    (host.root / "proc/100/task/101/status").write_text("Cpus_allowed_list:\t0-3\n")
    found = told(host, "emulator-threads")
    assert (found.answer, found.value) == ("not-met", "0-1 (1), 0-3 (1)")


def test_without_a_virtual_machine(host: Tree) -> None:
    reason = "no virtual machine of QEMU with named threads runs"
    running(host, 200, "bash", main="0-3")
    assert {told(host, name).why for name in ("virtual-cores", "emulator-threads")} == {reason}
    running(host, 300, "qemu-system-x86", main="0-3")
    assert told(host, "virtual-cores").why == reason

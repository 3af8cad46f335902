"""Signals and containers: a number that another process has by now is not taken for the first."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from children import speaking

from tailtap.base.errors import MachineError
from tailtap.host.changes import processes
from tailtap.host.containers import domains
from tailtap.host.containers.cgroups import counted, groups, having, hierarchies, require
from tailtap.host.containers.domains import belongs_to
from tailtap.host.containers.oci import pid_in


def test_a_signal_reaches_the_process_that_belongs() -> None:
    with subprocess.Popen(["sleep", "30"]) as child:
        processes.send(child.pid, lambda _: False)
        assert child.poll() is None
        processes.send(child.pid, lambda pid: pid == child.pid)
        assert child.wait(10) == -signal.SIGKILL
    processes.send(child.pid, lambda _: True)


def test_a_number_that_was_given_anew_meanwhile_ends_nobody() -> None:
    """The process is gone by the time of the signal: the descriptor is of it all the same."""
    with subprocess.Popen(["sleep", "30"]) as child:

        def ends(_: int) -> bool:
            child.kill()
            child.wait()
            return True

        processes.send(child.pid, ends)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["first", "own"])
def test_neither_the_first_process_nor_this_one_gets_a_signal(pid: int) -> None:
    asked: list[int] = []

    def belongs(pid: int) -> bool:
        asked.append(pid)
        return False

    processes.send(pid, belongs, signal.SIGCONT)
    assert asked == []


def test_the_machine_s_own_network_is_known() -> None:
    assert processes.is_the_machine_s(processes.network_of(os.getpid()))
    first = processes.network_at(Path("/proc/1/ns/net"))  # None where it may not be looked at
    assert processes.is_the_machine_s(first) == (first is not None)
    assert not processes.is_the_machine_s((0, 0))
    assert not processes.is_the_machine_s(processes.network_at(Path("/nothing")))


def test_a_container_s_number_is_not_another_process(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(str(os.getpid()))
    with pytest.raises(MachineError, match="its first process has ended"):
        pid_in(tmp_path, "crun", "tt-0a1b2c-dut")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_stranger_s_process_is_no_machine_of_ours() -> None:
    words = ["qemu-system-x86_64", "-name", "guest=tt-0a1b2c-dut"]
    assert belongs_to(words) == "tt-0a1b2c-dut"
    script = "import time; print(flush=True); time.sleep(30)"
    command = [*words[:1], "-c", script, *words[1:]]
    with speaking(command, executable="/usr/bin/python3", user=65534, cwd="/"):
        assert not domains.is_running("tt-0a1b2c-dut")


CONTROLLERS = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\nmemory\t4\t1\t1\n"
VERSION_1 = """\
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /elsewhere cgroup rw,memory 0 0
"""
VERSION_2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"


def machine(root: Path, mounts: str, unified: str | None, known: str = CONTROLLERS) -> Path:
    """A root folder of a machine with these mounts and controllers of the unified hierarchy."""
    (root / "proc").mkdir()
    (root / "proc/mounts").write_text(f"/dev/vda / ext4 rw 0 0\n{mounts}")
    (root / "proc/cgroups").write_text(known)
    if unified is not None:
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/cgroup.controllers").write_text(unified + "\n")
    return root


def test_a_machine_with_version_1(tmp_path: Path) -> None:
    root = machine(tmp_path, VERSION_1, None)
    assert [(row.version, sorted(row.controllers)) for row in hierarchies(root)] == [
        (1, []),
        (1, ["cpuset"]),
        (1, ["memory"]),
    ]
    assert require("memory", None, root).path == root / "sys/fs/cgroup/memory"
    assert require("cpuset", 1, root).version == 1
    with pytest.raises(MachineError) as caught:
        require("cpuset", 2, root)
    assert str(caught.value) == (
        "dut.cgroup: control groups of version 2 cannot limit the DuT: the controller cpuset "
        "belongs to version 1 here: boot with systemd.unified_cgroup_hierarchy=1 "
        "cgroup_no_v1=cpuset, and resume the experiment with --resume"
    )


def test_a_machine_with_version_2(tmp_path: Path) -> None:
    root = machine(tmp_path, VERSION_2, "cpuset cpu memory")
    assert require("cpuset", None, root).version == 2
    assert require("memory", 2, root).path == root / "sys/fs/cgroup"
    with pytest.raises(MachineError, match=r"systemd\.unified_cgroup_hierarchy=0"):
        require("memory", 1, root)


def test_a_machine_with_both_and_one_with_none(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    both = machine(tmp_path / "both", VERSION_1 + VERSION_2, "")
    assert {row.version for row in hierarchies(both)} == {1, 2}
    assert having("cpuset", both) is not None
    (tmp_path / "none").mkdir()
    none = machine(tmp_path / "none", "", None)
    assert hierarchies(none) == []
    with pytest.raises(MachineError, match="no control group hierarchy here has the controller"):
        require("cpuset", None, none)
    assert hierarchies(tmp_path / "empty") == []


def test_groups_of_a_name_are_found_in_every_hierarchy(tmp_path: Path) -> None:
    root = machine(tmp_path, VERSION_1, None)
    for folder in ("cpuset/tt-a", "memory/tt-a", "memory/tt-b"):
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True)
    assert groups("tt-a", root) == [
        root / "sys/fs/cgroup/cpuset/tt-a",
        root / "sys/fs/cgroup/memory/tt-a",
    ]


@pytest.mark.parametrize(
    ("mounts", "folder"),
    [
        (VERSION_2, "sys/fs/cgroup/ours"),
        (
            VERSION_1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
            "sys/fs/cgroup/unified/ours",
        ),
        (VERSION_2 + "cgroup /perf cgroup rw,perf_event 0 0\n", "perf/ours"),
        (VERSION_1, None),
    ],
)
def test_perf_counts_by_the_unified_hierarchy_unless_one_is_its_own(
    tmp_path: Path, mounts: str, folder: str | None
) -> None:
    root = machine(tmp_path, mounts, "cpuset", CONTROLLERS + "perf_event\t5\t1\t1\n")
    for line in mounts.splitlines():
        (root / line.split()[1].lstrip("/")).mkdir(parents=True, exist_ok=True)
    assert counted("ours", root) is None
    (root / "sys/fs/cgroup/unified").mkdir(exist_ok=True)
    (root / "sys/fs/cgroup/unified/cgroup.controllers").write_text("")
    if folder is not None:
        (root / folder).mkdir()
    assert counted("ours", root) == (None if folder is None else root / folder)

"""Processes, containers, huge pages: of others nothing is taken, of ours nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from children import speaking

from tailtap.base.errors import MachineError
from tailtap.host.changes import systemd
from tailtap.host.changes.huge_pages import Pages, Reservation, needed, reservation
from tailtap.host.changes.journal import Journal, read_all
from tailtap.host.containers import domains
from tailtap.host.containers.cgroups import counted, groups, having, hierarchies, require
from tailtap.host.containers.domains import belongs_to
from tailtap.host.containers.oci import pid_in


def test_a_signal_reaches_the_process_that_belongs() -> None:
    with subprocess.Popen(["sleep", "30"]) as child:
        systemd.send(child.pid, lambda _: False)
        assert child.poll() is None
        systemd.send(child.pid, lambda pid: pid == child.pid)
        assert child.wait(10) == -signal.SIGKILL
    systemd.send(child.pid, lambda _: True)


def test_a_number_that_was_given_anew_meanwhile_ends_nobody() -> None:
    """The process is gone by the time of the signal: the descriptor is of it all the same."""
    with subprocess.Popen(["sleep", "30"]) as child:

        def ends(_: int) -> bool:
            child.kill()
            child.wait()
            return True

        systemd.send(child.pid, ends)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["first", "own"])
def test_neither_the_first_process_nor_this_one_gets_a_signal(pid: int) -> None:
    asked: list[int] = []

    def belongs(pid: int) -> bool:
        asked.append(pid)
        return False

    systemd.send(pid, belongs, signal.SIGCONT)
    assert asked == []


def test_the_machine_s_own_network_is_known() -> None:
    assert systemd.is_the_machine_s(systemd.network_of(os.getpid()))
    first = systemd.network_at(Path("/proc/1/ns/net"))  # None where it may not be looked at
    assert systemd.is_the_machine_s(first) == (first is not None)
    assert not systemd.is_the_machine_s((0, 0))
    assert not systemd.is_the_machine_s(systemd.network_at(Path("/nothing")))


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


def of_groups(root: Path, mounts: str, unified: str | None, known: str = CONTROLLERS) -> Path:
    """A root folder of a machine with these mounts and controllers of the unified hierarchy."""
    (root / "proc").mkdir()
    (root / "proc/mounts").write_text(f"/dev/vda / ext4 rw 0 0\n{mounts}")
    (root / "proc/cgroups").write_text(known)
    if unified is not None:
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/cgroup.controllers").write_text(unified + "\n")
    return root


def test_a_machine_with_version_1(tmp_path: Path) -> None:
    root = of_groups(tmp_path, VERSION_1, None)
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
    root = of_groups(tmp_path, VERSION_2, "cpuset cpu memory")
    assert require("cpuset", None, root).version == 2
    assert require("memory", 2, root).path == root / "sys/fs/cgroup"
    with pytest.raises(MachineError, match=r"systemd\.unified_cgroup_hierarchy=0"):
        require("memory", 1, root)


def test_a_machine_with_both_and_one_with_none(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    both = of_groups(tmp_path / "both", VERSION_1 + VERSION_2, "")
    assert {row.version for row in hierarchies(both)} == {1, 2}
    assert having("cpuset", both) is not None
    (tmp_path / "none").mkdir()
    none = of_groups(tmp_path / "none", "", None)
    assert hierarchies(none) == []
    with pytest.raises(MachineError, match="no control group hierarchy here has the controller"):
        require("cpuset", None, none)
    assert hierarchies(tmp_path / "empty") == []


def test_groups_of_a_name_are_found_in_every_hierarchy(tmp_path: Path) -> None:
    root = of_groups(tmp_path, VERSION_1, None)
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
    root = of_groups(tmp_path, mounts, "cpuset", CONTROLLERS + "perf_event\t5\t1\t1\n")
    for line in mounts.splitlines():
        (root / line.split()[1].lstrip("/")).mkdir(parents=True, exist_ok=True)
    assert counted("ours", root) is None
    (root / "sys/fs/cgroup/unified").mkdir(exist_ok=True)
    (root / "sys/fs/cgroup/unified/cgroup.controllers").write_text("")
    if folder is not None:
        (root / folder).mkdir()
    assert counted("ours", root) == (None if folder is None else root / folder)


MIB = 2**20


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a machine with 10 pages of 2 MiB, 3 of them free, and pages of 1 GiB."""
    for size, total, free in ((2048, 10, 3), (1_048_576, 0, 0)):
        folder = tmp_path / f"sys/kernel/mm/hugepages/hugepages-{size}kB"
        folder.mkdir(parents=True)
        (folder / "nr_hugepages").write_text(f"{total}\n")
        (folder / "free_hugepages").write_text(f"{free}\n")
        (folder / "resv_hugepages").write_text("0\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2000000 kB\nMemAvailable: 1000000 kB\n")
    (tmp_path / "state").mkdir()
    return tmp_path


@pytest.fixture
def pages(machine: Path) -> Pages:
    found = Pages.smallest(machine)
    assert found is not None
    return found


def test_the_smallest_size_is_taken(machine: Path, pages: Pages) -> None:
    assert (pages.size_kib, pages.total, pages.free) == (2048, 10, 3)
    assert Pages.smallest(machine / "nothing") is None
    assert [needed(size, pages) for size in (1, 2 * MIB, 2 * MIB + 1)] == [1, 1, 2]


def test_only_what_is_missing_is_reserved_and_given_back(machine: Path, pages: Pages) -> None:
    journal = Journal.create(machine / "state")
    with journal.held(reservation(16 * MIB, pages)):
        assert pages.total == 15
        [record] = read_all(machine / "state")
        [entry] = record.entries
        assert (entry.kind, entry.name) == ("huge-pages", "8 of 2048 KiB")
        assert (entry.old, entry.new) == ({"total": 10, "missing": 5}, 15)
        assert entry.applied == 5
        change = Reservation.parse(entry.resource)
        assert change.pending(entry.old)
    assert pages.total == 10
    assert not change.pending(entry.old)


@pytest.mark.parametrize(
    ("free", "mib", "total", "left", "made"),
    [
        (3, 6, 10, 3, 10),  # the free ones are enough
        # It has them all when the change is thought of, and none when that is made.
        (0, 4, 0, 0, 2),
        (3, 6, 7, 0, 10),
    ],
)
def test_pages_of_another_measurement_are_neither_kept_nor_counted_on(
    machine: Path, pages: Pages, free: int, mib: int, total: int, left: int, made: int
) -> None:
    """Those that are `free` before the change may be other ones when it is made."""
    file = machine / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
    file.write_text(f"{free}\n")
    thought = reservation(mib * MIB, pages)
    pages.resize(total)
    file.write_text(f"{left}\n")
    with Journal.create(machine / "state").held(thought):
        assert pages.total == made
    assert pages.total == total


def test_pages_of_one_size_are_for_one_measurement_at_a_time(machine: Path, pages: Pages) -> None:
    """Those that are free and promised to one would not be there for the other."""
    with (
        Journal.create(machine / "state").held(reservation(6 * MIB, pages)),
        pytest.raises(MachineError, match="in use by another tailtap, process"),
        Journal.create(machine / "state").held(reservation(2 * MIB, pages)),
    ):
        pass


def test_more_than_the_machine_has_is_not_even_asked_for(machine: Path, pages: Pages) -> None:
    with (
        pytest.raises(MachineError, match=r"600 huge pages of 2048 KiB are needed .* found 3: "),
        Journal.create(machine / "state").held(reservation(1200 * MIB, pages)),
    ):
        pass
    assert pages.total == 10


def test_reservations_of_others_stay(machine: Path, pages: Pages) -> None:
    pages.resize(10 + 5 + 7)  # ours, then somebody else's
    change = Reservation(2048, 16 * MIB, root=str(machine))
    old = {"total": 10, "missing": 5}
    change.undo(old, 5)
    assert pages.total == 17
    pages.resize(12)  # somebody gave back more than was theirs
    change.undo(old)
    assert pages.total == 10
    change.undo(old, 5)
    assert pages.total == 10


def test_pages_of_one_node(machine: Path) -> None:
    folder = machine / "sys/devices/system/node/node1/hugepages/hugepages-2048kB"
    folder.mkdir(parents=True)
    (folder / "nr_hugepages").write_text("4\n")
    (folder / "free_hugepages").write_text("1\n")
    pages = Pages.smallest(machine, node=1)
    assert pages is not None
    with Journal.create(machine / "state").held(reservation(4 * MIB, pages)):
        assert pages.total == 5
        one = {"missing": 1}
        assert Reservation(2048, 4 * MIB, 1, str(machine)).pending({"total": 4, **one})
        assert not Reservation(2048, 4 * MIB, None, str(machine)).pending({"total": 10, **one})
    assert pages.total == 4
    Reservation(2048, 4 * MIB, 1, str(machine)).undo({"total": 3, "missing": 2})
    assert pages.total == 3

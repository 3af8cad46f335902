"""Timers and slices of systemd, control groups, files of the kernel: put back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scratch_machine import judged, scratch_machine, state
from systemctl_program import Systemctl, playing_systemd

from tailtap.base.errors import MachineError
from tailtap.base.units import cpu_mask, list_cpus, ranges
from tailtap.host.changes.kernel_values import (
    Form,
    KernelValue,
    Wish,
    chosen,
    parse,
    same,
    summary,
    writable,
)
from tailtap.host.changes.systemd import SliceCpus
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import Plan, apply, plan, revert
from tailtap.records.printed import AuditRow

CGROUPS = """#subsys_name hierarchy num_cgroups enabled
cpuset 0 1 1
memory 0 1 1
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Four cores."""
    root = scratch_machine(tmp_path / "machine")
    (root / "proc/cgroups").write_text(CGROUPS)
    return Tree(root)


@pytest.fixture
def systemd(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    """It has two timers that wait, and one that does not."""
    made = playing_systemd(tmp_path / "program", tree.root, monkeypatch)
    for name, active in (("apt-daily", "active"), ("fstrim", "active"), ("man-db", "inactive")):
        made.set(f"{name}.timer", ActiveState=active)
    return made


def file(tree: Tree, path: str, text: str) -> Path:
    place = tree.root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{text}\n")
    return place


def said(tree: Tree, name: str) -> AuditRow:
    return judged(name, tree, Purpose.of(tree, "bare-metal", "2-3", interfaces=[]))


def planned(tree: Tree, name: str) -> Plan:
    return plan(tree, Purpose.of(tree, "bare-metal", "2-3", interfaces=[]), [name])


def test_without_systemd_there_are_no_units(tree: Tree) -> None:
    assert said(tree, "maintenance").why == "systemd does not run here"
    assert said(tree, "slices").why == "systemd does not run here"


def test_a_timer_that_does_not_stop_stops_none(
    tree: Tree, systemd: Systemctl, tmp_path: Path
) -> None:
    systemd.set("fstrim.timer", stubborn=True)
    before = systemd.units
    with pytest.raises(MachineError, match=r"^maintenance: fstrim.timer was stopped, and is activ"):
        apply(planned(tree, "maintenance"), tmp_path / "journals")
    assert systemd.units == before


@pytest.fixture
def slices(tree: Tree, systemd: Systemctl) -> Systemctl:
    """Control groups of version 2, and units in them; tailtap is in a session."""
    file(tree, "proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
    file(tree, "sys/fs/cgroup/cgroup.controllers", "cpuset memory")
    for unit, cpus in (("system.slice", ""), ("user.slice", "1 3"), ("init.scope", "0")):
        systemd.set(unit, AllowedCPUs=cpus)
        file(tree, f"sys/fs/cgroup/{unit}/cpuset.cpus.effective", cpus.replace(" ", ",") or "0-3")
    return systemd


def test_slices_leave_the_device_s_cores(tree: Tree, slices: Systemctl, tmp_path: Path) -> None:
    assert said(tree, "slices").value == "0-3 (1), 1,3 (1), 0 (1)"
    units, before = slices.units, state(tree.root)
    apply(planned(tree, "slices"), tmp_path / "journals")
    assert {slices.units[unit]["AllowedCPUs"] for unit in ("system.slice", "user.slice")} == {"0-1"}
    assert said(tree, "slices").answer == "met"
    slices.set("user.slice", AllowedCPUs="2")
    [sentence] = revert(tmp_path / "journals").left
    assert sentence == (
        "somebody else changed user.slice (CPUs 2, before tailtap CPUs 1,3): it is left as it is"
    )
    SliceCpus(["user.slice"], "2").undo({"user.slice": "1,3"})
    slices.set("user.slice", AllowedCPUs="1 3")
    assert slices.units == units
    assert state(tree.root) == before


def test_the_slice_of_whoever_tunes_is_left(tree: Tree, slices: Systemctl) -> None:
    file(tree, "proc/self/cgroup", "0::/user.slice/user-0.slice/session-3.scope")
    [change] = planned(tree, "slices").changes
    [resource] = change.resources
    assert isinstance(resource, SliceCpus)
    assert list(resource.units) == ["system.slice", "init.scope"]


def test_groups_of_version_1(tree: Tree, tmp_path: Path) -> None:
    assert said(tree, "groups").why == "control groups of version 1 have no CPUs here"
    file(tree, "proc/mounts", "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
    top = "sys/fs/cgroup/cpuset"
    file(tree, f"{top}/cpuset.cpus", "0-3")
    assert said(tree, "groups").why == "there is no other group with CPUs"
    for name, cpus in (
        ("docker", "0-3"),
        ("docker/one", "1-2"),
        ("docker/one/deep", "1-2"),
        ("docker/two", "0"),
        ("empty", ""),
        ("mine", "0-3"),
        ("mine/here", "0-3"),
        ("tt-0a1b2c-dut", "2-3"),
    ):
        file(tree, f"{top}/{name}/cpuset.cpus", cpus)
    file(tree, "proc/self/cgroup", "3:memory:/\n2:cpuset:/mine/here")
    before = state(tree.root)
    [change] = planned(tree, "groups").changes
    depths = [resource.as_json()["paths"] for resource in change.resources]
    # Those below come first, as the kernel wants it; putting back goes the other way.
    assert [[path.split("cpuset/")[1] for path in paths] for paths in depths] == [
        ["docker/one/deep/cpuset.cpus"],
        ["docker/one/cpuset.cpus"],
        ["docker/cpuset.cpus"],
    ]
    apply(planned(tree, "groups"), tmp_path / "journals")
    assert said(tree, "groups").answer == "met"
    done = revert(tmp_path / "journals")
    assert [path.split("cpuset/")[1] for path in done.undone] == [
        "docker/cpuset.cpus",
        "docker/one/cpuset.cpus",
        "docker/one/deep/cpuset.cpus",
    ]
    assert done.left == ()
    assert state(tree.root) == before


QUEUES = "/sys/class/net/eth0/queues/rx-*/rps_cpus"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two queues and a sysctl."""
    for number, mask in enumerate(("0", "00000000,00000001")):
        folder = tmp_path / f"sys/class/net/eth0/queues/rx-{number}"
        folder.mkdir(parents=True)
        (folder / "rps_cpus").write_text(f"{mask}\n")
    (tmp_path / "proc/sys/net").mkdir(parents=True)
    (tmp_path / "proc/sys/net/backlog").write_text("1000\n")
    return tmp_path


def steering(machine: Path) -> KernelValue:
    return KernelValue([QUEUES], "00000002", "mask", root=str(machine))


def test_the_kernel_may_write_a_set_of_cpus_in_another_way(machine: Path) -> None:
    change = steering(machine)
    before = change.read()
    change.apply()
    (machine / "sys/class/net/eth0/queues/rx-0/rps_cpus").write_text("00000000,00000002\n")
    assert change.undo(before) is None
    assert change.read() == before
    ranges = KernelValue(["/proc/sys/net/backlog"], "1,2,3", "cpus", root=str(machine))
    ranges.apply()
    (machine / "proc/sys/net/backlog").write_text("1-3\n")
    assert ranges.undo({"/proc/sys/net/backlog": "0"}) is None
    assert (machine / "proc/sys/net/backlog").read_text() == "0"


def test_a_file_that_is_not_there(machine: Path) -> None:
    with pytest.raises(MachineError, match="/proc/sys/none: there is no such file"):
        KernelValue(["/proc/sys/none"], "1", root=str(machine)).apply()
    KernelValue(["/proc/sys/none"], "1", optional=True, root=str(machine)).apply()


def test_a_file_that_refuses(machine: Path) -> None:
    (machine / "proc/sys/folder").mkdir()
    with pytest.raises(MachineError, match="folder cannot be 1: Is a directory"):
        KernelValue(["/proc/sys/folder"], "1", root=str(machine)).apply()
    KernelValue(["/proc/sys/folder"], "1", optional=True, root=str(machine)).apply()


def test_a_file_that_says_something_else(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = KernelValue(["/proc/sys/net/backlog"], "2000", root=str(machine))
    monkeypatch.setattr(KernelValue, "_write", lambda *_: None)  # as a kernel that ignores it
    with pytest.raises(MachineError) as caught:
        change.apply()
    assert str(caught.value) == ("/proc/sys/net/backlog should be 2000, but the kernel says 1000")


def test_only_files_of_the_machine_itself_are_claimed(machine: Path) -> None:
    assert steering(machine).claims == [f"file {QUEUES}"]
    assert KernelValue([QUEUES], "1", namespace="tt-0a1b2c-dut").claims == ()


@pytest.mark.parametrize(
    ("one", "other", "form", "alike"),
    [
        ("always [madvise] never", "madvise", "choice", True),
        ("none (full) lazy", "full", "choice", True),
        ("00000000,0000000f", "f", "mask", True),
        ("0", "00000000,00000000", "mask", True),
        ("0-3,8", "0,1,2,3,8", "cpus", True),
        ("0x10", "16", "number", True),
        ("08", "8", "number", True),
        ("Y", "1", "switch", True),
        ("off", "N", "switch", True),
        (" a  ", "a", "text", True),
        ("always madvise [never]", "madvise", "choice", False),
        ("3", "1", "mask", False),
        ("0-3", "0-4", "cpus", False),
        ("what", "0", "number", False),
        ("what", "Y", "switch", False),
        ("3", "0-3", "text", False),
    ],
)
def test_the_same_value_in_two_ways(one: str, other: str, form: Form, *, alike: bool) -> None:
    assert same(one, other, form) == same(other, one, form) == alike


@given(st.sets(st.integers(0, 511), min_size=1))
def test_a_set_of_cpus_is_the_same_however_it_is_written(cpus: set[int]) -> None:
    assert parse(cpu_mask(cpus), "mask") == parse(list_cpus(cpus), "cpus") == frozenset(cpus)
    assert same(ranges(tuple(cpus)), list_cpus(cpus), "cpus")


@pytest.mark.parametrize(
    ("wish", "text", "form", "holds"),
    [
        (Wish("3600", "at-least"), "3600", "number", True),
        (Wish("3600", "at-least"), "1", "number", False),
        (Wish("600", "at-least", also=("0",)), "0", "number", True),
        (Wish("1", "at-most"), "2", "number", False),
        (Wish("1", "at-most"), "-1", "number", True),
        (Wish("0-1", "within"), "1", "cpus", True),
        (Wish("0-1", "within"), "1-2", "cpus", False),
        (Wish("3", "within"), "2", "mask", True),
        (Wish("never"), "always [madvise] never", "choice", False),
    ],
)
def test_wishes(wish: Wish, text: str, form: Form, holds: bool) -> None:
    assert wish.holds(text, form) == holds


def test_a_wish_says_what_it_is() -> None:
    assert Wish("600", "at-least", also=("0",)).told("number") == "at least 600 or 0"
    assert Wish("c", "within").told("mask") == "within 2-3"
    with pytest.raises(ValueError, match="switch"):
        Wish("1").holds("perhaps", "switch")


def test_the_values_of_many_places_in_a_line() -> None:
    assert summary({"a": "always [never]", "b": "always [never]"}, "choice") == "never"
    assert summary({"a": "00000000,0000000f", "b": "0"}, "mask") == "0-3 (1), none (1)"
    assert summary({"a": "1", "b": "1", "c": "2"}) == "1 (2), 2 (1)"
    assert summary({str(n): str(n) for n in range(9)}).endswith("3 (1), 5 more")


def test_what_is_written_back_of_a_choice() -> None:
    assert writable("always [madvise] never", "choice") == chosen("[madvise]") == "madvise"
    assert writable("0-3", "cpus") == "0-3"

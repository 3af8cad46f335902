"""Timers and slices of systemd, and control groups without it, on a scratch machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from scratch_machine import scratch_machine, state
from systemctl_program import Systemctl, playing_systemd
from told_knobs import judged

from tailtap.base.errors import MachineError
from tailtap.host.changes.systemd import SliceCpus
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
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


def test_timers_are_stopped_and_started_again(
    tree: Tree, systemd: Systemctl, tmp_path: Path
) -> None:
    assert (said(tree, "maintenance").answer, said(tree, "maintenance").value) == (
        "not-met",
        "active (2), inactive (1)",
    )
    before = systemd.units
    apply(planned(tree, "maintenance"), tmp_path / "journals")
    assert {unit["ActiveState"] for unit in systemd.units.values()} == {"inactive"}
    assert said(tree, "maintenance").answer == "met"
    assert revert(tmp_path / "journals").left == ()
    assert systemd.units == before
    assert systemd.calls == [
        "stop apt-daily.timer fstrim.timer",
        "start apt-daily.timer fstrim.timer",
    ]


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
    assert revert(tmp_path / "journals").left == ()
    assert state(tree.root) == before

"""Control group hierarchies as machines have them: version 1, version 2, both, none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.containers.cgroups import counted, groups, having, hierarchies, require

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

"""Ways of the last cache for the device's cores: judged, divided, given back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from children import dying
from hypothesis import given, settings
from hypothesis import strategies as st
from resctrl_kernel import Kernel, played
from scratch_machine import judged, state, unpacked

from tailtap.base.errors import MachineError
from tailtap.host.changes import journal
from tailtap.host.changes.journal import Journal, Owner
from tailtap.host.cpu import resctrl
from tailtap.host.cpu.resctrl import ResctrlMount, ResourceGroup, is_mask, own_ways, parse_schemata
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import Plan, apply, plan, revert
from tailtap.records.printed import AuditRow


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two sockets, cores 0 to 5 and 6 to 11; their caches have 17 ways, and 3 of somebody else."""
    return Tree(unpacked("intel-two-sockets", tmp_path))


@pytest.fixture
def kernel(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return played(monkeypatch, tree.root)


def group(tree: Tree, name: str, cpus: str, ways: str) -> None:
    folder = tree.root / "sys/fs/resctrl" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpus_list").write_text(f"{cpus}\n")
    (folder / "schemata").write_text(f"  MB:0=100;1=100\n  L3:{ways}\n")
    (folder / "mode").write_text("shareable\n")


def purpose(tree: Tree, cpus: str = "1-5") -> Purpose:
    return Purpose.of(tree, "bare-metal", cpus, interfaces=[])


def said(tree: Tree, cpus: str = "1-5", name: str = "cache-ways") -> AuditRow:
    return judged(name, tree, purpose(tree, cpus))


def planned(tree: Tree, cpus: str = "1-5", name: str = "cache-ways") -> Plan:
    return plan(tree, purpose(tree, cpus), [name])


def shown(tree: Tree, name: str = ".") -> dict[str, dict[str, str]]:
    return parse_schemata((tree.root / "sys/fs/resctrl" / name / "schemata").read_text())


def test_a_cache_that_nobody_divided_is_shared(tree: Tree) -> None:
    assert (said(tree).answer, said(tree).value) == ("not-met", "shared")
    for path in (".", "manualres"):
        (tree.root / "sys/fs/resctrl" / path / "schemata").unlink()
    assert said(tree).value == "shared, resctrl is not mounted"


@pytest.mark.parametrize(
    ("asked", "cpus", "others", "own", "rest", "answer"),
    [
        ("1-5", "1-5", "0,6-11", "0=000ff;1=1ffff", "0=1ff00;1=1ffff", "met"),
        # One way is filled by both.
        ("1-5", "1-5", "0,6-11", "0=001ff;1=1ffff", "0=1ff00;1=1ffff", "not-met"),
        # A core of the device is in nobody's group.
        ("1-5", "1-4", "0,6-11", "0=000ff;1=1ffff", "0=1ff00;1=1ffff", "not-met"),
        # The housekeeping core has the same ways.
        ("1-5", "0-5", "0,6-11", "0=000ff;1=1ffff", "0=1ff00;1=1ffff", "not-met"),
        # Devices fill the highest of these ways, too.
        ("1-5", "1-5", "0,6-11", "0=c0000;1=1ffff", "0=1ffff;1=1ffff", "not-met"),
        # Cores 6 to 8 are in the same group; their cache is the other socket's, and shared.
        ("1-5", "1-8", "0,9-11", "0=000ff;1=1ffff", "0=1ff00;1=1ffff", "not-met"),
        ("5-6", "1-5", "0,6-11", "0=000ff;1=1ffff", "0=1ff00;1=1ffff", "not-met"),
    ],
)
def test_ways_of_their_own(
    tree: Tree, asked: str, cpus: str, others: str, own: str, rest: str, answer: str
) -> None:
    group(tree, "device", cpus, own)
    group(tree, ".", others, rest)
    group(tree, "manualres", "", "0=20000;1=20000")
    assert said(tree, asked).answer == answer


def test_code_and_data_apart(tree: Tree) -> None:
    for name, cpus, code, data in (("device", "1-5", "00f", "0f0"), (".", "0,6-11", "f00", "f0f")):
        group(tree, name, cpus, f"0={data}")
        path = tree.root / "sys/fs/resctrl" / name / "schemata"
        path.write_text(f"L3CODE:0={code}\nL3DATA:0={data}\n")
    assert said(tree).answer == "not-met"
    (tree.root / "sys/fs/resctrl/schemata").write_text("L3CODE:0=f00\nL3DATA:0=f00\n")
    assert said(tree).answer == "met"


def test_processors_and_roles_that_have_none(tree: Tree) -> None:
    guest = Purpose.of(tree, "vm-guest", "1-5", interfaces=[])
    assert judged("cache-ways", tree, guest).answer == "not-applicable"
    (tree.root / "proc/cpuinfo").write_text("flags : fpu tsc\n")
    assert said(tree).why == "the processor does not divide its last cache"


@given(st.integers(0, 2**20 - 1), st.integers(1, 4))
def test_masks_that_the_kernel_takes(ways: int, least: int) -> None:
    runs = [run for run in f"{ways:b}".split("0") if run]
    lowest = len(runs[-1]) if runs else 0
    assert is_mask(ways, least, sparse=True) == (lowest >= least)
    assert is_mask(ways, least, sparse=False) == (lowest >= least and len(runs) == 1)


@given(
    st.lists(st.integers(1, 2**12 - 1), min_size=1, max_size=2),
    st.integers(0, 2**12 - 1),
    st.integers(1, 4),
    st.integers(1, 2),
    st.booleans(),
)
def test_ways_are_in_a_row_free_and_the_lowest(
    rests: list[int], taken: int, many: int, least: int, sparse: bool
) -> None:
    def fits(own: int) -> bool:
        return (
            not own & taken
            and all(own & rest == own for rest in rests)
            and all(is_mask(rest & ~own, least, sparse=sparse) for rest in rests)
        )

    rows = (((1 << many) - 1) << low for low in range(12))
    assert own_ways(rests, taken, many, least, sparse=sparse) == next(filter(fits, rows), None)


@pytest.mark.parametrize(
    ("cpus", "own", "rest"),
    [
        # One of six cores: three of seventeen ways, the lowest.
        ("5", {"0": "7"}, {"0": "1fff8"}),
        ("1-5", {"0": "7fff"}, {"0": "18000"}),
        ("4-7", {"0": "3f", "1": "3f"}, {"0": "1ffc0", "1": "1ffc0"}),
    ],
)
def test_cores_get_their_share_of_the_ways(
    tree: Tree, kernel: Kernel, tmp_path: Path, cpus: str, own: dict[str, str], rest: dict[str, str]
) -> None:
    before = state(tree.root)
    assert apply(planned(tree, cpus), tmp_path / "journals") == []
    made, left = shown(tree, "tailtap")["L3"], shown(tree)["L3"]
    assert {cache: made[cache] for cache in own} == own
    assert {cache: left[cache] for cache in rest} == rest
    assert {left[cache] for cache in left.keys() - rest.keys()} <= {"1ffff"}
    assert shown(tree, "manualres")["L3"] == {"0": "e0000", "1": "e0000"}
    assert said(tree, cpus).answer == "met"
    assert planned(tree, cpus).met == ["cache-ways"]
    assert revert(tmp_path / "journals").left == ()
    assert state(tree.root) == before


def test_a_tuning_upon_a_tuning(tree: Tree, kernel: Kernel, tmp_path: Path) -> None:
    before = state(tree.root)
    apply(planned(tree, "1-2"), tmp_path / "journals")
    first = state(tree.root)
    apply(planned(tree, "3-5"), tmp_path / "more")
    assert (tree.root / "sys/fs/resctrl/tailtap/cpus_list").read_text() == "3-5\n"
    assert said(tree, "3-5").answer == "met"
    assert shown(tree, "tailtap")["L3"]["0"] == "1ff"
    revert(tmp_path / "more")
    assert state(tree.root) == first
    revert(tmp_path / "journals")
    assert state(tree.root) == before


def test_code_and_data_are_divided_alike(tree: Tree, kernel: Kernel, tmp_path: Path) -> None:
    top = tree.root / "sys/fs/resctrl"
    for line in ("L3CODE", "L3DATA"):
        (top / "info" / line).mkdir()
        for file in (top / "info/L3").iterdir():
            (top / "info" / line / file.name).write_text(file.read_text())
    for name, mask in ((".", "1ffff"), ("manualres", "e0000")):
        lines = (f"  {line}:0={mask};1={mask}" for line in ("L3CODE", "L3DATA"))
        (top / name / "schemata").write_text("\n".join(lines) + "\n")
    before = state(tree.root)
    apply(planned(tree, "5"), tmp_path / "journals")
    assert {row["0"] for row in shown(tree, "tailtap").values()} == {"7"}
    assert {row["0"] for row in shown(tree).values()} == {"1fff8"}
    assert said(tree, "5").answer == "met"
    revert(tmp_path / "journals")
    assert state(tree.root) == before


def test_ways_of_others_and_of_devices_are_left_to_them(tree: Tree, kernel: Kernel) -> None:
    (tree.root / "sys/fs/resctrl/info/L3/shareable_bits").write_text("3\n")
    group(tree, "theirs", "", "0=c;1=0")
    made = ResourceGroup("5", {"0": [1, 6]}, ways=True, root=str(tree.root))
    found = made.read()
    assert found is not None
    # The default group's rest must be in one piece: only the ways at its upper end are left.
    assert made.wanted(found)["own"]["L3"] == {"0": "1c000"}
    group(tree, "theirs", "", "0=1800c;1=0")
    with pytest.raises(MachineError, match="no 2 ways in a row of cache 0 are left beside"):
        made.wanted(made.read() or {})
    assert planned(tree, "5").left[0][0] == "cache-ways"
    group(tree, "theirs", "4-5", "0=e0000;1=0")
    [(_, why)] = planned(tree, "5").left
    assert why == "CPU 5 belongs to the group theirs in /sys/fs/resctrl, which is somebody else's"


def test_a_refusal_changes_nothing(tree: Tree, kernel: Kernel, tmp_path: Path) -> None:
    kernel.closids = 2
    before = state(tree.root)
    with pytest.raises(MachineError, match=r"^cache-ways: .*: Out of CLOSIDs; nothing is changed"):
        apply(planned(tree), tmp_path / "journals")
    status = "sys/fs/resctrl/info/last_cmd_status"
    assert state(tree.root) | {status: ""} == before | {status: ""}
    kernel.closids = 16
    chosen = planned(tree)
    (tree.root / "sys/fs/resctrl/manualres/mode").write_text("exclusive\n")
    (tree.root / "sys/fs/resctrl/info/L3/min_cbm_bits").write_text("18\n")
    before = state(tree.root)
    with pytest.raises(MachineError, match="no 18 ways in a row"):
        apply(chosen, tmp_path / "journals")
    assert state(tree.root) == before


def test_what_the_kernel_says_is_told(tmp_path: Path) -> None:
    (tmp_path / "info").mkdir()
    (tmp_path / "info/last_cmd_status").write_text("mask f7 has non-consecutive 1-bits\n")
    with pytest.raises(MachineError, match=r"cannot be L3:0=f7: mask f7 has non-consecutive 1-bit"):
        resctrl.write(tmp_path / "info", "L3:0=f7")
    (tmp_path / "info/last_cmd_status").write_text("ok\n")
    with pytest.raises(MachineError, match="info cannot be made: File exists"):
        resctrl.make_group(tmp_path / "info")
    with pytest.raises(MachineError, match="info cannot be removed: Directory not empty"):
        resctrl.remove_group(tmp_path / "info")
    (tmp_path / "schemata").touch()
    resctrl.write(tmp_path / "schemata", "L3:0=f")
    assert (tmp_path / "schemata").read_text() == "L3:0=f\n"


def test_what_somebody_changes_is_left_and_told(tree: Tree, kernel: Kernel, tmp_path: Path) -> None:
    apply(planned(tree, "5"), tmp_path / "journals")
    top = tree.root / "sys/fs/resctrl"
    kernel.write(top / "schemata", "L3:0=1f000")
    kernel.write(top / "tailtap/cpus_list", "4-5")
    [sentence] = revert(tmp_path / "journals").left
    assert "tailtap (CPUs 4-5)" in sentence
    assert "L3 of cache 0 in" in sentence and "(1f000, before tailtap 1ffff)" in sentence
    assert shown(tree)["L3"]["0"] == "1f000"
    assert (top / "tailtap/cpus_list").read_text() == "4-5\n"


STEPS = (
    *((resctrl, name) for name in ("make_group", "remove_group", "write")), (journal, "append"),
    (Journal, "close"),
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of that machine once, for cases of which each leaves them as they were."""
    return unpacked("intel-two-sockets", tmp_path_factory.mktemp("machine"))


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["1-5", "5", "2-7", "6,8"]), min_size=1, max_size=2),
    st.integers(0, 16),
    st.integers(0, 8),
)
def test_whenever_it_is_killed_everything_is_put_back(
    root: Path, tunings: list[str], at: int, undone_at: int
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        tree = Tree(root)
        played(patch, tree.root)
        patch.setattr(Owner, "alive", property(lambda _self: False))
        before, journals = state(tree.root), Path(folder, "journals")
        for do, last in ((True, at), (False, undone_at)):
            with dying(last, *STEPS):
                for cpus in tunings if do else ():
                    apply(planned(tree, cpus), journals)
                if not do:
                    revert(journals)
        assert revert(journals).left == ()
        assert state(tree.root) == before


def test_bandwidth_of_other_cores(tree: Tree, kernel: Kernel, tmp_path: Path) -> None:
    assert said(tree, name="memory-bandwidth").why.endswith("limit the bandwidth of cores")
    path = tree.root / "proc/cpuinfo"
    path.write_text("vendor_id : GenuineIntel\nflags : fpu rdt_a cat_l3 mba\n")
    for name, cpus, mask in ((".", "0-11", "1ffff"), ("manualres", "", "e0000")):
        group(tree, name, cpus, f"0={mask};1={mask}")
    before = state(tree.root)
    assert said(tree, name="memory-bandwidth").value == "not limited"
    both = plan(tree, purpose(tree), ["cache-ways", "memory-bandwidth"])
    apply(both, tmp_path / "journals")
    assert said(tree, name="memory-bandwidth").value == "limited"
    assert said(tree).answer == "met"
    assert shown(tree)["MB"] == {"0": "50", "1": "100"}
    assert shown(tree, "tailtap")["MB"] == {"0": "100", "1": "100"}
    revert(tmp_path / "journals")
    assert state(tree.root) == before
    path.write_text("vendor_id : AuthenticAMD\nflags : fpu rdt_a cat_l3 mba\n")
    assert "not divided by per cent" in said(tree, name="memory-bandwidth").why


MOUNT = """#!/bin/sh
echo "$0 $*" >> {folder}/told
case $0 in
*/umount) rm -r {folder}/resctrl/* ;;
*) echo "L3:0=f" > {folder}/resctrl/schemata ;;
esac
"""


def test_it_is_mounted_and_unmounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By programs of these names that stand in for the system's."""
    (tmp_path / "resctrl").mkdir()
    for name in ("mount", "umount"):
        (tmp_path / name).write_text(MOUNT.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = ResctrlMount(str(tmp_path / "resctrl"))
    old = made.read()
    made.apply()
    assert made.pending(old)
    (tmp_path / "resctrl/theirs").mkdir()
    (tmp_path / "resctrl/theirs/schemata").write_text("L3:0=1\n")
    assert str(made.undo(old)).startswith("somebody else has made theirs in")
    (tmp_path / "resctrl/theirs/schemata").unlink()
    assert made.undo(old) is None
    assert made.undo(old) is None
    assert [line.split()[1:] for line in (tmp_path / "told").read_text().splitlines()] == [
        ["-t", "resctrl", "resctrl", str(tmp_path / "resctrl")],
        [str(tmp_path / "resctrl")],
    ]

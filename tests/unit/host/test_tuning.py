"""Audit, plan, apply and revert, on a small machine of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from children import dying, speaking
from hypothesis import given
from hypothesis import strategies as st
from scratch_machine import scratch_machine, state

from tailtap.base.errors import InputError, MachineError
from tailtap.host import knobs as table
from tailtap.host.changes import clean, journal, kernel_values
from tailtap.host.changes.journal import Journal, Owner, read_all
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.systemd import Folder
from tailtap.host.knobs.knob import Files, Knob, fixed
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning import apply as tuning
from tailtap.host.tuning.apply import apply, audit, judge, plan, revert

STEERING = Knob(
    "steering",
    Files("/sys/class/net/{interface}/queues/rx-*/rps_cpus", "mask"),
    lambda purpose, _tree: f"{sum(1 << cpu for cpu in purpose.cpus):x}",
    "It is for a test.",
    "this test",
    group="cards",
    removes=("foreign-net-rx",),
    risk=0,
    disruptive=True,
)
COMPARED = Knob(
    "compared",
    Files("/proc/sys/vm/compared", "number"),
    fixed("1"),
    "It is for a test.",
    "this test",
    group="timers",
    removes=(),
    risk=0,
    recommended=False,
)
NAMES = ("stat-interval", "hung-task", "transparent-huge-pages", "steering", "compared")


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of five knobs of all kinds."""
    mine = [knob for knob in table.KNOBS if knob.name in NAMES]
    monkeypatch.setattr(table, "KNOBS", (*mine, STEERING, COMPARED))


def machine_in(folder: Path) -> Tree:
    tree = Tree(scratch_machine(folder))
    (folder / "proc/sys/vm/compared").write_text("0\n")
    return tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return machine_in(tmp_path)


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "journals"


def answers(tree: Tree, *names: str, cpus: str = "2-3") -> dict[str, str]:
    purpose = Purpose.of(tree, cpus=cpus, interfaces=["eth1"])
    return {row.name: row.answer for row in audit(tree, purpose, names).rows}


def test_an_audit(tree: Tree) -> None:
    (tree.root / "proc/sys/vm/stat_interval").write_text("4000\n")
    (tree.root / "proc/sys/kernel/hung_task_timeout_secs").unlink()
    (tree.root / "sys/kernel/mm/transparent_hugepage/enabled").write_text("\n")
    assert answers(tree) == {
        "stat-interval": "met",
        "hung-task": "not-applicable",
        "transparent-huge-pages": "not-met",
        "steering": "not-met",
        "compared": "not-applicable",
    }
    (tree.root / "proc/sys/vm/stat_interval").write_text("soon\n")
    assert answers(tree, "stat-interval") == {"stat-interval": "unknown"}
    assert not audit(tree, Purpose.of(tree)).met
    assert audit(tree, Purpose.of(tree), ["stat-interval"]).met


def test_a_plan_names_what_it_sets_and_what_it_leaves(tree: Tree) -> None:
    purpose = Purpose.of(tree, cpus="2-3")
    first = plan(tree, purpose)
    assert [change.knob.name for change in first.changes] == [
        "hung-task",
        "stat-interval",
        "transparent-huge-pages",
    ] or {change.knob.name for change in first.changes} == set(NAMES[:3])
    assert [name for name, _ in first.left] == ["steering"]
    assert "say --disruptive" in first.left[0][1]
    assert [change.knob.name for change in plan(tree, purpose, ["compared"]).changes] == [
        "compared"
    ]
    assert plan(tree, purpose, ["timers"]).left == []
    with pytest.raises(InputError, match="no knob or group"):
        plan(tree, purpose, ["nothing"])


@pytest.mark.parametrize("recommended", [True, False])
def test_the_interface_of_the_default_route_is_left_alone(
    tree: Tree, journals: Path, monkeypatch: pytest.MonkeyPatch, *, recommended: bool
) -> None:
    """Also where a knob is only to compare."""
    monkeypatch.setattr(table, "KNOBS", (replace(STEERING, recommended=recommended),))
    both = Purpose.of(tree, cpus="2-3", interfaces=["eth0", "eth1"])
    [change] = plan(tree, both, ["steering"], disruptive=True).changes
    assert change.purpose.interfaces == ("eth1",)
    before = state(tree.root / "sys/class/net/eth0")
    apply(plan(tree, both, ["steering"], disruptive=True), journals)
    assert state(tree.root / "sys/class/net/eth0") == before
    assert answers(tree, "steering") == {"steering": "met"}
    only = Purpose.of(tree, cpus="2-3", interfaces=["eth0"])
    left = plan(tree, only, ["steering"], disruptive=True)
    assert not left.changes
    assert left.left == [("steering", "the default route is by eth0")]


def test_nothing_to_set_writes_no_journal(tree: Tree, journals: Path) -> None:
    (tree.root / "proc/sys/vm/stat_interval").write_text("3600\n")
    apply(plan(tree, Purpose.of(tree), ["stat-interval"]), journals)
    assert not journals.exists()


def test_a_refusal_rolls_back_everything_and_is_named(
    tree: Tree, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(tree.root)
    write = KernelValue._write

    def refusing(self: KernelValue, path: Path, value: str) -> None:
        if path.parts[-2:] == ("rx-1", "rps_cpus") and value != "0":
            raise MachineError(f"{path} cannot be {value}: Read-only file system")
        write(self, path, value)

    monkeypatch.setattr(KernelValue, "_write", refusing)
    purpose = Purpose.of(tree, cpus="2-3", interfaces=["eth1"])
    with pytest.raises(MachineError, match=r"^steering: .*rx-1.*Read-only.*nothing is changed$"):
        apply(plan(tree, purpose, disruptive=True), journals)
    assert state(tree.root) == before
    assert list(read_all(journals)) == []


def test_what_the_kernel_takes_but_does_not_do_is_a_refusal(
    tree: Tree, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(tree.root)
    path = tree.root / "proc/sys/vm/stat_interval"
    judged = judge

    def later(knob: Knob, where: Tree, purpose: Purpose):  # type: ignore[no-untyped-def]
        path.write_text("5\n") if path.read_text().strip() == "3600" else None
        return judged(knob, where, purpose)

    made = plan(tree, Purpose.of(tree), ["stat-interval"])
    monkeypatch.setattr(tuning, "judge", later)
    with pytest.raises(MachineError, match=r"^stat-interval: it was set to .*3600, but is 5"):
        apply(made, journals)
    path.write_text("1\n")
    assert state(tree.root) == before


def test_a_measurement_may_change_what_was_tuned_and_puts_it_back(
    tree: Tree, journals: Path
) -> None:
    before = state(tree.root)
    purpose = Purpose.of(tree, cpus="2-3", interfaces=["eth1"])
    apply(plan(tree, purpose, ["stat-interval"]), journals)
    ours = Journal.create(journals)
    change = KernelValue(["/proc/sys/vm/stat_interval"], "9", root=str(tree.root))
    with ours.held(change):
        assert (tree.root / "proc/sys/vm/stat_interval").read_text() == "9"
        with pytest.raises(MachineError, match="a measurement has changed file /proc/sys/vm/stat"):
            revert(journals)
    ours.close()
    assert answers(tree, "stat-interval") == {"stat-interval": "met"}
    revert(journals)
    assert state(tree.root) == before


HOLDER = """
import sys, time
from pathlib import Path
from tailtap.host.changes.journal import Journal
made = Journal.create(Path(sys.argv[1]), task="tailtap host apply")
print("made", flush=True)
time.sleep(600)
"""


@pytest.fixture
def another(journals: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is at tuning this machine."""
    with speaking([sys.executable, "-c", HOLDER, str(journals)]) as process:
        yield process


def test_two_at_once(tree: Tree, journals: Path, another: subprocess.Popen[str]) -> None:
    before = state(tree.root)
    steps = plan(tree, Purpose.of(tree))
    for action in (lambda: apply(steps, journals), lambda: revert(journals)):
        with pytest.raises(MachineError, match=f"host apply runs, process {another.pid}: wait"):
            action()
    assert state(tree.root) == before
    another.kill()
    another.wait()
    apply(steps, journals)
    revert(journals)
    assert state(tree.root) == before
    assert list(read_all(journals)) == []


def rewritten(journals: Path, **head: object) -> None:
    """Change the first line of each journal."""
    for path in journals.glob("*.journal"):
        first, *rest = path.read_text().splitlines()
        path.write_text("\n".join([json.dumps({**json.loads(first), **head}), *rest, ""]))


def test_after_a_reboot_values_are_gone_by_themselves(tree: Tree, journals: Path) -> None:
    apply(plan(tree, Purpose.of(tree)), journals)
    [record] = read_all(journals)
    set_before = tuple(entry.name for entry in reversed(record.entries))
    assert "/proc/sys/vm/stat_interval" in set_before
    rewritten(journals, boot_id="another")
    (tree.root / "proc/sys/vm/stat_interval").write_text("3600\n")  # as somebody wrote it since
    now = state(tree.root)
    told = tuning.Reverted((), (), set_before)
    assert revert(journals, dry_run=True) == told
    assert revert(journals) == told
    assert revert(journals) == tuning.Reverted((), (), ())
    assert state(tree.root) == now
    assert list(read_all(journals)) == []


def test_a_journal_of_another_machine(
    tree: Tree, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.root / "machine-id").write_text("one\n")
    monkeypatch.setattr(journal, "MACHINE_ID", tree.root / "machine-id")
    apply(plan(tree, Purpose.of(tree)), journals)
    (tree.root / "machine-id").write_text("another\n")
    now = state(tree.root)
    assert not [item for item in clean.find(journals) if item.journal is not None]
    with pytest.raises(MachineError, match="is the journal of another machine: remove it"):
        revert(journals)
    assert state(tree.root) == now


STEPS = (
    (journal, "append"), (kernel_values.KernelValue, "_write"), (journal.Journal, "close"),
    (tuning, "mark_undone"),
)  # fmt: skip
PATHS = (
    "proc/sys/vm/stat_interval",
    "proc/sys/kernel/hung_task_timeout_secs",
    "proc/sys/vm/compared",
    "sys/class/net/eth1/queues/rx-1/rps_cpus",
    "sys/class/net/eth1/queues/tx-1/xps_cpus",
)


@given(
    st.lists(
        st.tuples(st.permutations(NAMES), st.integers(1, 5), st.sampled_from(("1", "2-3", "3"))),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sets(st.sampled_from(PATHS), max_size=2),
)
def test_apply_then_revert_is_the_identity(
    tunings: list[tuple[list[str], int, str]], at: int, undone_at: int, touched: set[str]
) -> None:
    """For any knobs in any order, killed at any step of either, whatever else was changed."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Owner, "alive", property(lambda _self: False))
        tree, journals = machine_in(Path(folder)), Path(folder, "journals")
        before = state(tree.root)
        with dying(at, *STEPS):
            for names, count, cpus in tunings:
                purpose = Purpose.of(tree, cpus=cpus, interfaces=["eth1"])
                apply(plan(tree, purpose, names[:count], disruptive=True), journals)
        for path in touched:
            (tree.root / path).write_text("17\n")
        with dying(undone_at, *STEPS):
            revert(journals)
        revert(journals)
        after = state(tree.root)
        assert {path: text for path, text in after.items() if path not in touched} == {
            path: text for path, text in before.items() if path not in touched
        }
        assert all(after[path] == "17" for path in touched)
        assert revert(journals) == tuning.Reverted((), (), ())
        assert list(read_all(journals)) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write whatever the mode")
def test_a_user_cannot_apply(tree: Tree, journals: Path) -> None:
    (tree.root / "proc/sys/vm/stat_interval").chmod(0o444)
    with pytest.raises(MachineError, match=r"^stat-interval: .*Permission denied"):
        apply(plan(tree, Purpose.of(tree), ["stat-interval"]), journals)


def test_what_another_version_has_set_is_told_and_stays_in_the_journal(
    tree: Tree, journals: Path
) -> None:
    apply(plan(tree, Purpose.of(tree), ["stat-interval"]), journals)
    [path] = journals.glob("*.journal")
    path.write_text(path.read_text().replace('"kind": "value"', '"kind": "of-tomorrow"'))
    for _ in range(2):
        [left] = revert(journals).left
        assert left.startswith(
            f"{path} says what this tailtap cannot undo (of-tomorrow /proc/sys/vm/stat_interval): "
            "run `sudo tailtap host revert` with the version or the plug-in"
        )
    path.write_text(path.read_text().replace('"of-tomorrow"', '"value"'))
    assert revert(journals).undone == ("/proc/sys/vm/stat_interval",)
    assert list(read_all(journals)) == []


def test_after_a_reboot_files_are_still_put_back(tree: Tree, journals: Path) -> None:
    folder = Folder(str(tree.root / "tt-0a1b2c-forwarder"))
    apply(plan(tree, Purpose.of(tree), ["stat-interval"]), journals)
    made = Journal.create(journals, task=tuning.TASK)
    made.apply(made.enter(folder), folder)
    made.keep()
    rewritten(journals, boot_id="another")
    (tree.root / "proc/sys/vm/stat_interval").write_text("1\n")  # as the kernel starts
    known = [item for item in clean.find(journals) if item.journal is not None]
    assert {(item.kind, item.owner) for item in known} == {
        ("folder", "kept"),
        ("journal", "kept"),
        ("journal", "dead"),
    }
    done = revert(journals)
    assert (done.undone, done.ended) == ((folder.label,), ("/proc/sys/vm/stat_interval",))
    assert not Path(folder.path).exists()
    assert list(read_all(journals)) == []

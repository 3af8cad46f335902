"""The table of knobs: its rows, the purpose they are judged for, the files they read."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from scratch_machine import scratch_machine

from tailtap.base.errors import InputError
from tailtap.host.changes.kernel_values import Form
from tailtap.host.knobs import KNOBS, select
from tailtap.host.knobs.interrupts import of_cards
from tailtap.host.knobs.knob import Files, Knob, Place, fixed, on_the_line
from tailtap.host.knobs.tree import ROLES, Absent, Purpose, Tree, Unreadable
from tailtap.host.tuning.apply import audit
from tailtap.records import knobs as catalogue


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(scratch_machine(tmp_path))


def row(**changes: Any) -> Knob:
    fields: dict[str, Any] = {
        "name": "a-knob",
        "group": "timers",
        "where": Files("/proc/sys/vm/stat_interval", "number"),
        "want": fixed("1"),
        "why": "It is for a test.",
        "source": "this test",
        "removes": ("timer",),
        "risk": 0,
    }
    return Knob(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"name": "A knob"}, "its name"),
        ({"group": "others"}, "no group others"),
        ({"where": Place("a place", lambda *_: {}, cast("Form", "words"))}, "no form words"),
        ({"removes": ("timers",)}, "no cause timers"),
        ({"removes": ("timer", "timer")}, "twice"),
        ({"risk": 4}, "risk"),
        ({"roles": frozenset(("host",))}, "roles"),
        ({"why": "because"}, "sentence"),
        ({"does": "Turns it off."}, "does and word"),
        ({"word": lambda *_: "word=1"}, "does and word"),
        ({"source": ""}, "source"),
        ({"where": Files("/proc/x", settable=False), "disruptive": True}, "disrupts"),
    ],
)
def test_a_row_that_cannot_be_right(changes: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=f"knob .*{wrong}"):
        row(**changes)


def test_what_is_known_without_the_machine_is_said_of_each() -> None:
    assert [knob.name for knob in KNOBS] == list(catalogue.KNOBS)


def test_names_are_unique_and_groups_together() -> None:
    assert not [name for name, count in Counter(knob.name for knob in KNOBS).items() if count > 1]
    groups = [knob.group for knob in KNOBS]
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index)
    assert not set(groups) & {knob.name for knob in KNOBS}


def test_no_two_knobs_set_the_same_file() -> None:
    patterns = [knob.where.place for knob in KNOBS if knob.settable == "runtime"]
    assert not [place for place, count in Counter(patterns).items() if count > 1]


def test_no_two_knobs_say_the_same_word(tree: Tree) -> None:
    for role in ROLES:
        purpose = Purpose.of(tree, role, "2-3")
        words = []
        for knob in KNOBS:
            if knob.word is not None and role in knob.roles:
                try:
                    words.append(knob.word(purpose, tree).partition("=")[0])
                except Absent:
                    continue
        assert len(set(words)) == len(words), words


def test_knobs_and_groups_by_name() -> None:
    assert select(()) == list(KNOBS)
    assert [knob.name for knob in select(["stat-interval"])] == ["stat-interval"]
    assert {knob.group for knob in select(["memory", "stat-interval"])} == {"memory", "timers"}
    with pytest.raises(InputError, match="no knob or group 'stat-intervall': did you mean"):
        select(["stat-intervall"])


def test_who_keeps_the_house_is_no_device_s(tree: Tree) -> None:
    assert Purpose.of(tree, housekeeping="0,3").cpus == (1, 2)


def test_a_machine_with_one_cpu_has_nothing_to_isolate(tree: Tree) -> None:
    (tree.root / "sys/devices/system/cpu/online").write_text("0\n")
    purpose = Purpose.of(tree)
    assert (purpose.cpus, purpose.housekeeping) == ((), (0,))
    for name in ("isolated", "others"):
        with pytest.raises(Absent, match="one CPU"):
            getattr(purpose, name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpus": "2-5"}, "cpus: this machine has no CPU 4-5: it has 0-3"),
        ({"housekeeping": "7"}, "housekeeping: this machine has no CPU 7: it has 0-3"),
        ({"cpus": "1-2", "housekeeping": "0,2"}, "--cpus and --housekeeping both have CPU 2"),
        ({"cpus": "0-3"}, "cpus 0-3 leaves no housekeeping core of 0-3"),
        ({"cpus": "two"}, "cpus two: this is no list of CPUs"),
        ({"cpus": ""}, "cpus names no CPU"),
        ({"role": "vmguest"}, "role: there is no role 'vmguest': did you mean 'vm-guest'"),
        ({"interfaces": ["eth2"]}, "interface: there is no 'eth2': did you mean 'eth"),
    ],
)
def test_a_purpose_that_the_machine_cannot_serve(
    tree: Tree, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Purpose.of(tree, **options)


def test_files_for_each_core_and_card(tree: Tree) -> None:
    purpose = Purpose.of(tree, cpus="2-3", interfaces=["eth1"])
    queues = Files("/sys/class/net/{interface}/queues/rx-*/rps_cpus", "mask")
    assert list(queues.read(tree, purpose)) == [
        f"/sys/class/net/eth1/queues/rx-{queue}/rps_cpus" for queue in (0, 1)
    ]
    assert queues.place == "/sys/class/net/interface/queues/rx-*/rps_cpus"
    with pytest.raises(Absent, match="no network card"):
        queues.read(tree, dataclasses.replace(purpose, interfaces=()))
    for cpu in range(4):
        folder = tree.root / f"sys/devices/system/cpu/cpu{cpu}"
        folder.mkdir(parents=True)
        (folder / "online").write_text("1")
    for part, cpus in (("cpu", (2, 3)), ("housekeeping", (0, 1))):
        found = Files(f"/sys/devices/system/cpu/cpu{{{part}}}/online").read(tree, purpose)
        assert list(found) == [f"/sys/devices/system/cpu/cpu{cpu}/online" for cpu in cpus]


def test_what_is_not_there_says_why(tree: Tree) -> None:
    purpose = Purpose.of(tree)
    with pytest.raises(Absent, match="there is no /proc/sys/vm/none"):
        row(where=Files("/proc/sys/vm/none")).read(tree, purpose)
    with pytest.raises(Absent, match="this kernel has none"):
        row(where=Files("/proc/sys/vm/none"), absent="this kernel has none").read(tree, purpose)
    with pytest.raises(Absent, match="for the role generator, not for bare-metal"):
        row(roles=frozenset(("generator",))).wish(purpose, tree)
    with pytest.raises(Unreadable, match="cannot be read: is a directory"):
        tree.text("/proc/sys")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_what_only_root_may_look_into_is_unknown(tree: Tree) -> None:
    folder = tree.root / "sys/kernel/debug"
    folder.mkdir()
    folder.chmod(0)
    debugfs = Files("/sys/kernel/debug/sched/preempt", "choice")
    with pytest.raises(Unreadable, match="only root may look into /sys/kernel/debug"):
        debugfs.read(tree, Purpose.of(tree))
    folder.chmod(0o755)
    with pytest.raises(Absent, match="there is no /sys/kernel/debug/sched/preempt"):
        debugfs.read(tree, Purpose.of(tree))


def test_the_kernels_command_line(tree: Tree) -> None:
    line = 'isolcpus=1 rcu-nocbs=2 x="a b" isolcpus=managed_irq,2-3 quiet -- isolcpus=3'
    (tree.root / "proc/cmdline").write_text(line)
    assert tree.word("isolcpus") == ["1", "managed_irq,2-3"]
    assert tree.word("rcu_nocbs") == ["2"]
    assert tree.word("x") == ["a b"]
    assert tree.word("quiet") == [""]
    assert tree.word("nohz") == []
    [told] = on_the_line("isolcpus").read(tree, Purpose.of(tree)).values()
    assert told == "managed_irq,2-3"


def test_interfaces_of_default_routes(tree: Tree) -> None:
    assert tree.default_route() == {"eth0"}
    none, six = "0" * 32, "fe80" + "0" * 28
    (tree.root / "proc/net/ipv6_route").write_text(
        f"{none} 00 {none} 00 {six} 00000400 00000001 00000000 00000003     eth1\n"
        f"{none} 00 {none} 00 {none} ffffffff 00000001 00000000 00200200       lo\n"
        f"{six} 40 {none} 00 {none} 00000100 00000001 00000000 00000001     eth2\n"
    )
    assert tree.default_route() == {"eth0", "eth1"}


@pytest.mark.parametrize(("ticks", "answer"), [(0, "met"), (10, "met"), (11, "not-met")])
def test_what_only_the_host_can_mend_is_shown_and_does_not_decide(
    tree: Tree, ticks: int, answer: str
) -> None:
    stat = f"cpu {10_000 - ticks} 0 0 0 0 0 0 {ticks} 0 0\n"
    (tree.root / "proc/stat").write_text(stat)
    purpose = Purpose.of(tree, "vm-guest", cpus="2-3")
    found = audit(tree, purpose, ["steal"])
    assert [row.answer for row in found.rows] == [answer]
    assert found.rows[0].value == f"{ticks / 10_000:.2%}"
    assert found.met
    assert found.rows[0].elsewhere is True
    assert not audit(tree, purpose, ["steal", "stat-interval"]).met


def test_interrupts_of_a_card_are_not_those_of_the_port_that_it_is_plugged_into(
    tmp_path: Path,
) -> None:
    devices = tmp_path / "sys/devices/pci0000:00"
    for number, device in ((28, "port1"), (51, "port1/card"), (29, "port2"), (60, "port2/card")):
        (devices / device / "msi_irqs").mkdir(parents=True)
        (devices / device / f"msi_irqs/{number}").write_text("msix\n")
    (devices / "port2/card/virtio3").mkdir()
    for name, device in (("eth0", "port1/card"), ("eth1", "port2/card/virtio3")):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
        (tmp_path / "sys/class/net" / name / "device").symlink_to(devices / device)
    tree = Tree(tmp_path)
    cards = {
        name: of_cards(tree, Purpose("bare-metal", (1,), (0,), (name,)))
        for name in ("eth0", "eth1")
    }
    assert cards == {"eth0": {"51"}, "eth1": {"60"}}


def test_a_folder_that_goes_meanwhile_is_not_there(tmp_path: Path) -> None:
    stays = tmp_path / "groups/stays"
    stays.mkdir(parents=True)
    (stays / "cpus").write_text("1\n")
    goes = [tmp_path / f"groups/goes{number}" for number in range(8)]
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for path in goes:
                path.mkdir()
            for path in goes:
                path.rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(500):
            assert Tree(tmp_path).glob("/groups/**/cpus") == ["/groups/stays/cpus"]
    finally:
        done.set()
        other.join()

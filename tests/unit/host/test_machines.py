"""Recorded machines: what the audit says of each, and every knob set on it and put back."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_machines import NAMES, unpacked
from resctrl_kernel import played
from scratch_machine import state
from systemctl_program import Systemctl, playing_systemd

from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.knob import Files
from tailtap.host.knobs.purpose import ROLES, Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import apply, revert
from tailtap.host.tuning.audit import audit, judge
from tailtap.host.tuning.plan import plan

CPUS = {
    "intel-two-sockets": ("1-5", "0,6-11"),
    "amd-epyc-four-nodes": ("17-23", "0-16,24-63"),
    "raspberry-pi-4": ("2-3", "0-1"),
    "cloud-vm": ("1", "0"),
}
INTERFACES = {"intel-two-sockets": ["ens1f0"]}


def machine(name: str, folder: Path) -> Tree:
    return Tree(unpacked(name, folder))


def purpose(tree: Tree, name: str, role: str | None = None) -> Purpose:
    cpus, rest = CPUS[name]
    return Purpose.of(tree, role, cpus, rest, INTERFACES.get(name))


def answers(tree: Tree, name: str, role: str | None = None) -> dict[str, str]:
    return {row.knob.name: row.answer for row in audit(tree, purpose(tree, name, role)).rows}


@pytest.mark.parametrize(
    ("name", "role", "cpus", "rest"),
    [
        # The kernel's line isolates five cores of the first node.
        ("intel-two-sockets", "bare-metal", (1, 2, 3, 4, 5), (0, 6, 7, 8, 9, 10, 11)),
        # The first core keeps both of its threads.
        ("amd-epyc-four-nodes", "bare-metal", (*range(1, 32), *range(33, 64)), (0, 32)),
        ("raspberry-pi-4", "bare-metal", (1, 2, 3), (0,)),
        ("cloud-vm", "vm-guest", (1,), (0,)),
    ],
)
def test_the_purpose_that_a_machine_suggests(
    tmp_path: Path, name: str, role: str, cpus: tuple[int, ...], rest: tuple[int, ...]
) -> None:
    found = Purpose.of(machine(name, tmp_path))
    assert (found.role, found.cpus, found.housekeeping) == (role, cpus, rest)


EXPECTED = {
    "intel-two-sockets": {
        "isolated-cpus": "met",
        "nohz-full": "met",
        "rcu-nocbs": "met",
        "rcu-nocb-poll": "met",
        "skew-tick": "met",
        "kernel-audit": "met",
        "line-words": "met",
        "line-contradictions": "met",
        "hyperthreads": "not-applicable",
        "corrected-errors": "not-met",
        "numa-balancing": "not-met",
        "governor": "not-met",
        "energy-preference": "not-met",
        "energy-bias": "not-met",
        "deep-idle-states": "not-met",
        "card-power": "not-met",
        "boost": "not-applicable",
        "steal": "not-applicable",
    },
    "amd-epyc-four-nodes": {
        "isolated-cpus": "not-met",
        "nohz-full": "not-applicable",
        "line-words": "not-met",
        "line-refused": "met",
        "hyperthreads": "not-met",
        "interrupt-default": "not-met",
        "governor": "not-met",
        "energy-preference": "not-applicable",
        "turbo": "not-applicable",
        "irqbalance": "not-met",
        "tuned": "met",
    },
    "raspberry-pi-4": {
        "line-words": "met",
        "line-refused": "unknown",
        "governor": "not-met",
        "tsc-reliable": "not-applicable",
        "corrected-errors": "not-applicable",
        "nmi-watchdog": "not-applicable",
        "numa-balancing": "not-applicable",
        "deep-idle-states": "not-applicable",
        "stat-interval": "not-met",
        "zone-reclaim": "met",
        "swap": "met",
    },
    "cloud-vm": {
        "governor": "not-applicable",
        "hyperthreads": "not-applicable",
        "nohz-full": "not-applicable",
        "corrected-errors": "not-applicable",
        "guest-halt-polling": "not-applicable",
        "steal": "not-met",
        "nmi-watchdog": "met",
        "autogroup": "not-met",
        "transparent-huge-pages": "not-met",
        "deferred-interrupts": "met",
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_what_the_audit_says(tmp_path: Path, name: str) -> None:
    found = answers(machine(name, tmp_path), name)
    assert {knob: found[knob] for knob in EXPECTED[name]} == EXPECTED[name]


def test_the_role_decides_what_matters(tmp_path: Path) -> None:
    tree = machine("amd-epyc-four-nodes", tmp_path)
    name = "amd-epyc-four-nodes"
    polling = {role: answers(tree, name, role)["host-halt-polling"] for role in ROLES}
    assert [role for role, answer in polling.items() if answer != "not-applicable"] == ["vm-host"]
    threads = {role: answers(tree, name, role)["hyperthreads"] for role in ROLES}
    assert [role for role, answer in threads.items() if answer == "not-applicable"] == ["vm-guest"]


def test_values_are_those_of_the_cores_in_question(tmp_path: Path) -> None:
    tree = machine("intel-two-sockets", tmp_path)
    for cpu in range(1, 6):
        path = tree.root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"
        path.write_text("performance\n")
    assert answers(tree, "intel-two-sockets")["governor"] == "met"
    [row] = audit(tree, Purpose.of(tree, cpus="5-6"), ["governor"]).rows
    assert (row.answer, row.value) == ("not-met", "performance (1), powersave (1)")


ALSO_SET = {
    "intel-two-sockets": {"cache-ways", "lowest-frequency", "uncore-frequency"},
    "amd-epyc-four-nodes": {"cache-ways", "slices"},
    "raspberry-pi-4": set[str](),
    "cloud-vm": set[str](),
}
"""Knobs that are no plain files."""


def living(tree: Tree, folder: Path, patch: pytest.MonkeyPatch) -> Systemctl:
    """What a machine does with what is written: resctrl, and systemd with a timer and slices."""
    played(patch, tree.root)
    systemd = playing_systemd(folder / "systemd", tree.root, patch)
    systemd.set("fstrim.timer", ActiveState="active")
    for unit in ("system.slice", "user.slice", "init.scope"):
        systemd.set(unit, AllowedCPUs="")
    return systemd


@pytest.mark.parametrize("name", NAMES)
def test_every_knob_is_set_and_put_back_by_itself(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that can be set and is not as it should be; on this machine it is then met."""
    tree = machine(name, tmp_path / "machine")
    systemd = living(tree, tmp_path, monkeypatch)
    units = systemd.units
    journals = tmp_path / "journals"
    wanted = purpose(tree, name)
    before = state(tree.root)
    tried = []
    for knob in KNOBS:
        if knob.settable != "runtime":
            continue
        [*changes] = plan(tree, wanted, [knob.name], disruptive=True).changes
        if not changes:
            continue
        tried.append(knob.name)
        apply(plan(tree, wanted, [knob.name], disruptive=True), journals)
        assert judge(knob, tree, wanted).differs is False, knob.name
        assert (state(tree.root), systemd.units) != (before, units)
        done = revert(journals)
        assert done.undone and not done.left, knob.name
        assert (state(tree.root), systemd.units) == (before, units), knob.name
    files = {
        knob.name
        for knob in KNOBS
        if isinstance(knob.where, Files) and knob.settable == "runtime"
        if judge(knob, tree, wanted).differs
    }
    assert files and files <= set(tried)
    assert set(tried) >= {"maintenance", *ALSO_SET[name]}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("role", ROLES)
def test_all_knobs_are_set_and_put_back_together(
    tmp_path: Path, name: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = machine(name, tmp_path / "machine")
    systemd = living(tree, tmp_path, monkeypatch)
    units = systemd.units
    wanted = purpose(tree, name, role)
    before = state(tree.root)
    apply(plan(tree, wanted, disruptive=True), tmp_path / "journals")
    found = audit(tree, wanted)
    left = {row.knob.name for row in found.rows if row.answer == "not-met"}
    assert not left & {knob.name for knob in KNOBS if knob.settable == "runtime"}
    revert(tmp_path / "journals")
    assert (state(tree.root), systemd.units) == (before, units)

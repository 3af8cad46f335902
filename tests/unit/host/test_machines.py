"""Recorded machines: what the audit says of each, and every knob set on it and put back."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from resctrl_kernel import played
from scratch_machine import NAMES, state, unpacked
from systemctl_program import Systemctl, playing_systemd

from tailtap.base.errors import MachineError
from tailtap.base.units import cpu_mask, parse_cpus
from tailtap.host.facts import machine as facts
from tailtap.host.facts import needs
from tailtap.host.facts.environment import describe
from tailtap.host.facts.machine import cgroup_versions, physical_nics
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.knob import Files
from tailtap.host.knobs.tree import ROLES, Purpose, Tree
from tailtap.host.tuning.apply import apply, audit, judge, plan, revert
from tailtap.records.record import as_json

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
    return {row.name: row.answer for row in audit(tree, purpose(tree, name, role)).rows}


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
    for name, active in (("apt-daily", "active"), ("fstrim", "active"), ("man-db", "inactive")):
        systemd.set(f"{name}.timer", ActiveState=active)
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
    left = {row.name for row in found.rows if row.answer == "not-met"}
    assert not left & {knob.name for knob in KNOBS if knob.settable == "runtime"}
    revert(tmp_path / "journals")
    assert (state(tree.root), systemd.units) == (before, units)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_an_empty_machine_is_described_with_nothing(tmp_path: Path) -> None:
    found = as_json(describe(tmp_path))
    json.dumps(found)
    assert found["clocksource"] is None
    assert found["cgroup_versions"] is None
    assert found["cpu"]["model"] is None
    assert found["cpu"]["governors"] is None
    assert found["nics"] == []
    assert found["topology"]["cores"] == []


def test_cgroup_versions(tmp_path: Path) -> None:
    write(tmp_path / "proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
    assert cgroup_versions(tmp_path) == [2]
    write(tmp_path / "proc/mounts", "a /x cgroup2 rw 0 0\nb /y cgroup rw,cpu 0 0")
    assert cgroup_versions(tmp_path) == [1, 2]


def test_the_share_of_time_that_was_stolen(tmp_path: Path) -> None:
    assert facts.steal_share(tmp_path) is None
    write(tmp_path / "proc/stat", "cpu  10 0 10 60 0 0 0 20 0 0\ncpu0 10 0 10 60 0 0 0 20 0 0")
    assert facts.steal_share(tmp_path) == 0.2
    write(tmp_path / "proc/stat", "cpu  nonsense")
    assert facts.steal_share(tmp_path) is None


def test_fields_of_memory_are_in_bytes(tmp_path: Path) -> None:
    write(tmp_path / "proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB")
    assert facts.memory("MemAvailable", tmp_path) == 1_024_000
    assert facts.memory("MemNone", tmp_path) is None


def test_nics_and_interrupts(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/net/virtual0/mtu", "1500")
    nic = tmp_path / "sys/class/net/tap0test"
    write(nic / "mtu", "9000")
    write(nic / "speed", "not a number")
    driver = tmp_path / "sys/bus/drivers/ice"
    driver.mkdir(parents=True)
    (nic / "device").mkdir()
    (nic / "device/driver").symlink_to(driver)
    assert [path.name for path in physical_nics(tmp_path)] == ["tap0test"]
    write(
        tmp_path / "proc/interrupts",
        "           CPU0       CPU1\n  24:          7         0   PCI-MSI 1-edge      ice-tx\n"
        " NMI:          0          0   Non-maskable interrupts",
    )
    write(tmp_path / "proc/irq/24/smp_affinity_list", "1")
    found = as_json(describe(tmp_path))
    assert found["interrupts"] == {"24": {"name": "PCI-MSI 1-edge ice-tx", "cpus": "1"}}
    [described] = found["nics"]
    assert (described["driver"], described["mtu"], described["speed_mbit"]) == ("ice", 9000, None)


def test_a_virtio_card_has_its_node_and_interrupts_from_what_carries_it(tmp_path: Path) -> None:
    carrier = tmp_path / "sys/devices/pci0000:00/0000:00:03.0"
    write(carrier / "numa_node", "1")
    for number in (39, 100, 38):
        write(carrier / f"msi_irqs/{number}", "msix")
    (carrier / "virtio2").mkdir()
    (tmp_path / "sys/class/net/ens3").mkdir(parents=True)
    (tmp_path / "sys/class/net/ens3/device").symlink_to(carrier / "virtio2")
    [nic] = describe(tmp_path).nics
    assert (nic.numa_node, nic.interrupts) == (1, ["38", "39", "100"])
    assert nic.bus == "0000:00:03.0"


LSTOPO = shutil.which("lstopo-no-graphics")
MASKS = {
    "topology/thread_siblings_list": "topology/thread_siblings",
    "topology/package_cpus_list": "topology/core_siblings",
    "cache/index*/shared_cpu_list": "shared_cpu_map",
}
"""Files that say the same as lists and as masks; hwloc reads the masks."""

pytestmark = pytest.mark.skipif(LSTOPO is None, reason="hwloc is not installed (apt: hwloc-nox)")


@pytest.mark.parametrize("name", ["this machine", *NAMES])
def test_hwloc_reads_the_same_machine(tmp_path: Path, name: str) -> None:
    root = Path("/")
    if name != "this machine":
        root = unpacked(name, tmp_path)
        _with_masks(root)
    told, hwloc = _told(as_json(facts.topology(root))), _hwloc(root)
    if root == Path("/"):  # a host may take memory from a virtual machine at any moment
        told, hwloc = ({**found, "memory": None} for found in (told, hwloc))
    assert told == hwloc


def _told(topology: dict[str, Any]) -> dict[str, Any]:
    """What hwloc says as well, in a form that both have."""
    return {
        "cores": {_set(cpus) for cpus in topology["cores"]},
        "packages": {_set(cpus) for cpus in topology["packages"]},
        "caches": {
            (int(row["level"]), row["type"], int(row["size"].removesuffix("K")) * 1024,
             _set(row["cpus"]))
            for row in topology["caches"]
        },
        "nodes": {name: _set(cpus) for name, cpus in topology["numa_nodes"].items()},
        "memory": {name: size or 0 for name, size in topology["node_memory"].items()},
        # One node is no distance apart to hwloc.
        "distances": [
            distance
            for row in topology["node_distances"].values() if len(topology["numa_nodes"]) > 1
            for distance in row
        ],
    }  # fmt: skip


def _hwloc(root: Path) -> dict[str, Any]:
    where = [] if root == Path("/") else ["--input", str(root), "--if", "fsroot"]
    command = [str(LSTOPO), *where, "--of", "xml", "--whole-system", "--no-io"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    top = ElementTree.fromstring(done.stdout)
    found = [(row.get("type", ""), row) for row in top.iter("object")]
    nodes = [row for kind, row in found if kind == "NUMANode"]
    types = {"0": "Unified", "1": "Data", "2": "Instruction"}
    return {
        "cores": {_cpuset(row) for kind, row in found if kind == "Core"},
        "packages": {_cpuset(row) for kind, row in found if kind == "Package"},
        "caches": {
            (int(row.get("depth", "")), types[row.get("cache_type", "")],
             int(row.get("cache_size", "")), _cpuset(row))
            for kind, row in found if kind.endswith("Cache")
        },
        "nodes": {row.get("os_index"): _cpuset(row) for row in nodes},
        "memory": {row.get("os_index"): int(row.get("local_memory", "0")) for row in nodes},
        "distances": [int(x) for row in top.iter("u64values") for x in (row.text or "").split()],
    }  # fmt: skip


def _set(cpus: str) -> frozenset[int]:
    return frozenset(parse_cpus(cpus))


def _cpuset(row: ElementTree.Element) -> frozenset[int]:
    """hwloc writes words of 32 bits, the highest first."""
    value = 0
    for word in row.get("cpuset", "").split(","):
        value = value << 32 | int(word or "0", 16)
    return frozenset(bit for bit in range(value.bit_length()) if value >> bit & 1)


def _with_masks(root: Path) -> None:
    """Write the masks, as the kernel would."""
    for pattern, name in MASKS.items():
        for path in (root / "sys/devices/system/cpu").glob(f"cpu[0-9]*/{pattern}"):
            mask = cpu_mask(parse_cpus(path.read_text().strip()))
            (path.parent / Path(name).name).write_text(f"{mask}\n")
    for path in (root / "sys/devices/system/node").glob("node*/cpulist"):
        path.with_name("cpumap").write_text(f"{cpu_mask(parse_cpus(path.read_text().strip()))}\n")


def test_an_old_kernel_is_asked_for_what_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before Linux 5.8 root has no CAP_BPF, and the kernel no ring buffers for programs."""
    needs.require_programs("tap", "leave it out")
    monkeypatch.setattr("tailtap._core.takes_programs", lambda: False)
    with pytest.raises(MachineError, match=r"tap: Linux .* does not take .*, or leave it out"):
        needs.require_programs("tap", "leave it out")
    monkeypatch.setattr(needs, "status", lambda: {"CapEff": "0000003fffffffff"})
    assert needs.missing_capabilities() == ["CAP_BPF"]
    (tmp_path / "last").write_text("37\n")
    monkeypatch.setattr(needs, "LAST_CAPABILITY", tmp_path / "last")
    assert needs.missing_capabilities() == []

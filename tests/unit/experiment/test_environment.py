"""The description of the machine: complete here, and None instead of an error elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from tailtap.experiment.environment import cgroup_versions, describe, physical_nics, topology


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_this_machine() -> None:
    facts = describe()
    json.dumps(facts)
    assert facts["kernel"]["release"] == facts["versions"]["kernel"]
    assert facts["cpu"]["online"]
    assert facts["topology"]["cores"]
    assert facts["versions"]["python"]


def test_an_empty_machine_is_described_with_nothing(tmp_path: Path) -> None:
    facts = describe(tmp_path)
    json.dumps(facts)
    assert facts["clocksource"] is None
    assert facts["cgroup_versions"] is None
    assert facts["cpu"]["model"] is None
    assert facts["cpu"]["governors"] is None
    assert facts["nics"] == []
    assert facts["topology"]["cores"] == []


def test_topology_of_two_cores_with_two_threads(tmp_path: Path) -> None:
    for cpu in range(4):
        base = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        siblings = "0,2" if cpu % 2 == 0 else "1,3"
        write(base / "topology/thread_siblings_list", siblings)
        write(base / "topology/package_cpus_list", "0-3")
        for index, shared in ((0, siblings), (1, "0-3")):
            write(base / f"cache/index{index}/level", str(index + 1))
            write(base / f"cache/index{index}/type", "Unified")
            write(base / f"cache/index{index}/size", "32K")
            write(base / f"cache/index{index}/shared_cpu_list", shared)
    write(tmp_path / "sys/devices/system/node/node0/cpulist", "0-3")
    assert topology(tmp_path) == {
        "cores": ["0,2", "1,3"],
        "packages": ["0-3"],
        "caches": [
            {"level": "1", "type": "Unified", "size": "32K", "cpus": "0,2"},
            {"level": "1", "type": "Unified", "size": "32K", "cpus": "1,3"},
            {"level": "2", "type": "Unified", "size": "32K", "cpus": "0-3"},
        ],
        "numa_nodes": {"0": "0-3"},
    }


def test_cgroup_versions(tmp_path: Path) -> None:
    write(tmp_path / "proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
    assert cgroup_versions(tmp_path) == [2]
    write(tmp_path / "proc/mounts", "a /x cgroup2 rw 0 0\nb /y cgroup rw,cpu 0 0")
    assert cgroup_versions(tmp_path) == [1, 2]


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
    facts = describe(tmp_path)
    assert facts["interrupts"] == {"24": {"name": "PCI-MSI 1-edge ice-tx", "cpus": "1"}}
    [described] = facts["nics"]
    assert (described["driver"], described["mtu"], described["speed_mbit"]) == ("ice", 9000, None)

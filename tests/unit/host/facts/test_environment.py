"""The description of the machine: complete here, and None instead of an error elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from tailtap.host.facts import machine as facts
from tailtap.host.facts.environment import describe
from tailtap.host.facts.machine import cgroup_versions, physical_nics, topology
from tailtap.records.record import as_json


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_this_machine() -> None:
    found = as_json(describe())
    json.dumps(found)
    assert found["kernel"]["release"] == found["versions"]["kernel"]
    assert found["cpu"]["online"]
    assert found["topology"]["cores"]
    assert found["versions"]["python"]


def test_an_empty_machine_is_described_with_nothing(tmp_path: Path) -> None:
    found = as_json(describe(tmp_path))
    json.dumps(found)
    assert found["clocksource"] is None
    assert found["cgroup_versions"] is None
    assert found["cpu"]["model"] is None
    assert found["cpu"]["governors"] is None
    assert found["nics"] == []
    assert found["topology"]["cores"] == []


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
    node = tmp_path / "sys/devices/system/node/node0"
    write(node / "cpulist", "0-3")
    write(node / "meminfo", "Node 0 MemTotal:        2000 kB\nNode 0 MemFree: 1 kB")
    write(node / "distance", "10")
    assert as_json(topology(tmp_path)) == {
        "cores": ["0,2", "1,3"],
        "packages": ["0-3"],
        "caches": [
            {"level": "1", "type": "Unified", "size": "32K", "cpus": "0,2"},
            {"level": "1", "type": "Unified", "size": "32K", "cpus": "1,3"},
            {"level": "2", "type": "Unified", "size": "32K", "cpus": "0-3"},
        ],
        "numa_nodes": {"0": "0-3"},
        "node_memory": {"0": 2_048_000},
        "node_distances": {"0": [10]},
    }


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

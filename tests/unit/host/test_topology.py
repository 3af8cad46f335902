"""What a machine consists of, as hwloc reads the same files: an independent reader."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from recorded_machines import NAMES, unpacked

from tailtap.base.units import cpu_mask, parse_cpus
from tailtap.host.facts import machine as facts
from tailtap.records.record import as_json

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

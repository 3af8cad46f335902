"""On which NUMA nodes the memory of a program is."""

from __future__ import annotations

from pathlib import Path

from tailtap.lab.instruments.memory import far, nodes_of

MAPS = """\
55d0c0000000 default file=/usr/bin/program mapped=10 mapmax=2 N1=10 kernelpagesize_kB=4
55d0c1000000 default heap anon=25 dirty=25 N0=20 N1=5 kernelpagesize_kB=4
7f0000000000 default file=/dev/hugepages/rtemap_0 huge dirty=3 N1=3 kernelpagesize_kB=2048
7ffd00000000 default stack anon=2 dirty=2 N0=2 kernelpagesize_kB=4
"""


def process(proc: Path, pid: int, parent: int, maps: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (a program) S {parent} 1 1\n")
    (folder / "numa_maps").write_text(maps)


def test_the_memory_of_a_program_and_its_children_by_node(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, MAPS)
    process(tmp_path, 11, 10, "7ffd00000000 default stack anon=1 N0=1 kernelpagesize_kB=4\n")
    process(tmp_path, 12, 1, MAPS)
    # What is in files belongs to whoever read them first; huge pages are the program's own.
    assert nodes_of(10, tmp_path) == {0: 23 * 4096, 1: 5 * 4096 + 3 * (2 << 20)}
    assert nodes_of(99, tmp_path) == {}


def test_memory_on_another_node_is_a_crossing() -> None:
    [warning] = far({0: 1 << 20, 1: 64 << 20}, (0,))
    assert warning["code"] == "numa-crossing"
    assert warning["message"] == (
        "64 MiB of the forwarder's memory are on NUMA node 1, and dut.cpus on 0"
    )
    assert list(far({0: 64 << 20, 1: 1 << 20}, (0,))) == []
    assert list(far({0: 1 << 20, 1: 64 << 20}, (0, 1))) == []
    # Where there is no device there is nothing to be far from.
    assert list(far({0: 1 << 20, 1: 64 << 20}, ())) == []

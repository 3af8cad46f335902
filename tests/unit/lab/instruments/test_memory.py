"""The memory of a program and of what it started."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from observing import NoLinks

from tailtap.base.errors import MachineError
from tailtap.lab.instruments import Scope
from tailtap.lab.instruments.kernel_counters import far, memory_of, nodes_of
from tailtap.lab.instruments.observing import Watching
from tailtap.remote.local import LocalHost, Process


def test_memory_is_that_of_the_process_and_of_all_it_started(tmp_path: Path) -> None:
    taken = 50_000_000
    inner = f"import sys; held = bytearray({taken}); print(flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = [sys.executable, "-c", outer]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        found = memory_of(process.pid)
        assert found is not None and taken < found < 3 * taken
        process.stdin.close()
    assert memory_of(process.pid) is None
    assert memory_of(1, tmp_path) is None


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


@pytest.fixture
def told() -> Iterator[Process]:
    """A process that tells of other things, then of a link, and ends."""
    script = "echo added tt-in; read line < /dev/null; echo deleted tt-in; sleep 0.2"
    process = LocalHost().start(["sh", "-c", script])
    yield process
    process.close()


def _observe(links: NoLinks) -> Watching:
    return Watching(Scope((1,), (0,), links))


def _trouble(observation: Watching) -> str | None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and observation.sources():
        if trouble := observation.trouble():
            return trouble
        time.sleep(0.01)
    return None


def test_a_deleted_link_is_named(told: Process) -> None:
    observation = _observe(NoLinks([told]))
    assert _trouble(observation) == "interface tt-in vanished during the run"


def test_those_who_tell_may_end_as_the_links_are_looked_at_in_the_end() -> None:
    process = LocalHost().start(["true"])
    links = NoLinks([process])
    observation = _observe(links)
    assert _trouble(observation) is None
    assert observation.sources() == []
    links.broken.append("interface tt-out of namespace tt-dut is down")
    with pytest.raises(MachineError, match="tt-out of namespace tt-dut is down during the run"):
        observation.stop()


def test_standing_links_are_no_news() -> None:
    reading = _observe(NoLinks()).stop()
    assert not reading.found and not reading.warnings and not reading.files

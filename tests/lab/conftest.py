"""What lab tests share: network namespaces that go away whatever happens. Needs root.

Tests that are marked neither `alone` nor `apart` can run side by side: pytest-xdist, with ``--dist
loadfile``, so that those that share a DuT run in one process. CONTRIBUTING.md says which is which.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import handovers
import injectors
import pytest
from labtools import IS_VIRTUAL, Machine, own_machine, turn_for_huge_pages
from namespaces import Lab, Namespace
from standing import Lost

from tailtap.host.changes.journal import FOLDERS, STATE, SUFFIX, read_all
from tailtap.host.containers.domains import DomainFolder
from tailtap.lab.platforms.vm import kernels

PATIENCE_SECONDS = 20
SIDE_BY_SIDE = "PYTEST_XDIST_WORKER" in os.environ
"""Whether this process runs some of the tests, and others run the rest at the same time."""
REPEATS = 2
"""How often a test that judges times is repeated on a virtual machine before it fails.

A physical machine has no host that could be blamed: there, such a test runs once.
"""
MOST_REPEATS = 5
"""How often it is repeated where the host said that it took CPUs during each attempt."""
TAKEN = 0.01
"""The share of the CPUs' time that the host took of an attempt which is not held against a test."""
BEGAN = pytest.StashKey[tuple[int, int]]()
"""What the host had taken when an attempt began."""
SHARED = pytest.StashKey[set[str]]()
"""Objects that tests side by side share, as they were before the first test."""
LONGEST = ("test_testbed.py", "test_observe.py", "test_experiments.py", "test_transactions.py")
"""Files that begin first, so that no process is left alone with one at the end."""
LABS = re.compile(r"tt-[0-9a-f]{6}-")
"""Names of the namespaces that `tailtap run` and `tailtap doctor` make."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip lab tests without root or two CPUs, and repeat what a machine's host has spoilt."""
    for item in items:
        if IS_VIRTUAL and item.get_closest_marker("timed"):
            item.add_marker(
                pytest.mark.flaky(reruns=MOST_REPEATS, condition=Attempts(item).may_repeat)
            )
    if SIDE_BY_SIDE:
        items.sort(key=lambda item: item.path.name not in LONGEST)
    missing = [
        *(["network namespaces and eBPF need root"] if os.geteuid() != 0 else []),
        *(["generator and DuT need a CPU each"] if len(os.sched_getaffinity(0)) < 2 else []),
    ]
    for item in items if missing else []:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=missing[0]))


class Attempts:
    """The attempts of a test that judges times."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._failed = 0

    def may_repeat(self, error: BaseException) -> bool:
        """Whether the test may try again after one more attempt that failed by `error`."""
        if isinstance(error, Lost):
            return False
        self._failed += 1
        before, now = self._item.stash[BEGAN], _stolen()
        taken = (now[0] - before[0]) / max(now[1] - before[1], 1)
        return self._failed <= REPEATS or taken > TAKEN


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note how much the host had taken when an attempt began."""
    item.stash[BEGAN] = _stolen()


def _stolen() -> tuple[int, int]:
    """What the host took of all CPUs since the boot, and their whole time, proc_stat(5)."""
    line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    # What guests take, the last two, is in the first two as well.
    times = [int(word) for word in line.split()[1:9]]
    return times[7], sum(times)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Look at what tests side by side share, before the first one."""
    if session.config.getoption("numprocesses", None):
        session.config.stash[SHARED] = _shared_objects()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail when tests side by side left anything behind of what they share."""
    before = session.config.stash.get(SHARED, None)
    if before is not None and (left := _left(_shared_objects, before)):
        print(f"\nleft behind: {', '.join(sorted(left))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A factory of namespaces that are removed after the test."""
    made = Lab()
    try:
        yield made
    finally:
        for namespace in made.namespaces:
            namespace.remove()


@pytest.fixture
def namespace(lab: Lab) -> Namespace:
    """One namespace, with two cables."""
    return lab.namespace().cabled()


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A view of this machine with network namespaces and journals of its own."""
    with own_machine() as made:
        yield made


@pytest.fixture
def huge_pages() -> Iterator[None]:
    """Nobody else reserves huge pages meanwhile."""
    with turn_for_huge_pages():
        yield


@pytest.fixture(scope="session")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that disturbs a CPU."""
    return injectors.build(tmp_path_factory.mktemp("injector"))


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the recorder, and of a forwarder that writes its own times down."""
    folder = tmp_path_factory.mktemp("recorder")
    handovers.build(folder)
    return folder


@pytest.fixture(scope="session")
def guest_kernels() -> None:
    """What guests boot with, got by this machine's own network, which `own_machine` has not."""
    kernels.shell()
    for name in kernels.PACKAGES:
        kernels.kernel(name)


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Fails a test that leaves anything of tailtap behind.

    Of tests side by side, the session fails for what they share: whose it is cannot be seen.
    """
    before = _objects()
    yield
    assert not _left(_objects, before)


def _left(look: Callable[[], set[str]], before: set[str]) -> set[str]:
    """What `look` finds and did not find before."""
    # Control groups are the whole machine's, and may be those of a tailtap that we cannot see.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := look() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _shared_objects() -> set[str]:
    """Control groups, huge pages and folders of DPDK: the same in all mount namespaces."""
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    trees = [Path(fields[1]) for fields in lines if fields[2] in ("cgroup", "cgroup2")]
    names = [str(path) for tree in trees for path in tree.glob("tt-*")]
    names += [str(path) for path in Path("/run/dpdk").glob("tt-*")]
    found = {name for name in names if LABS.search(name)}
    found |= {str(path) for tree in trees for path in tree.glob("libpod-*")}
    for path in Path("/sys/kernel/mm/hugepages").glob("*/nr_hugepages"):
        found |= {f"{path} {number}" for number in range(int(path.read_text()))}
    return _without_others(found)


def _objects() -> set[str]:
    """Everything of tailtap on this machine that is not another running tailtap's."""
    names = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout.split()
    names += [path.name for path in Path("/sys/class/net").iterdir()]
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    state = [str(path) for folder in FOLDERS for path in folder.glob(f"*{SUFFIX}")]
    state += [str(path) for path in STATE.glob("*/*")]
    state += [domain.name for domain in DomainFolder.existing()]
    found = {name for name in (*names, *mounts, *state) if LABS.search(name)}
    found |= {name for name in state if name.endswith(SUFFIX)}
    found |= set() if SIDE_BY_SIDE else _shared_objects()
    return _without_others(found)


def _without_others(found: set[str]) -> set[str]:
    """Without those of another running tailtap's journal."""
    others = [
        record.path.stem
        for record in read_all()
        if record.owner and record.owner.alive and record.owner.pid != os.getpid()
    ]
    return {name for name in found if not any(identity in name for identity in others)}

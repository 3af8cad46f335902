"""What lab tests share: network namespaces that go away whatever happens. Needs root."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespaces import Lab, Namespace

from tailtap.host.domains import Domains
from tailtap.host.journal import STATE, read_all

PATIENCE_SECONDS = 20
LABS = re.compile(r"tt-[0-9a-f]{6}-")
"""Names of the namespaces that `tailtap run` and `tailtap doctor` make."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip lab tests when not root."""
    if os.geteuid() != 0:
        folder = Path(__file__).parent
        skip = pytest.mark.skip(reason="network namespaces and eBPF need root")
        for item in items:
            if folder in item.path.parents:
                item.add_marker(skip)


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
    """One namespace."""
    return lab.namespace()


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Fails a test that leaves anything of tailtap behind."""
    before = _objects()
    yield
    # Control groups are the whole machine's, and may be those of a tailtap that we cannot see.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := _objects() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left


def _objects() -> set[str]:
    """Everything of tailtap on this machine that is not another running tailtap's."""
    names = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout.split()
    names += [path.name for path in Path("/sys/class/net").iterdir()]
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    mounts = [fields[1] for fields in lines]
    trees = [Path(fields[1]) for fields in lines if fields[2] in ("cgroup", "cgroup2")]
    groups = [str(path) for tree in trees for path in tree.glob("tt-*")]
    state = [str(path) for pattern in ("*.journal", "*/*") for path in STATE.glob(pattern)]
    state += Domains().existing([])
    state += [str(path) for path in Path("/run/dpdk").glob("tt-*")]
    others = [
        record.path.stem
        for record in read_all()
        if record.owner and record.owner.alive and record.owner.pid != os.getpid()
    ]
    found = {name for name in (*names, *mounts, *groups, *state) if LABS.search(name)}
    found |= {name for name in state if name.endswith(".journal")}
    for path in Path("/sys/kernel/mm/hugepages").glob("*/nr_hugepages"):
        found |= {f"{path} {number}" for number in range(int(path.read_text()))}
    return {name for name in found if not any(identity in name for identity in others)}

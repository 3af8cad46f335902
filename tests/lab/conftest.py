"""What lab tests share: network namespaces that go away whatever happens. Needs root."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespaces import Lab, Namespace

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
    """Fails a test that leaves a namespace, a link or a journal behind."""
    before = _objects()
    yield
    assert _objects() <= before


def _objects() -> set[str]:
    names = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout.split()
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    journals = [str(path) for path in Path("/run/tailtap").glob("*")]
    return {name for name in [*names, *links] if LABS.match(name)} | set(journals)

"""What lab tests share: network namespaces that go away whatever happens. Needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespaces import Lab, Namespace


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

"""Tests that need root: each runs in namespaces, and nothing of it may stay on the machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

OURS = re.compile(r"tt-[0-9a-f]{6}-")


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Fails a test that leaves a namespace, a link or a journal behind."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes network namespaces and loads eBPF")
    before = _objects()
    yield
    assert _objects() <= before


def _objects() -> set[str]:
    names = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout.split()
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    journals = [str(path) for path in Path("/run/tailtap").glob("*")]
    return {name for name in [*names, *links] if OURS.match(name)} | set(journals)

"""Fixtures of the tests that run the `tailtap` program."""

from __future__ import annotations

from pathlib import Path

import pytest
from captures import write_many


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two captures of 20,000 packets; latencies are 500 ns and up, one a nanosecond."""
    times = [10**9 + 1000 * i for i in range(20_000)]
    write_many(tmp_path / "in.pcap", times, range(20_000))
    write_many(
        tmp_path / "out.pcap", [t + 500 + i // 100 for i, t in enumerate(times)], range(20_000)
    )
    return tmp_path / "in.pcap", tmp_path / "out.pcap"

"""Fixtures of the tests that run the `tailtap` program."""

from __future__ import annotations

from pathlib import Path

import pytest
from captures import write_many
from published_trees import write_rates
from traced import HOG, traffic, write_run

from tailtap.results.database import refresh


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two captures of 20,000 packets; latencies are 500 ns and up, one a nanosecond."""
    times = [10**9 + 1000 * i for i in range(20_000)]
    write_many(tmp_path / "in.pcap", times, range(20_000))
    write_many(
        tmp_path / "out.pcap", [t + 500 + i // 100 for i, t in enumerate(times)], range(20_000)
    )
    return tmp_path / "in.pcap", tmp_path / "out.pcap"


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with a traced run and its samples, and runs to import beside it."""
    top = tmp_path_factory.mktemp("measured")
    found = traffic(1, 0.5, (HOG, 4, (500_000, 600_000)))
    write_run(top / "folder/runs/001-traced", found)
    (top / "folder/experiment.yaml").write_text("name: traced\n")
    refresh(top / "folder")
    rows = [f"{sample * 10_000};{sample}" for sample in range(300)]
    (top / "irq.csv").write_text("\n".join(["timestamp_us;LOC_CPU1", *rows, ""]))
    (top / "published").mkdir()
    write_rates(top / "published", [20_000])
    return top

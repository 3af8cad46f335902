"""Results on a disk that is full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from captures import write_many
from program import one_line_error, tailtap


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 16 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_tables_that_do_not_fit_are_one_line_and_leave_no_pieces(
    tmp_path: Path, small_disk: Path
) -> None:
    times = [10**9 + 1000 * i for i in range(20_000)]
    write_many(tmp_path / "in.pcap", times, range(20_000))
    write_many(tmp_path / "out.pcap", [t + 500 + t % 977 for t in times], range(20_000))
    captures = (tmp_path / "in.pcap", tmp_path / "out.pcap")
    run = tailtap("evaluate", *captures, "--out", small_disk / "out")
    message = one_line_error(run, 3)
    assert "No space left on device" in message and "--out" in message
    assert not (small_disk / "out/.part").exists()

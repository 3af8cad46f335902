"""Results on a disk that is full."""

from __future__ import annotations

from pathlib import Path

from captures import write_many
from labtools import small_disk
from program import one_line_error, tailtap


def test_tables_that_do_not_fit_are_one_line_and_leave_no_pieces(tmp_path: Path) -> None:
    times = [10**9 + 1000 * i for i in range(20_000)]
    write_many(tmp_path / "in.pcap", times, range(20_000))
    write_many(tmp_path / "out.pcap", [t + 500 + t % 977 for t in times], range(20_000))
    captures = (tmp_path / "in.pcap", tmp_path / "out.pcap")
    with small_disk(tmp_path, 16 << 10) as disk:
        run = tailtap("evaluate", *captures, "--out", disk / "out")
        message = one_line_error(run, 3)
        assert "No space left on device" in message and "--out" in message
        assert not list((disk / "out").iterdir())

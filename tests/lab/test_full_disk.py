"""Results on a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest
from captures import write_many
from holding import RATE, holding
from labtools import own_machine, small_disk, wait_for
from marks import read_marks
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


@pytest.mark.slow
def test_an_observation_ends_and_the_device_goes_on(tmp_path: Path) -> None:
    """What was stamped until then is whole, and says what it lacks."""
    with small_disk(tmp_path, 256 << 10) as disk, own_machine() as machine, holding(machine):
        out = disk / "out"
        words = ("device/in@arrival", "sink/eth0@arrival", "--key", "packet", "--trace", "none")
        run = machine.tailtap("observe", *words, "--for", "60 s", "--out", str(out), "--quiet")
        message = one_line_error(run, 3)
        assert "No space left on device" in message and str(out) in message
        passed = machine.received("sink", "eth0")
        wait_for(lambda: machine.received("sink", "eth0") > passed + RATE, "packets")
        for side in ("ingress", "egress"):
            marks = read_marks(out / f"runs/001-observed/{side}.marks")
            assert len(marks.records) == marks.stored > RATE

"""What `tailtap search` refuses, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import in_process, one_line_error, tailtap

FILE = "name: a\ntraffic: {rate: 10 kpkt/s}\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--loss", "half"], "'half' is not a share: write per cent ('0.5%')"),
        (["--loss", "100%"], "below 100 %"),
        (["--loss", "5"], "'5' is more than everything: write per cent as '5%'"),
        (["--loss", "0", "--loss", "0%"], "twice"),
        (["--from", "3 Mpkt/s"], "--from 3 Mpkt/s is not below --to 2 Mpkt/s"),
        (["--precision", "0"], "--precision must be at least 0.01 %"),
        (["--exceed", "1"], "--exceed"),
        (["--trials", "0"], "--trials"),
        (["--trial", "1 h"], "more packets than the 32-bit ids can tell apart"),
        (["--from", "1 pkt/s", "--short", "1 ms"], "not a single packet fits in --short 1 ms"),
        (["--set", "traffic.rate=5 kpkt/s"], "the search chooses the rate"),
        (["--set", "vary.traffic.rate=['1 kpkt/s']"], "traffic.rate: the search chooses it"),
        (["--set", "cases=[{traffic.duration: 1 s}]"], "traffic.duration: the search chooses it"),
        (["--latency-at", "0"], "--latency-at must be above 0"),
        (["--set", "traffic.pattern={kind: ramp, to: 20 kpkt/s, over: 1 s}"], "a ramp has no rate"),
        (["--resume"], "--resume needs --out"),
    ],
)
def test_what_makes_no_sense_is_one_line(tmp_path: Path, options: list[str], said: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FILE)
    message = one_line_error(in_process("search", path, *options), 2)
    assert said in message
    assert list(tmp_path.iterdir()) == [path]


def test_the_program_says_so_too(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FILE)
    assert "twice" in one_line_error(tailtap("search", path, "--loss", "0", "--loss", "0%"), 2)

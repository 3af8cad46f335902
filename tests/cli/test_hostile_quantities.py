"""Numbers that take hours to make are refused at once, wherever a person can write one.

A program of its own tries them, which ends in time or not: nothing can stop Python while it makes
such a number.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from program import one_line_error, tailtap

MANY_DIGITS = "9" * 5000
"""Python refuses to read so many."""
HUGE = ("1e999999999", "1e400", MANY_DIGITS, f"0.{MANY_DIGITS}", f"1e{MANY_DIGITS}")
PARSERS = """
import sys
from tailtap.cli.datapath import parse_ids
from tailtap.base.errors import InputError
from tailtap.analysis.tail.peaks import parse_threshold
from tailtap.lab.generators.flows import parse_ports
from tailtap.lab.generators.pattern import parse_pattern
from tailtap.lab.generators.flows import parse_sizes
from tailtap.base.units import parse_rate, parse_share, parse_size, parse_time
from tailtap.analysis.verdict.requirement import parse_requirement

for number in sys.argv[1:]:
    for parse, text in (
        (parse_rate, f"{number} pkt/s"),
        (parse_size, f"{number} B"),
        (parse_sizes, f"64 B, {number} B"),
        (parse_time, f"{number} s"),
        (parse_share, f"1{number}%"),
        (parse_threshold, number + "9"),
        (parse_threshold, f"{number} us"),
        (parse_ports, f"1-{number}"),
        (parse_pattern, f"burst:packets={number}"),
        (lambda text: parse_ids(text, "--hold"), f"1,{number}"),
        (parse_requirement, f"p99 < {number} ms"),
        (parse_requirement, f"p{number} < 1 ms"),
        (parse_requirement, f"loss < 1{number} %"),
        (parse_requirement, f"gap(p{number}) < 1 ms"),
        (parse_requirement, f"reliability({number} s) > 9 %"),
    ):
        try:
            print(parse, text[:40], parse(text))
        except InputError:
            pass
"""


def test_every_parser_refuses_what_takes_hours() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARSERS, *HUGE],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("number", ["1e999999999", MANY_DIGITS])
@pytest.mark.parametrize(
    "command",
    [
        "run FILE --set traffic.rate=NUMBERkpkt/s",
        "run FILE --set require=['p99<NUMBERms']",
        "search FILE --loss NUMBER",
        "verdict FOLDER --require p99<NUMBERms",
        "evaluate FILE FILE --trim NUMBERs",
    ],
)
def test_a_number_that_takes_hours_is_one_line(tmp_path: Path, command: str, number: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("name: a\ntraffic: {rate: 1 kpkt/s}\n")
    names = {"FILE": str(file), "FOLDER": str(tmp_path), "NUMBER": number}
    words = command.split()
    for name, value in names.items():
        words = [word.replace(name, value) for word in words]
    assert number[:9] in one_line_error(tailtap(*words), 2)

"""`tailtap evaluate` with captures of two clocks, and what other commands make of that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from program import one_line_error, tailtap
from stamps import write_stamps
from two_clocks import START_NS, TwoClocks

CLOCKS = TwoClocks(offset_ns=3_000_000, drift=2e-5, packets=20_000)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    CLOCKS.write(folder, 1)
    return folder


@pytest.fixture(scope="module")
def evaluated(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `tailtap evaluate --back --out` wrote."""
    out = tmp_path_factory.mktemp("evaluated")
    run = tailtap("evaluate", *pair(captures), "--back", *back(captures), "--out", out)
    assert run.returncode == 0, run
    return out


def pair(folder: Path) -> tuple[Path, Path]:
    return folder / "ingress.stamps", folder / "egress.stamps"


def back(folder: Path) -> tuple[Path, Path]:
    return folder / "back-before.stamps", folder / "back-after.stamps"


def test_packets_both_ways(captures: Path) -> None:
    run = tailtap("evaluate", *pair(captures), "--back", *back(captures))
    assert run.returncode == 0, run
    assert re.search(
        r"two clocks: that of egress is ahead by 2,99\d\.\d{3} us to 3,00\d\.\d{3} us at first, by "
        r"3,05\d\.\d{3} us to 3,06\d\.\d{3} us at last, by 19,\d{3} packets there and 20,000 back",
        run.stdout,
    )
    assert re.search(r"latency in us, ± 7\.\d* us: two clocks", run.stdout)
    assert re.search(r"mean +\d+\.\d{3} +\d+\.\d{3} to \d+\.\d{3} *\n", run.stdout)
    assert re.search(r"warning: .*off by 7\.\d* us to either side.*\[two-clocks\]", run.stderr)


def test_an_interval(captures: Path) -> None:
    run = tailtap("evaluate", *pair(captures), "--egress-ahead", "2.9 ms..3.1 ms", "--json")
    assert run.returncode == 0, run
    told = json.loads(run.stdout)
    assert told["clocks"] == {
        "by": "interval",
        "ahead_ns": [[2_900_000, 3_100_000]],
        "widest_ns": 200_000,
        "within_ns": 100_000,
    }
    latency = told["latency_ns"]
    assert latency["bounds"]["max"] == [latency["max"] - 100_000, latency["max"] + 100_000]
    # Latencies below nothing are said as they are.
    shown = tailtap("evaluate", *pair(captures), "--egress-ahead", "3 ms..3.4 ms").stdout
    assert re.search(r"min +-1\d\d\.\d{3} +-3\d\d\.\d{3} to \d+\.\d{3}", shown)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--egress-ahead", "5 us..-3 us"], "is reversed: write the least first, '-3 us..5 us'"),
        (["--egress-ahead", "5 us"], "write the least and the most"),
        (["--egress-ahead", "0 s..6 s"], "as long as --window, 5 s"),
        (["--egress-ahead", "0 s..1 us", "--back", "BACK"], "give one of them"),
        (["--back", "NONE"], "no packet of .* is in .* occurs once in each"),
        (["--back", "EMPTY"], "there is no packet in the capture"),
        (["--back", "LATER"], "packets there and back are of different times"),
    ],
)
def test_bad_input_is_one_line(
    captures: Path, tmp_path: Path, options: list[str], why: str
) -> None:
    before, after = back(captures)
    none, empty = tmp_path / "none.stamps", tmp_path / "empty.stamps"
    later = tmp_path / "later-before.stamps", tmp_path / "later-after.stamps"
    write_stamps(none, [START_NS + place for place in range(100)], [10**6 + n for n in range(100)])
    write_stamps(empty, [], [])
    for path, delay in zip(later, (3_000_000, 20_000), strict=True):
        times = [START_NS + 10**11 + place * 10_000 + delay for place in range(100)]
        write_stamps(path, times, range(100))
    files = {
        "BACK": (before, after),
        "NONE": (before, none),
        "EMPTY": (before, empty),
        "LATER": later,
    }
    words = [word for option in options for word in files.get(option, (option,))]
    run = tailtap("evaluate", *pair(captures), *words)
    assert run.returncode == 2
    assert re.search(why, one_line_error(run, 2)), run.stderr


def test_a_clock_that_stepped_is_refused(tmp_path: Path) -> None:
    TwoClocks(step_ns=1_000_000).write(tmp_path, 1)
    run = tailtap("evaluate", *pair(tmp_path), "--back", *back(tmp_path))
    assert run.returncode == 2
    told = one_line_error(run, 2)
    assert re.search("one of them stepped.*give the capture with the clock of EGRESS first", told)


def test_runs_have_one_clock(tmp_path: Path) -> None:
    run = tailtap("evaluate", tmp_path, "--egress-ahead", "0 s..1 us")
    assert run.returncode == 2
    assert "for two captures: the stamps of a run have one clock" in one_line_error(run, 2)


def test_a_verdict_includes_what_is_open(evaluated: Path) -> None:
    run = tailtap("verdict", evaluated, "--require", "p90 < 1 ms", "--require", "loss < 2 %")
    assert run.returncode == 0, run
    value = json.loads((evaluated / "evaluation.json").read_text())["latency_ns"]
    p90 = next(row["value"] for row in value["percentiles"] if row["p"] == 0.9)
    run = tailtap("verdict", evaluated, "--require", f"p90 < {p90} ns")
    assert run.returncode == 1
    assert "not shown" in run.stdout and "as the clocks are two" in run.stdout
    assert re.search(r"us ± 7\.\d+ us", run.stdout)


def test_a_verdict_on_less_is_refused(evaluated: Path) -> None:
    run = tailtap("verdict", evaluated, "--require", "p99 < 10 us", "--quiet")
    assert (run.returncode, run.stdout) == (2, "")
    assert re.search(
        r"'p99 < 10 us' is about less than the clocks of its captures leave open, 1\d\.\d+ us",
        one_line_error(run, 2),
    )


def test_the_report_and_the_model_say_so(evaluated: Path) -> None:
    run = tailtap("report", evaluated, "--no-figures", "--quiet")
    assert run.returncode == 0, run
    page = (evaluated / "report/index.html").read_text()
    assert re.search(r"±\u00a07\.\d+\u00a0µs", page)
    assert "two-clocks" in page
    assert re.search(r"Two clocks: every latency may be off by 7\.\d+\u00a0µs\.", page)
    run = tailtap("model", evaluated, "--quiet")
    assert run.returncode == 0, run
    assert re.search(r"checked, ± 7\.\d+ us: two clocks", run.stdout)
    assert "within_ns" in json.loads((evaluated / "tail.json").read_text())


def test_a_report_of_latencies_below_nothing(captures: Path, tmp_path: Path) -> None:
    """An interval whose middle is too high leaves nothing for logarithmic axes at the lower end."""
    options = ("--egress-ahead", "3 ms..3.4 ms", "--out", tmp_path / "low")
    assert tailtap("evaluate", *pair(captures), *options).returncode == 0
    assert tailtap("report", tmp_path / "low", "--quiet").returncode == 0


def test_other_formats_have_no_place_for_it(evaluated: Path) -> None:
    for kind in ("hgrm", "csv"):
        run = tailtap("export", evaluated, "--to", kind)
        assert run.returncode == 2
        assert "no other format has a place" in one_line_error(run, 2)


def test_pieces_and_clusters_give_the_same(captures: Path) -> None:
    asked = ("evaluate", *pair(captures), "--back", *back(captures), "--json")
    whole = tailtap(*asked)
    pieces = tailtap(*asked, "--chunk", "16 KiB", "--jobs", "2")
    assert whole.returncode == 0 and whole.stdout == pieces.stdout

"""What `tailtap improve` and `tailtap run --against` refuse and print; the lab has their runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from improvements import helped, improvement, trial
from program import in_process, one_line_error

from tailtap.cli.improve import print_improvement
from tailtap.cli.run import against_text
from tailtap.records.compare import AgainstRecord
from tailtap.records.printed import Left

FILE = "name: a\ndut: {cpus: [1]}\ntraffic: {rate: 10 kpkt/s}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An experiment."""
    path = tmp_path / "a.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing: give one percentile, such as 'p99.9 < 1 ms'"),
        (["--require", "loss == 0"], "loss == 0: give one percentile"),
        (["--require", "p99 <"], "p99 <"),
        (["--require", "p99 < 1 ms", "--within", "5"], "--within: "),
        (["--require", "p99 < 1 ms", "--within", "0 s"], "--within: give a time above zero"),
        (["--require", "p99 < 1 ms", "--margin", "0"], "--margin: give a share from 1 %"),
        (
            ["--require", "p99 < 1 ms", "--set", "vary.traffic.size=['64 B', '128 B']"],
            "an improvement looks at one configuration",
        ),
        (
            ["--require", "p99 < 1 ms", "--set", "dut.platform=wire"],
            "wire has no device, and so nothing to improve",
        ),
        (
            ["--require", "p99 < 1 ms", "--set", "dut.tuning=full"],
            "full asks for words of the kernel's line",
        ),
    ],
)
def test_what_cannot_be_improved_is_one_line(path: Path, options: list[str], said: str) -> None:
    message = one_line_error(in_process("improve", path, *options), 2)
    assert said in message
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--against", "none.yaml"], "none.yaml"),
        (["--against-set", "traffic.rate=1 kpkt/s"], "--against-set is for --against BASE"),
        (["--at", "worst"], "--at 'worst' is no percentile: give one such as 99.9"),
        (["--at", "p100"], "a percentile lies between p0 and p100"),
        (["--worse-than", "2000 %"], "--worse-than: "),
        (["--within", "0 s"], "--within: give a time above zero"),
        (
            ["--check"],
            "--against goes with none of --testbed, --check, --resume, --live and --metrics",
        ),
        (["--set", "vary.traffic.size=['64 B', '128 B']"], "only one configuration is held"),
        (["--against-set", "traffic.rat=1 kpkt/s"], "unknown key: did you mean 'rate'?"),
    ],
)
def test_what_cannot_be_held_against_is_one_line(path: Path, options: list[str], said: str) -> None:
    base = (
        []
        if options[0] == "--against" or said.startswith("--against-set is")
        else ["--against", str(path)]
    )
    message = one_line_error(in_process("run", path, *base, *options), 2)
    assert said in message
    assert list(path.parent.iterdir()) == [path]


def test_the_table_says_what_each_knob_did(capsys: pytest.CaptureFixture[str]) -> None:
    record = improvement(
        helped("groups"),
        trial("kernel-threads"),
        left=[Left(name="isolated-cpus", why="it takes a reboot")],
    )
    print_improvement(record)
    said = " ".join(capsys.readouterr().out.split())
    assert "2.1 ms (1.9 ms to 2.3 ms)" in said
    assert "x 0.33 (0.2 to 0.5) 9 helps" in said
    assert "x 0.33 (0.2 to any) 9 not shown" in said
    assert "not tried: isolated-cpus: it takes a reboot" in said
    assert "p99.9 < 1 ms: violated before (2.1 ms), holds in the end (300 us); ended: holds" in said
    typed = "sudo tailtap host apply groups --cpus 1 --role bare-metal"
    assert f"proven: groups; set them: {typed}" in said


def test_the_answer_against_a_base_says_what_it_rests_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = AgainstRecord(
        name="new", base="old", status="done", error=None, p=0.999, margin=0.05, error_rate=0.05,
        error_rate_worse=0.01,
        within_ns=1, parameters={}, base_parameters={}, started="", finished="", answer="worse",
        pairs=[[2, 1]] * 5, spoiled=1, ratio=2.0, low=1.2, high=None, runs=[],
    )  # fmt: skip
    assert against_text(record, 0.05) == (
        "worse: p99.9 against the base x 2 (1.2 to any), 5 pairs, 1 spoiled; worse is more than 5 %"
    )

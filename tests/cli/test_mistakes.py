"""Mistakes of a newcomer on the command line: what is told names what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_folders import write_run
from program import in_process, one_line_error

EXPERIMENT = "name: e\ntraffic: {cpu: 0}\ndut: {platform: wire}\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with an experiment file, one that a Windows editor wrote, and what is neither."""
    monkeypatch.chdir(tmp_path)
    Path("e.yaml").write_text(EXPERIMENT)
    Path("empty.yaml").touch()
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Path("sixteen.yaml").write_bytes(EXPERIMENT.encode("utf-16"))
    Path("folder").mkdir()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rnu e.yaml", "there is no command 'rnu': did you mean 'run'? (see `tailtap --help`)"),
        ("host aply", "there is no command 'aply': did you mean 'apply'?"),
        ("run", "missing argument 'EXPERIMENT' (see `tailtap run --help`)"),
        ("run none.yaml --check", "none.yaml: cannot read the experiment: No such file"),
        ("run folder --check", "folder: this is a folder: give the experiment file (YAML)"),
        ("run empty.yaml --check", "empty.yaml:1: an experiment is a mapping with at least"),
        ("run picture.png --check", "picture.png: this is no experiment file: it is not UTF-8"),
        ("run sixteen.yaml --check", "sixteen.yaml: this is no experiment file: it is not UTF-8"),
        ("run e.yaml --resume", "--resume needs --out DIR"),
        ("run e.yaml --check --set", "option '--set' requires an argument"),
        ("run e.yaml --check --set rate=5", "--set 'rate=5': rate: unknown key: "),
        ("run e.yaml --check --set traffic.rate", "write it as path=value"),
        ("run e.yaml --check --sett x=1", "no such option '--sett'"),
        ("evaluate picture.png picture.png --trim 1", "--trim: 1 has no unit: write '1 s'"),
        ("evaluate picture.png picture.png --window 5sec", "--window: '5sec' is not a time: write"),
        ("evaluate picture.png", "picture.png: not a capture that tailtap reads"),
        ("evaluate e.yaml e.yaml --direction up", "'up' is not one of 'there', 'back', 'both'"),
        (
            "evaluate e.yaml e.yaml --ingress eth0",
            "'eth0' chooses no packets: give interface:NUMBER",
        ),
        ("evaluate e.yaml --egress copy:2", "of one capture, say both or neither"),
        ("evaluate *.none e.yaml", "*.none: no file has such a name"),
        ("evaluate none none", "none: No such file"),
        ("tap lo --write picture.png --format pcap", "remove it or choose another --write"),
        ("search e.yaml --to 5", "--to: 5 has no unit: write '5 pkt/s'"),
        ("search e.yaml --loss 5", "--loss: '5' is more than everything: write per cent as '5%'"),
        ("generate eth9 --rate 10 --count 5", "--rate: 10 has no unit: write '10 pkt/s'"),
        ("report e.yaml", "e.yaml: this is a file: give the folder that `tailtap run` or"),
        ("model picture.png", "picture.png: this is a file: give the folder"),
        ("report none", "none: no such folder; give the folder that `tailtap run` wrote"),
        ("explain folder", "folder: no runs in it"),
        ("export folder --to excel", "--to excel: unknown format; give parquet, csv"),
        ("import folder", "folder: no result files in it"),
    ],
)
def test_a_slip_is_told_in_one_line(words: str, said: str) -> None:
    done = in_process(*words.split())
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_trace_it_is_told_how_to_get_one(tmp_path: Path) -> None:
    write_run(tmp_path / "made", 1, {"dut.platform": "wire"}, packets=1_000)
    said = one_line_error(in_process("explain", "made"), 2)
    assert said.endswith("in the experiment file or with `tailtap run --set trace=thin`")


def test_names_of_files_may_have_blanks() -> None:
    Path("my file.yaml").write_text(EXPERIMENT.replace("cpu: 0", "cpu: zero"))
    message = one_line_error(in_process("run", "my file.yaml", "--check"), 2)
    assert message.startswith("tailtap: my file.yaml:2: traffic.cpu: 'zero' is wrong, wanted: CPU")


def test_a_trace_needs_a_folder() -> None:
    done = in_process("trace", "--cpus", "0", "--out", "e.yaml")
    assert done.returncode == 3
    assert "e.yaml: cannot make the folder of the trace: File exists: choose another" in done.stderr

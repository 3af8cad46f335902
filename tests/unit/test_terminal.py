"""What files and names of others say cannot steer the terminal, nor begin another line."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from experiment_folders import write_experiment, write_run
from made_records import made
from pos_trees import write_crate
from program import TAILTAP, tailtap
from terminals import command, shown, terminal

from tailtap.cli.console import print_table
from tailtap.cli.progress import Bar
from tailtap.cli.terminal import Telling, printable, say, say_whole, warn
from tailtap.show.sections import Cell, Column, Part, Table, row

HOSTILE = "\x1b[2J\x1b]0;title\x07\r\x9b31m\u202eeslaf\u2066\nverdict: pass\x00\x7f"
NAME = "[red]x[/red] [/] [link=file:///]"


def test_everything_that_is_no_text_is_an_escape() -> None:
    assert printable(HOSTILE) == (
        r"\x1b[2J\x1b]0;title\x07\r\x9b31m\u202eeslaf\u2066\nverdict: pass\x00\x7f"
    )
    assert printable(os.fsdecode(b"a\xff")) == r"a\udcff"
    for text in ("plain, µs ± 1 – 中文 é", "emoji 👩‍🔬", NAME, "back\\slash", ""):
        assert printable(text) == text


@pytest.mark.parametrize("print_it", [say, warn, say_whole])
def test_a_sentence_is_one_line(capsys: pytest.CaptureFixture[str], print_it: Any) -> None:
    print_it(HOSTILE)
    told = capsys.readouterr()
    assert told.out + told.err == printable(HOSTILE) + "\n"


def _tables() -> None:
    columns = Column("name"), Column("more", wrap=8)
    rows = [row(HOSTILE, Cell(NAME, "good"), look="present")]
    parts = [Part(rows), Part([row("a", "b")], HOSTILE + NAME)]
    print_table(Table("title " + HOSTILE, columns, parts))
    say(NAME + HOSTILE)


def test_tables_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    _tables()
    told = capsys.readouterr().out
    assert re.search(r"[^\x20-\x7e\n]", told) is None
    assert NAME in told and told.count("\n") == 6
    lines = shown(300, _tables)
    assert sum(NAME in line for line in lines) == 3
    assert not any(line.startswith("verdict") for line in lines)


def test_the_bar_shows_names_as_they_are() -> None:
    traffic = SimpleNamespace(rate=1_000.0)
    experiment = SimpleNamespace(seconds=1.0, traffic=traffic)
    run = cast("Any", SimpleNamespace(slug=NAME, experiment=experiment))
    record = made(error=HOSTILE + NAME, status="failed")

    def draw() -> None:
        bar = Bar()
        bar.begun([run], 1)
        bar.started(run)
        bar.finished(run, record)
        bar.ended()

    lines = shown(400, draw)
    assert any(printable(HOSTILE) + NAME in line for line in lines)
    assert any(NAME in line and "left" in line for line in lines)


@pytest.mark.parametrize(("words", "mark"), [("help verdict", "|"), ("host --help", "")])
def test_a_long_help_is_read_by_the_pager(words: str, mark: str) -> None:
    with terminal(80) as (stream, written):
        subprocess.run(
            [TAILTAP, *words.split()], stdin=stream, stdout=stream, check=True,
            env=os.environ | {"PAGER": "sed s/^/|/", "COLUMNS": "", "LINES": ""},
        )  # fmt: skip
    assert b"".join(written).decode().startswith(f"{mark}Usage: tailtap")


def test_many_quick_steps_are_one_line(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "made", packets=300)
    lines = shown(100, lambda: command("verdict", folder, "--require", "p99 < 1 s"))
    assert sum(line.startswith("verdict: ") for line in lines) < len(list(folder.glob("runs/*")))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment whose records and names say what steers a terminal."""
    made = tmp_path_factory.mktemp("hostile")
    write_run(made / "made", 1, {"dut.platform": "wire"}, packets=6_000)
    write_run(made / "made", 2, {"dut.platform": "bare-metal"}, packets=6_000)
    folder = (made / "made").rename(made / os.fsdecode(b"[red]\xff\x1b[2J"))
    for path in folder.glob("runs/*/run.json"):
        record = json.loads(path.read_text())
        record["name"] = HOSTILE + NAME
        record["variables"] = {"dut.platform" + HOSTILE: NAME + HOSTILE}
        record["warnings"] = [{"code": HOSTILE, "message": HOSTILE + NAME}]
        path.write_text(json.dumps(record))
        meta = path.parent / "evaluation/evaluation.json"
        found = json.loads(meta.read_text())
        found["warnings"] = [{"code": "x", "message": HOSTILE + NAME}]
        meta.write_text(json.dumps(found))
    (folder / "experiment.yaml").write_text("name: x\nrequire: [p99 < 1 s]\n")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("verdict", "{}", "--require", "p99 < 1 s"),
        ("model", "{}"),
        ("compare", "{}"),
        ("compare", f"{NAME}\x1b[2J={{}}"),
        ("evaluate", "{}"),
        ("report", "{}", "--out", "{}/page"),
        ("export", "{}", "--to", "csv", "--out", "{}/csv"),
        ("explain", "{}"),
        ("run", "{}/no.yaml"),
        ("testbed", "check", "{}/no.yaml"),
        ("evaluate", "{}/no.pcap", "{}/none.pcap"),
        ("import", "{}/nothing"),
        ("nonsense\x1b[2J",),
    ],
)
def test_commands_print_no_escape_codes(hostile: Path, words: tuple[str, ...]) -> None:
    run = tailtap(*(word.replace("{}", str(hostile)) for word in words))
    assert "Traceback" not in run.stderr and run.returncode != 70, run
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]",
                     run.stdout + run.stderr) is None, run  # fmt: skip
    assert "\nverdict: pass\x00" not in run.stdout


def test_an_import_prints_no_escape_codes(tmp_path: Path) -> None:
    tree = write_crate(tmp_path / "tree", [{"pkt_rate": 1, HOSTILE: NAME}])
    path = tree / "ro-crate-metadata.json"
    crate = path.read_text().replace('"Ada"', json.dumps(HOSTILE + NAME))
    path.write_text(crate.replace("Three stacks", json.dumps(HOSTILE + NAME)[1:-1]))
    next((tree / "scripts/a").glob("*.status")).write_text(HOSTILE)
    odd = tree / "files/a" / f"x\x1b[2J{os.fsdecode(bytes([255]))}_run00.txt"
    odd.touch()
    run = tailtap("import", tree, "--into", tmp_path / "into")
    assert run.returncode == 0, run
    assert "\x1b" not in run.stdout + run.stderr and "\u202e" not in run.stdout
    assert r"\x1b[2J" in run.stdout and r"\x1b[2J" in run.stderr and NAME in run.stdout
    told = json.loads(tailtap("import", tree, "--into", tmp_path / "into", "--json").stdout)
    assert told["experiments"][0]["name"] == HOSTILE + NAME


def test_an_argument_that_is_no_utf8_is_told(tmp_path: Path) -> None:
    for words in (["evaluate", b"\xff"], ["run", b"\xff.yaml"], ["verdict", b"\xff"], [b"\xff"]):
        run = subprocess.run(
            [TAILTAP, *words], capture_output=True, check=False, timeout=60, cwd=tmp_path
        )
        assert run.returncode == 2 and run.stderr.count(b"\n") == 1, run
        assert b"Traceback" not in run.stderr and b"udcff" in run.stderr, run


def test_the_page_escapes_what_files_say(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "made", packets=3_000)
    folder = folder.rename(tmp_path / os.fsdecode(b"x\xff"))
    mark = "</script><script>alert(1)</script>{{ 7 * 7 }}$x^"
    for path in folder.glob("runs/*/run.json"):
        record = json.loads(path.read_text())
        record["name"] = mark
        record["variables"] = {mark: mark}
        path.write_text(json.dumps(record))
    run = tailtap("report", folder)
    assert run.returncode == 0, run
    page = (folder / "report/index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page


def test_what_library_code_logs_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("tailtap")
    log.addHandler(Telling())
    log.warning("%s is locked", "a\x1bb")
    assert capsys.readouterr().err == "tailtap: a\\x1bb is locked\n"

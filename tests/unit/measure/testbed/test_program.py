"""Our program as it travels: whole, the same each time, and enough for an interpreter alone."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailtap.measure.testbed import bootstrap
from tailtap.measure.testbed.ssh import Program, program

BOOTSTRAP = Path(bootstrap.__file__).read_text("utf-8")


def served(
    folder: Path, sent: bytes, run: tuple[str, ...] = ("tailtap", "--version")
) -> subprocess.CompletedProcess[bytes]:
    """What an interpreter without any packages says that is asked for a program."""
    wanted = json.dumps({"folder": str(folder), "run": list(run)}).encode() + b"\n"
    command = [sys.executable, "-I", "-S", "-c", BOOTSTRAP]
    return subprocess.run(
        command, input=wanted + sent, capture_output=True, timeout=60, check=False
    )


def packed(made: Program, checksum: str | None = None) -> bytes:
    archive, told = made.packed
    return (
        json.dumps({"bytes": len(archive), "sha256": checksum or told}).encode() + b"\n" + archive
    )


def test_the_program_arrives_once_and_runs_there(tmp_path: Path) -> None:
    ours = program()
    folder = tmp_path / "programs" / ours.identity
    first = served(folder, packed(ours))
    assert first.returncode == 0, first.stderr
    told, *said = first.stdout.decode().splitlines()
    assert json.loads(told)["there"] is False
    assert said[0].startswith("tailtap ")
    again = served(folder, b"")
    assert json.loads(again.stdout.decode().splitlines()[0])["there"] is True
    assert again.returncode == 0
    assert [path.name for path in folder.parent.iterdir()] == [ours.identity]


def test_roles_need_nothing_else(tmp_path: Path) -> None:
    ours = program()
    folder = tmp_path / ours.identity
    done = served(folder, packed(ours), ("tailtap.measure.roles.here",))
    # Its input ends at once: it may see that before it begins to serve, or as a signal.
    assert done.returncode in (0, 128 + signal.SIGTERM)
    assert done.stderr == b""


@pytest.mark.parametrize("damage", ["checksum", "cut"])
def test_what_does_not_arrive_whole_is_not_kept(tmp_path: Path, damage: str) -> None:
    made = Program({"a": Path(__file__)})
    sent = packed(made, hashlib.sha256(b"other").hexdigest() if damage == "checksum" else None)
    done = served(tmp_path / "programs/x", sent if damage == "checksum" else sent[:-1])
    assert done.returncode == 1
    said = "did not arrive whole" if damage == "checksum" else "who asks has gone"
    assert said in done.stderr.decode()
    assert not list(tmp_path.glob("programs/*"))


def test_the_identity_follows_names_and_contents(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    first = Program({"a": one})
    assert first.identity == Program({"a": one}).identity
    assert first.packed == Program({"a": one}).packed
    assert len({first.identity, Program({"b": one}).identity, Program({"a": other}).identity}) == 3

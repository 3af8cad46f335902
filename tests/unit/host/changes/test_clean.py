"""What `tailtap clean` takes for its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from children import speaking

from tailtap.host.changes.clean import Leftover, find, remove, unresolved
from tailtap.host.changes.journal import Journal, is_ours, read_all
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.systemd import Folder


@pytest.mark.parametrize(
    "name",
    [
        "tt-",
        "tt-foo",
        "tt-test-1-0",
        "tt-0a1b2c",
        "tt-0a1b2c-",
        "tt-0A1B2C-gen",
        "tt-0a1b2-gen",
        "tt-0a1b2c3-gen",
        "tt-0a1b2c-gen\n",
        "my-tt-0a1b2c-gen",
        "tt-0a1b2c-../x",
        "",
    ],
)
def test_names_of_others(name: str) -> None:
    assert not is_ours(name)


def test_a_journal_gives_such_names(tmp_path: Path) -> None:
    assert is_ours(f"tt-{Journal.create(tmp_path).identity}-dut")


def test_of_folders_in_a_journal_only_ours_are_removed(tmp_path: Path) -> None:
    ours, foreign = tmp_path / "tt-0a1b2c-forwarder", tmp_path / "tt-foo"
    for folder in (ours, foreign):
        folder.mkdir()
    for path in (ours, foreign, tmp_path, Path("/"), tmp_path / "tt-0a1b2c-gone"):
        folder_of_ours = Folder(str(path))
        assert folder_of_ours.pending(False) == (path == ours)
        folder_of_ours.undo(False)
    assert [path.name for path in tmp_path.iterdir()] == ["tt-foo"]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a machine with two settings."""
    (tmp_path / "proc/sys").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "proc/sys" / name).write_text("0")
    return tmp_path


DYING = """
import os, signal, sys
from tailtap.host.changes.systemd import Folder
from tailtap.host.changes.journal import Journal
from tailtap.host.changes.kernel_values import KernelValue
from pathlib import Path

root = sys.argv[1]
journal = Journal.create(Path(root, "state"))
for change in (KernelValue(["/proc/sys/one"], "1", root=root),
               Folder(root + "/tt-0a1b2c-forwarder"),
               KernelValue(["/proc/sys/one"], "2", root=root),
               KernelValue(["/proc/sys/two"], "1", root=root)):
    journal.enter(change)
    change.apply()
print(os.getpid(), flush=True)
if sys.argv[2:] == ["live"]:
    sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def values(machine: Path) -> list[str]:
    return [(machine / "proc/sys" / name).read_text() for name in ("one", "two")]


def killed(machine: Path) -> int:
    """The process id of a measurement that was killed after its changes."""
    command = [sys.executable, "-c", DYING, str(machine)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)


def of(machine: Path) -> list[Leftover]:
    """What is left of the journals of this machine; the real one may have leftovers as well."""
    return [item for item in find(machine / "state") if item.journal is not None]


def test_a_journal_is_read_backwards(machine: Path) -> None:
    pid = killed(machine)
    assert values(machine) == ["2", "1"]
    found = of(machine)
    assert [item.kind for item in found] == ["value", "value", "folder", "value", "journal"]
    assert {(item.owner, item.pid) for item in found} == {("dead", pid)}
    assert remove(found, machine / "state") == []
    assert values(machine) == ["0", "0"]
    assert not (machine / "tt-0a1b2c-forwarder").exists()
    assert of(machine) == []
    # What another process has cleaned in the meantime is not undone again.
    (machine / "proc/sys/one").write_text("2")
    assert remove(found, machine / "state") == []
    assert values(machine) == ["2", "0"]


def test_what_runs_is_in_use(machine: Path) -> None:
    command = [sys.executable, "-c", DYING, str(machine), "live"]
    with speaking(command, stdin=subprocess.PIPE) as running:
        assert {(item.owner, item.pid) for item in of(machine)} == {("alive", running.pid)}
    assert {item.owner for item in of(machine)} == {"dead"}


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        pytest.param(('"kind": "folder"', '"kind": "attic"'), "attic ", id="an unknown kind"),
        pytest.param(('{"path":', '{"colour": "red", "path":'), "folder ", id="a field of it"),
        pytest.param(('"kind": "folder"', '"hue": 1, "kind": "folder"'), "folder ", id="a field"),
        pytest.param(
            ('{"entry": {"number": 2,', '{entry: {"number": 2,'), "line 3", id="a damaged line"
        ),
    ],
)
def test_what_is_not_understood_stays_until_somebody_understands_it(
    machine: Path, caplog: pytest.LogCaptureFixture, theirs: tuple[str, str], named: str
) -> None:
    known, unknown = theirs
    killed(machine)
    [path] = (machine / "state").glob("*.journal")
    whole = path.read_text()
    path.write_text(whole.replace(known, unknown))
    assert path.read_text() != whole
    for _ in range(2):
        [left] = remove(of(machine), machine / "state")
        assert left.startswith(f"{path} says what this tailtap cannot undo ({named}")
        assert "\n" not in left
    assert values(machine) == ["0", "0"]  # all else is undone
    # Later commands that change the machine name it, once each.
    caplog.clear()
    for _ in range(2):
        Journal.create(machine / "state").close()
    assert caplog.messages == [left]
    path.write_text(path.read_text().replace(unknown, known))
    assert remove(of(machine), machine / "state") == []
    assert not (machine / "tt-0a1b2c-forwarder").exists()
    assert of(machine) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"old": 5},
        {"old": {"/proc/sys/a": ["1"]}},
        {"applied": [1]},
        {"kind": ["value"]},
        {"name": {}},
        {"claims": 7},
        {"resource": {"paths": 3, "value": "1"}},
        {"resource": {"paths": [""], "value": "1"}},
        {"resource": {"paths": ["/\0"], "value": "1"}},
        {"resource": {"paths": ["/x"], "value": {}}},
        {"resource": {"paths": ["/x"], "value": "1", "namespace": ""}},
        {"resource": {"paths": ["/x"], "value": "1", "namespace": "../../x"}},
        {"resource": {"paths": ["/x"], "value": "1", "colour": "red"}},
    ],
    ids=str,
)
def test_a_damaged_entry_stays_and_the_others_are_found(
    tmp_path: Path, damage: dict[str, Any]
) -> None:
    folder = tmp_path / "tt-0a1b2c-forwarder"
    folder.mkdir()
    sound = {"number": 1, "kind": "folder", "name": str(folder), "resource": {"path": str(folder)},
             "old": False, "new": True}  # fmt: skip
    other = {"number": 2, "kind": "value", "name": "/proc/sys/a", "old": {}, "new": {},
             "resource": {"paths": ["/proc/sys/a"], "value": "1"}}  # fmt: skip
    lines = ({"entry": sound}, {"entry": {**other, **damage}})
    path = tmp_path / "1.journal"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {item.name: item.stays for item in find(tmp_path) if item.journal == path}
    assert found[str(folder)] is None
    [record] = read_all(tmp_path)
    assert f"{path} says what this tailtap cannot undo" in str(unresolved(record))


@pytest.mark.parametrize("path", ["/" + "a" * 300, "/" + "a" * 5000])
def test_a_name_that_no_file_can_have_is_not_there(path: str) -> None:
    assert KernelValue([path], "1").read() == {}
    assert not Folder(path).read()


@pytest.mark.parametrize("damage", [{"order": "3"}, {"order": None}, {"task": 5}])
def test_beside_a_damaged_journal_another_is_made(tmp_path: Path, damage: dict[str, Any]) -> None:
    header = {"owner": {"pid": 1, "started": 1}, "boot_id": "b", "order": 3, **damage}
    (tmp_path / "1.journal").write_text(json.dumps(header) + "\n")
    identity = Journal.create(tmp_path).identity
    orders = {record.path.stem: record.order for record in read_all(tmp_path)}
    assert orders[identity] > 0
    [damaged] = [record for record in read_all(tmp_path) if record.path.stem == "1"]
    assert damaged.unread == ("line 1",)

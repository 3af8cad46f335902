"""The journal: what it says after a crash or a reboot, and whose changes are whose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.changes.journal import Journal, Owner, locked, mark_undone, read_all
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.systemd import Folder


@pytest.fixture
def note(tmp_path: Path) -> KernelValue:
    """A file, for which only one measurement is responsible at a time."""
    (tmp_path / "note").write_text("theirs")
    return KernelValue(["/note"], "ours", root=str(tmp_path))


def written(note: KernelValue) -> Path:
    """The file itself."""
    return Path(note.root, "note")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def dead() -> Iterator[Owner]:
    """A process that has just ended."""
    with subprocess.Popen(["sleep", "30"]) as child:
        owner = Owner.of(child.pid)
        child.kill()
    yield owner


def owned_by(owner: Owner, journal: Journal, state: Path) -> Path:
    """The journal's file, once it says that it is `owner`'s."""
    path = state / f"{journal.identity}.journal"
    header, *lines = path.read_text().splitlines()
    content = {**json.loads(header), "owner": {"pid": owner.pid, "started": owner.started}}
    path.write_text("".join(f"{line}\n" for line in (json.dumps(content), *lines)))
    return path


def test_a_change_is_entered_before_it_is_made(state: Path, note: KernelValue) -> None:
    journal = Journal.create(state)
    entered = journal.enter(note)
    assert written(note).read_text() == "theirs"
    [record] = read_all(state)
    assert record.entries == (entered,)
    assert (entered.kind, entered.name, entered.old, entered.new) == (
        "value", "/note", {"/note": "theirs"}, {"/note": "ours"},
    )  # fmt: skip
    assert KernelValue.parse(entered.resource) == note
    assert record.owner is not None
    assert record.owner.pid == os.getpid()
    assert record.alive


def test_what_is_undone_is_marked_and_the_file_goes_last(state: Path, note: KernelValue) -> None:
    journal = Journal.create(state)
    with journal.held(note):
        journal.close()
        assert len(list(read_all(state))) == 1
    assert written(note).read_text() == "theirs"
    [record] = read_all(state)
    assert record.entries == ()
    journal.close()
    assert list(read_all(state)) == []
    assert [path.name for path in state.iterdir()] == ["lock"]


def test_what_somebody_else_changed_is_left_and_told(state: Path, note: KernelValue) -> None:
    journal = Journal.create(state)
    with journal.held(note):
        written(note).write_text("other")
    assert written(note).read_text() == "other"
    assert journal.left == [
        "somebody else changed /note (other, before tailtap theirs): it is left as it is"
    ]


def test_two_measurements_do_not_change_the_same(state: Path, note: KernelValue) -> None:
    first, second = Journal.create(state), Journal.create(state)
    with first.held(note):
        with pytest.raises(MachineError) as caught, second.held(note):
            pass
        assert str(caught.value) == (
            f"value /note is in use by another tailtap, process {os.getpid()}: wait until it "
            "has ended"
        )
        assert written(note).read_text() == "ours"
        with first.held(note):  # the same measurement may
            pass
    with second.held(note):
        assert written(note).read_text() == "ours"
    assert written(note).read_text() == "theirs"


def test_what_a_dead_process_left_is_cleaned_first(
    state: Path, note: KernelValue, dead: Owner
) -> None:
    journal = Journal.create(state)
    entry = journal.enter(note)
    path = owned_by(dead, journal, state)
    other = Journal.create(state)
    with pytest.raises(MachineError) as caught, other.held(note):
        pass
    assert str(caught.value).endswith(
        f"left changed by process {dead.pid}, which has ended: `sudo tailtap clean` puts it back"
    )
    mark_undone(path, entry.number)
    with other.held(note):
        pass


def test_after_a_reboot_only_what_survives_one_is_left(
    state: Path, note: KernelValue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(state)
    folder = Folder(str(tmp_path / "tt-0a1b2c-forwarder"))
    with journal.held(note), journal.held(folder):
        [record] = read_all(state)
        assert [entry.kind for entry in record.entries] == ["value", "folder"]
        monkeypatch.setattr("tailtap.host.changes.journal.boot_id", lambda: "another")
        [record] = read_all(state)
        assert [entry.kind for entry in record.entries] == ["folder"]
        # Its process has the same number and start time, and is another one.
        assert record.rebooted
        assert not record.alive
        # Nor is anything of it in use any more.
        written(note).write_text("theirs")
        with Journal.create(state).held(note):
            pass


def test_the_next_folder_is_taken_where_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("")
    folders = (tmp_path / "blocked/journals", tmp_path / "state")
    journal = Journal.create(*folders)
    assert [record.path.parent for record in read_all(*folders)] == [tmp_path / "state"]
    journal.close()


FULL = """
import resource, sys
from pathlib import Path
from tailtap.base.errors import MachineError
from tailtap.host.changes.systemd import Folder
from tailtap.host.changes.journal import Journal
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
state = Path(sys.argv[1])
journal = Journal.create(state)
[path] = state.glob("*.journal")
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, resource.RLIM_INFINITY))
try:
    journal.enter(Folder("/tt-0a1b2c-lost"))
except MachineError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.enter(Folder("/tt-0a1b2c-next"))
"""


def test_a_line_without_room_does_not_hide_the_next_one(state: Path) -> None:
    """The file may grow by 20 bytes only: so much of the line is written."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(state)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("cannot write the journal"), done.stderr
    [record] = read_all(state)
    assert [entry.name for entry in record.entries] == ["/tt-0a1b2c-next"]
    assert record.unread == ()


def test_a_line_cut_short_by_a_crash_is_skipped_and_hides_none(
    state: Path, note: KernelValue
) -> None:
    journal = Journal.create(state)
    entry = journal.enter(note)
    path = state / f"{journal.identity}.journal"
    with path.open("a") as file:
        file.write('{"entry": {"number": 2, "kind": "names')
    [record] = read_all(state)
    assert (record.entries, record.unread) == ((entry,), ())
    mark_undone(path, entry.number)
    [record] = read_all(state)
    assert (record.entries, record.unread) == ((), ())


def test_nobody_else_reads_journals_or_holds_their_lock(state: Path) -> None:
    state.mkdir(mode=0o755)
    (state / "lock").touch(0o644)
    Journal.create(state)
    modes = {path.name: path.stat().st_mode & 0o777 for path in state.iterdir()}
    assert state.stat().st_mode & 0o777 == 0o700
    assert modes.pop("lock") == 0o600
    assert list(modes.values()) == [0o600]


def test_what_another_user_has_put_there_is_refused(tmp_path: Path, state: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    state.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineError, match="it is a link, not a folder"):
        Journal.create(state)
    state.unlink()
    state.mkdir()
    (state / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(MachineError, match="cannot write the journal"):
        Journal.create(state)
    assert not (tmp_path / "target").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(state: Path) -> None:
    state.mkdir()
    os.chown(state, 65534, 65534)
    with pytest.raises(MachineError, match="it belongs to another user"):
        Journal.create(state)


def test_a_wait_for_the_lock_says_for_whom(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    Journal.create(state)
    holder = "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, 2); "
    holder += "print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holder, str(state / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        end = threading.Timer(2.0, child.stdin.close)
        end.start()
        with locked(state):
            end.join()
    [said] = caplog.messages
    assert said.startswith(
        f"{state / 'lock'} is locked by process {child.pid} ({sys.executable} -c import"
    )
    assert said.endswith("waiting for it to end")


def test_a_damaged_journal_has_no_owner(tmp_path: Path) -> None:
    (tmp_path / "x.journal").write_bytes(
        b'\xff\x00 nonsense\n[1]\n{"entry": {"number": 1, "colour": "red"}}\n{"undone": 7}\n'
    )
    [record] = read_all(tmp_path)
    assert record.owner is None
    assert not record.alive
    assert record.entries == ()
    assert record.unread == ("None None", "line 1", "line 2")


def test_an_owner_that_ended_is_dead_even_if_its_number_lives_on() -> None:
    me = Owner.of(os.getpid())
    assert me.alive
    assert not Owner(me.pid, me.started - 1).alive
    with subprocess.Popen(["sleep", "30"]) as child:
        owner = Owner.of(child.pid)
        assert owner.alive
        child.kill()
        # A zombie until it is waited for: it can no longer clean up, so it owns nothing.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not owner.alive
    assert not owner.alive


@pytest.mark.parametrize("fails", [False, True])
def test_many_changes_at_once_are_undone_newest_first(
    tmp_path: Path, state: Path, fails: bool
) -> None:
    """Also where one of them fails, and where one is of what was so before."""
    files = {"one": "0", "two": "1"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    wanted = [("one", "1"), ("two", "1"), ("folder" if fails else "one", "2")]
    many = [KernelValue([f"/{name}"], value, root=str(tmp_path)) for name, value in wanted]
    journal = Journal.create(state)
    refused = pytest.raises(MachineError, match="Is a directory") if fails else nullcontext()
    with refused, journal.made_together(many):
        [record] = read_all(state)
        assert [entry.name for entry in record.entries] == ["/one", "/two", "/one"]
        assert (tmp_path / "one").read_text() == "2"
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert journal.left == []
    [record] = read_all(state)
    assert record.entries == ()
    journal.close()
    assert list(read_all(state)) == []

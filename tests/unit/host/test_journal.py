"""The journal: what it says after a crash, and whose objects are whose."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tailtap.errors import MachineError
from tailtap.host.journal import Entry, Journal, Owner, read_all


def test_entries_are_on_the_disk_before_the_object_exists(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path)
    journal.add("namespace", "tt-1-gen")
    journal.add("namespace", "tt-1-dut")
    [record] = read_all(tmp_path)
    assert record.entries == (Entry("namespace", "tt-1-gen"), Entry("namespace", "tt-1-dut"))
    assert record.owner is not None
    assert record.owner.pid == os.getpid()
    assert record.owner.alive
    journal.close()
    assert list(read_all(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_every_journal_has_its_own_identity(tmp_path: Path) -> None:
    journals = [Journal.create(tmp_path) for _ in range(20)]
    assert len({journal.identity for journal in journals}) == 20
    assert len(list(read_all(tmp_path))) == 20


def test_a_line_cut_short_by_a_crash_is_skipped(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path)
    journal.add("namespace", "tt-1-gen")
    path = tmp_path / f"{journal.identity}.journal"
    with path.open("a") as file:
        file.write('{"kind": "names')
    [record] = read_all(tmp_path)
    assert record.entries == (Entry("namespace", "tt-1-gen"),)


def test_a_damaged_journal_has_no_owner(tmp_path: Path) -> None:
    (tmp_path / "x.journal").write_bytes(b"\xff\x00 nonsense\n[1]\n")
    [record] = read_all(tmp_path)
    assert record.owner is None
    assert record.entries == ()


def test_an_owner_that_ended_is_dead_even_if_its_number_lives_on() -> None:
    me = Owner.this_process()
    assert me.alive
    assert not Owner(me.pid, me.started - 1).alive
    with subprocess.Popen(["sleep", "30"]) as child:
        stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        owner = Owner(child.pid, int(stat[19]))
        assert owner.alive
        child.kill()
        # A zombie until it is waited for: it can no longer clean up, so it owns nothing.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not owner.alive
    assert not owner.alive


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(MachineError, match="cannot write the journal"):
        Journal.create(blocked / "state")

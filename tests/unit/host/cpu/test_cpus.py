"""Which CPUs a machine has, and which of them we may use."""

from __future__ import annotations

import os
from pathlib import Path

from tailtap.host.cpu.cpus import is_offline, usable


def test_what_isolation_keeps_free_may_be_asked_for() -> None:
    before = os.sched_getaffinity(0)
    try:
        # As for a process on a machine whose other CPUs are isolated.
        os.sched_setaffinity(0, {min(before)})
        assert usable() >= before
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_a_cpu_that_is_listed_but_not_allowed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "online").write_text("0-8000\n")
    assert 8000 not in usable(tmp_path)


def test_a_cpu_that_is_off(tmp_path: Path) -> None:
    for cpu, state in ((1, "1"), (2, "0")):
        (tmp_path / f"cpu{cpu}").mkdir()
        (tmp_path / f"cpu{cpu}/online").write_text(state + "\n")
    assert [is_offline(cpu, tmp_path) for cpu in (0, 1, 2)] == [False, False, True]

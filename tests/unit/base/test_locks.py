"""Locks of files: who waits for whom, and who counts for nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailtap.analysis.runs.folder import locked
from tailtap.base.errors import InputError, MachineError
from tailtap.base.locks import lock
from tailtap.host.cpu import resctrl

NOBODY = 65534


@contextmanager
def held(path: Path, user: int) -> Iterator[None]:
    """Another process, of another user, holds a shared lock."""
    script = (
        "import fcntl, os, sys; os.setuid(int(sys.argv[2])); "
        "held = os.open(sys.argv[1], os.O_RDONLY); "
        "fcntl.flock(held, fcntl.LOCK_SH); print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(path), str(user)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        yield
        other.communicate("\n", timeout=30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
def test_who_may_only_read_a_folder_keeps_nobody_out(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents):  # temporary folders are private
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    with held(tmp_path, NOBODY), locked(tmp_path):
        pass
    tmp_path.chmod(0o777)  # nobody may write there now: it may be at work
    with held(tmp_path, NOBODY), pytest.raises(InputError, match="another tailtap"):
        locked(tmp_path).__enter__()


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resctrl, "WAIT_SECONDS", 0.1)
    with held(tmp_path, os.getuid()):
        with pytest.raises(MachineError, match=r"stays locked by process \d+ \(.*python.*end it"):
            resctrl.locked(tmp_path).__enter__()
        with pytest.raises(InputError, match="another tailtap"):
            locked(tmp_path).__enter__()
    with resctrl.locked(tmp_path), (tmp_path / "file").open("w") as file:
        assert lock(file.fileno(), tmp_path)

"""Running the `tailtap` program as a user does."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, TextIO
from unittest import mock

import pytest
from zygote import START_VARIABLES, start_variables, zygote

from tailtap.cli import main

TAILTAP = Path(sys.executable).with_name("tailtap")
Finished = subprocess.CompletedProcess[str]


def tailtap(*arguments: str | Path, timeout: float = 60, beside: int | None = None) -> Finished:
    """Runs `tailtap` with the given arguments; the caller looks at the exit status.

    `beside` is a process whose mount and network namespaces it has.
    """
    command = [str(TAILTAP), *map(str, arguments)]
    if start_variables() != START_VARIABLES:
        enter = ["nsenter", "--target", str(beside), "--mount", "--net", "--"] if beside else []
        command = [*enter, *command]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        status = zygote().call(command, out.fileno(), error.fileno(), timeout, beside=beside)
        return Finished(command, status, _said(out), _said(error))


def _said(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def in_process(*arguments: str | Path, stdout: TextIO | None = None) -> Finished:
    """The same in this process: starting one takes longer than telling what is wrong with a value.

    For many cases of one command, of which another test starts the program. What it prints goes to
    `stdout` where that is given.
    """
    command = [str(TAILTAP), *map(str, arguments)]
    out, error = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(stdout or out),
        contextlib.redirect_stderr(error),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert isinstance(end.value.code, int)  # a text would be printed, with exit status 1
    return Finished(command, end.value.code, out.getvalue(), error.getvalue())


def answer(*words: str | Path, status: int | None = 0) -> dict[str, Any]:
    """The object that a command prints in this process, which is what its schema says; any exit
    status for None.
    """
    from forms import fits

    done = in_process(*words, "--json", "--quiet")
    assert status in (None, done.returncode), done
    found: dict[str, Any] = json.loads(done.stdout)
    fits(found)
    return found


def one_line_error(run: Finished, status: int) -> str:
    """The one line on standard error of a program that ended with `status`."""
    assert run.returncode == status, run
    assert run.stderr.startswith("tailtap: ") and run.stderr.endswith("\n"), run
    assert run.stderr.count("\n") == 1, run
    return run.stderr.strip()

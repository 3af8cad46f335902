"""Running the `tailtap` program as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TAILTAP = Path(sys.executable).with_name("tailtap")
Finished = subprocess.CompletedProcess[str]


def tailtap(*arguments: str | Path, timeout: float = 60) -> Finished:
    """Runs `tailtap` with the given arguments; the caller looks at the exit status."""
    command = [str(TAILTAP), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout)


def one_line_error(run: Finished, status: int) -> str:
    """The one line on standard error of a program that ended with `status`."""
    assert run.returncode == status, run
    assert run.stderr.startswith("tailtap: ") and run.stderr.endswith("\n"), run
    assert run.stderr.count("\n") == 1, run
    return run.stderr.strip()

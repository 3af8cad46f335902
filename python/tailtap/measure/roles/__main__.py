"""``python -m tailtap.measure.roles``: this machine as a station, on standard input and output."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tailtap.base.bugs import ending
from tailtap.host.changes.journal import Journal
from tailtap.host.changes.processes import Folder
from tailtap.measure.roles.here import Here
from tailtap.measure.roles.role import PLACE
from tailtap.remote.serving import serve


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that `tailtap clean` finds when this process is killed."""
    journal = Journal.create()
    try:
        folder = PLACE / f"tt-{journal.identity}-roles"
        with journal.held(Folder(str(folder))):
            yield folder
    finally:
        journal.close()


def main() -> None:
    """Serve until the input ends. What is printed by mistake goes to standard error."""
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(Here(), sys.stdin.fileno(), answers, own_folder)
    except Exception as error:
        lines, status = ending(error)
        for line in lines:
            print(line, file=sys.stderr)
        sys.exit(status)


if __name__ == "__main__":
    main()

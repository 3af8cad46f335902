"""``python -m tailtap.roles``: this machine as a station, on standard input and output."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tailtap.errors import TailtapError
from tailtap.machine.folders import Folder
from tailtap.machine.journal import Journal
from tailtap.roles.here import Here
from tailtap.stations.serving import serve

PLACE = Path("/var/tmp")
"""Where roles leave their files until these are fetched: stamps are too large for memory."""


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
    except TailtapError as error:
        print(f"tailtap: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

"""Databases of experiments, as new as their run folders when a command ends."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from tailtap.base.errors import Interrupted, MachineError, TailtapError

log = logging.getLogger(__name__)


@contextlib.contextmanager
def kept_current(folder: Path) -> Iterator[None]:
    """Refresh the databases of what the block makes in `folder`, also after an interruption.

    One that cannot be written costs no answer: it is made anew by whoever refreshes it next.
    """
    try:
        yield
    except Interrupted:
        with contextlib.suppress(TailtapError):
            _refresh_all(folder)
        raise
    try:
        _refresh_all(folder)
    except MachineError as error:
        log.warning("%s", error)


def _refresh_all(folder: Path) -> None:
    """Those of an experiment, and of the runs at the rates that a search found."""
    from tailtap.results.database import refresh  # DuckDB, which no measurement needs to begin

    for home in (folder, folder / "latency"):
        if (home / "runs").is_dir():
            refresh(home)

"""The seam of exporters, and how their files reach the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tailtap.check import Check
from tailtap.errors import MachineError
from tailtap.results.run import Run


class Exporter(Protocol):
    """Writes finished runs in one format."""

    summary: str
    """What it writes, in one sentence."""

    documentation: str
    """What its users should know, as a paragraph of Markdown."""

    address: bool
    """Whether the destination is the address of a database, not a folder."""

    holds_packets: bool
    """Whether the format has a place for every packet."""

    def diagnose(self) -> Iterator[Check]:
        """The checks of `tailtap doctor`: find out whether it works here."""
        ...

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write `runs` to `destination`; return the files or tables written, in order.

        With `packets`, where the format holds them, every matched packet is written too.

        Raises `InputError` when an evaluation is damaged, `MachineError` when the destination
        cannot be written.
        """


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A draft of the file `path`, which replaces it when the block ends without an error.

    The folder is made if missing. Raises `MachineError` when it cannot be written.
    """
    draft = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        draft.replace(path)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise MachineError(
            f"{path}: cannot write: {reason}; make room or choose another --out"
        ) from error
    finally:
        if path.parent.is_dir():
            draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> str:
    """Write `text` to `path`, whole or not at all; return the path."""
    with whole(path) as draft:
        draft.write_text(text, "utf-8")
    return str(path)

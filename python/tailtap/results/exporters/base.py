"""The seam of exporters, and how their files reach the disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Protocol

from tailtap.analysis.runs.run import Run
from tailtap.base.errors import Check
from tailtap.base.files import drafted, make_folder
from tailtap.base.writing import writing


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


class Common:
    """What exporters have in common: files in a folder, for which at most one package is needed."""

    name: str
    """What it is called, and what the names of its files end with where a run has one file."""
    address = False
    holds_packets = False
    package = ""
    """The package that it needs besides ours."""
    install = ""

    def diagnose(self) -> Iterator[Check]:
        """Look for the package that it needs."""
        area, name = "exporters", self.name
        if self.package and find_spec(self.package) is None:
            told = f"the package {self.package} is missing"
            yield Check(area, name, "missing", told, f"pip install {self.install}")
        else:
            told = f"{self.package} is installed" if self.package else "needs nothing of its own"
            yield Check(area, name, "ok", told)


class OneFile(Common, ABC):
    """A text for each run."""

    @abstractmethod
    def text(self, run: Run) -> str:
        """What its file holds."""

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write a file for each run into the folder `destination`."""
        return [
            write_text(Path(destination), f"{run.slug}.{self.name}", self.text(run)) for run in runs
        ]


@contextmanager
def whole(destination: Path, name: str) -> Iterator[BinaryIO]:
    """A draft of the file `name` in the folder `destination`, which it replaces when the block
    ends without an error.

    Folders are made if missing. Raises `MachineError` when it cannot be written.
    """
    path = destination / name
    with writing(path):
        make_folder(path.parent, below=destination)
        with drafted(path, below=destination) as draft:
            yield draft


def write_text(destination: Path, name: str, text: str) -> str:
    """Write `text` to the file `name`, whole or not at all; return its path."""
    with whole(destination, name) as draft:
        draft.write(text.encode())
    return str(destination / name)

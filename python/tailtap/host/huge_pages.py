"""Huge pages: reserved for a run and given back, entered in the journal before.

The journal knows them by their size and the numbers that the kernel had before and was asked for:
``2048 0 128``, and ``2048 0 128 1`` for those of NUMA node 1. What is given back is the difference,
so that reservations of others stay.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.host.journal import Journal

ROOT = Path("/")
_FOLDER = "sys/kernel/mm/hugepages"
_NODE = "sys/devices/system/node/node{}/hugepages"


@dataclass(frozen=True)
class Pages:
    """Huge pages of one size, in KiB, on this machine or on one of its NUMA nodes."""

    size_kib: int
    root: Path = ROOT
    node: int | None = None

    @classmethod
    def smallest(cls, root: Path = ROOT, node: int | None = None) -> Pages | None:
        """The smallest size that the kernel has (2 MiB on most machines); None without any."""
        names = (re.fullmatch(r"hugepages-(\d+)kB", path.name) for path in _entries(root))
        sizes = [int(match[1]) for match in names if match]
        return cls(min(sizes), root, node) if sizes else None

    @property
    def total(self) -> int:
        """How many there are."""
        return self._read("nr_hugepages")

    @property
    def free(self) -> int:
        """How many nobody uses or has been promised."""
        return self._read("free_hugepages") - self._read("resv_hugepages")

    def resize(self, total: int) -> int:
        """Ask for `total` pages; how many there are then, which may be fewer.

        Raises `MachineError` when it cannot be asked.
        """
        path = self._path("nr_hugepages")
        try:
            path.write_text(str(total), encoding="ascii")
        except OSError as error:
            raise MachineError(
                f"{path}: cannot reserve huge pages: {error.strerror}: run it with sudo"
            ) from error
        return self.total

    def _read(self, name: str) -> int:
        try:
            return int(self._path(name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def _path(self, name: str) -> Path:
        folder = _FOLDER if self.node is None else _NODE.format(self.node)
        return self.root / folder / f"hugepages-{self.size_kib}kB" / name


def needed(size: int, pages: Pages) -> int:
    """How many pages hold `size` bytes."""
    return -(-size // (pages.size_kib * 1024))


@contextlib.contextmanager
def reserved(
    size: int,
    journal: Journal,
    pages: Pages | None = None,
    *,
    keys: str = "dut.options",
    node: int | None = None,
) -> Iterator[Pages]:
    """Huge pages for `size` bytes, beyond those that are free already; given back at the end.

    `keys` is where the experiment says ``memory`` and ``huge_pages``. Raises `MachineError` when
    the kernel has none or finds too few.
    """
    pages = pages or Pages.smallest(node=node)
    missing = require_possible(size, pages, keys=keys)
    assert pages is not None  # or else it would have been said
    count, before = needed(size, pages), pages.total
    name = f"{pages.size_kib} {before} {before + missing}"
    name += "" if pages.node is None else f" {pages.node}"
    if missing:
        journal.add("huge-pages", name)
    try:
        if missing and pages.resize(before + missing) < before + missing:
            raise MachineError(_too_few(count, pages, keys))
        yield pages
    finally:
        if missing:
            give_back(name, pages.root)


def require_possible(size: int, pages: Pages | None, *, keys: str = "dut.options") -> int:
    """How many pages must be reserved to have `size` bytes, beyond those that are free.

    Raises `MachineError` when the kernel has none or has no memory for so many.
    """
    if pages is None:
        raise MachineError("this kernel has no huge pages (CONFIG_HUGETLBFS)")
    count = needed(size, pages)
    missing = max(0, count - pages.free)
    # Asking for more would take all memory that others could have had, and then fail.
    if missing * pages.size_kib > _available_kib(pages.root):
        raise MachineError(_too_few(count, pages, keys))
    return missing


def _too_few(count: int, pages: Pages, keys: str) -> str:
    return (
        f"{count} huge pages of {pages.size_kib} KiB are needed and the kernel found {pages.free}: "
        f"free memory, reserve them at boot (hugepages={count}), lower {keys}.memory, or say "
        f"{keys}.huge_pages: false"
    )


def _available_kib(root: Path) -> int:
    text = (root / "proc/meminfo").read_text(encoding="ascii")
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.M)
    return int(match[1]) if match else 0


def give_back(name: str, root: Path = ROOT) -> None:
    """Give back the reservation that the journal calls `name`, once: see `HugePages.existing`."""
    pages, before, after = _parse(name, root)
    if pages.total > before:
        pages.resize(max(before, pages.total - (after - before)))


def _parse(name: str, root: Path) -> tuple[Pages, int, int]:
    """The pages of an entry in the journal, how many there were, and how many were asked for."""
    size, before, after, *node = map(int, name.split())
    return Pages(size, root, node[0] if node else None), before, after


class HugePages:
    """Reservations of huge pages, for ``tailtap clean``."""

    def __init__(self, root: Path = ROOT) -> None:
        """Those of the machine whose file systems are below `root`."""
        self._root = root

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those in a journal of which there are still more than before."""
        found: list[str] = []
        for name in entered:
            pages, before, _ = _parse(name, self._root)
            if pages.total > before:
                found.append(name)
        return found

    def remove(self, name: str) -> None:
        """Give them back."""
        give_back(name, self._root)


def _entries(root: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list((root / _FOLDER).iterdir())
    return []

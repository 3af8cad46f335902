"""Huge pages: reserved for a run, and given back.

What is given back is the difference between the numbers of pages before and after, so that
reservations of others stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import set_value
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.facts import machine as facts

ROOT = Path("/")
TRIES = 10
"""How often pages that stayed are asked to go, each time while programs may give back others."""
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
        paths = facts.entries(root / _FOLDER)
        names = (re.fullmatch(r"hugepages-(\d+)kB", path.name) for path in paths)
        sizes = [int(match[1]) for match in names if match]
        return cls(min(sizes), root, node) if sizes else None

    @property
    def total(self) -> int:
        """How many there are, without those that go as soon as a program ends that has them."""
        return self._read("nr_hugepages") - self._surplus

    @property
    def free(self) -> int:
        """How many nobody uses or has been promised."""
        return self._read("free_hugepages") - self._read("resv_hugepages")

    def resize(self, total: int) -> int:
        """Ask for `total` pages; how many there are then, which may be fewer.

        Raises `MachineError` when it cannot be asked.

        When there are to be fewer, the kernel frees those that are free, and then calls the rest
        surplus: these go when the programs end that use them. It lets go of its lock in between
        (`set_max_huge_pages()` in mm/hugetlb.c). What a program gives back just then is free and
        surplus, and would stay for ever. Counted as wanted once more, it can be freed.
        """
        before = self._surplus
        self._write(total)
        for _ in range(TRIES):
            stray = min(self.free, self._surplus - before)
            if stray <= 0:
                break
            self._write(total + stray)
            self._write(total)
        return self.total

    @property
    def _surplus(self) -> int:
        return self._read("surplus_hugepages")

    def _write(self, total: int) -> None:
        path = self._path("nr_hugepages")
        try:
            set_value(path, str(total))
        except OSError as error:
            raise MachineError(f"cannot reserve huge pages: {error.strerror}: run it with sudo").at(
                path
            ) from error

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


def reservation(
    size: int, pages: Pages | None = None, *, keys: str = "dut.options", node: int | None = None
) -> Reservation:
    """The change by which there are huge pages for `size` bytes, beyond those that are free.

    `keys` is where the experiment says ``memory`` and ``huge_pages``. Raises `MachineError` when
    the kernel has none, or no memory for so many.
    """
    pages = pages or Pages.smallest(node=node)
    require_possible(size, pages, keys=keys)
    assert pages is not None  # or else it would have been said
    return Reservation(pages.size_kib, size, pages.node, str(pages.root), keys)


def require_possible(size: int, pages: Pages | None, *, keys: str = "dut.options") -> int:
    """How many pages must be reserved to have `size` bytes, beyond those that are free.

    Raises `MachineError` when the kernel has none or has no memory for so many.
    """
    if pages is None:
        raise MachineError("this kernel has no huge pages (CONFIG_HUGETLBFS)")
    count = needed(size, pages)
    missing = max(0, count - pages.free)
    # Asking for more would take all memory that others could have had, and then fail.
    if missing * pages.size_kib * 1024 > (facts.memory("MemAvailable", pages.root) or 0):
        raise MachineError(_too_few(count, pages, keys))
    return missing


def _too_few(count: int, pages: Pages, keys: str) -> str:
    without = f"say {keys}.huge_pages: false" if keys.startswith("dut") else "leave it out"
    return (
        f"{count} huge pages of {pages.size_kib} KiB are needed and the kernel found {pages.free}: "
        f"free memory, reserve them at boot (hugepages={count}), lower {keys}.memory, or "
        f"{without}"
    )


@dataclass(frozen=True)
class Reservation(Resource):
    """Huge pages of one size for so many bytes, beyond those that are free.

    How many are missing is found out when the change is entered, as then nobody else's are: another
    measurement may have given back its own since this was made.
    """

    kind: ClassVar[str] = "huge-pages"

    size_kib: int
    size: int
    """The bytes that they are for."""
    node: int | None = None
    """The NUMA node that they are on; None for the whole machine."""
    root: str = "/"
    keys: str = "dut.options"
    """Where the experiment asks for them."""

    @property
    def label(self) -> str:
        where = "" if self.node is None else f" on node {self.node}"
        return f"{needed(self.size, self.pages)} of {self.size_kib} KiB{where}"

    @property
    def claims(self) -> Sequence[str]:
        return [f"huge pages of {self.size_kib} KiB"]

    @property
    def pages(self) -> Pages:
        return Pages(self.size_kib, Path(self.root), self.node)

    def read(self) -> dict[str, int]:
        """How many there are, and how many are missing. Raises `MachineError`."""
        return {"total": self.pages.total, "missing": self._missing()}

    def plan(self) -> int:
        return self.pages.total + self._missing()

    def apply(self) -> int:
        missing = self._missing()
        wanted = self.pages.total + missing
        if missing and self.pages.resize(wanted) < wanted:
            raise MachineError(_too_few(needed(self.size, self.pages), self.pages, self.keys))
        return missing

    def undo(self, old: Value, applied: Value = None) -> None:
        total = self.pages.total
        if self.pending(old, applied):
            self.pages.resize(max(old["total"], total - _added(old, applied)))

    def pending(self, old: Value, applied: Value = None) -> bool:
        return _added(old, applied) > 0 and self.pages.total > int(old["total"])

    def _missing(self) -> int:
        return require_possible(self.size, self.pages, keys=self.keys)


def _added(old: Value, applied: Value) -> int:
    """How many pages were asked for, or were to be."""
    return int(old["missing"] if applied is None else applied)

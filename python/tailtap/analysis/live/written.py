"""What of a capture is written by now: one file that grows, or a row of numbered ones.

Stamps and marks of `tailtap tap` have records of one size that begin with their time, so that any
of them is found. Of a row of pcaps only the first packet of each file is looked at.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from tailtap.analysis.evaluation.sources import Source
from tailtap.base.errors import InputError

FORMS = {b"\x89TTSTMP\n": (64, 16), b"\x89TTMARK\n": (4096, 24)}
"""Bytes of the header and of a record, by a file's first bytes; docs/reference/files.md."""
PCAP = b"\x4d\x3c\xb2\xa1"
"""The first bytes of a pcap with nanoseconds, as `tailtap tap` writes it."""
PCAP_HEADER = 24
SECOND_NS = 1_000_000_000
SUFFIXES = (".stamps", ".marks", ".pcap")
"""What the names of such files end in."""
_MAGIC_LEN = 8
_TIME = struct.Struct("<Q")
_PCAP_TIME = struct.Struct("<LL")
_NUMBER = re.compile(r"-(\d{5,})$")


@dataclass(frozen=True)
class Reading:
    """Where the packets of a stretch of time stand."""

    source: Source
    begin: int | None = None
    """The place of the first record that is wanted, in the only file."""


class Written(Protocol):
    """The capture of one side, as far as it is written."""

    def first_ns(self) -> int | None:
        """The time of the first packet; None before there is one."""
        ...

    def last_ns(self) -> int | None:
        """The time of the last packet; None before there is one."""
        ...

    def reading(self, from_ns: int, until_ns: int) -> Reading | None:
        """Where the packets between two times stand; None where no file is begun."""
        ...


class Growing:
    """One file that grows."""

    def __init__(self, path: Path) -> None:
        """The file at `path`, which need not be there yet."""
        self.path = path

    def first_ns(self) -> int | None:
        """The time of the first packet; None before there is one."""
        with _Records(self.path) as records:
            return records.time_ns(0) if records.count else None

    def last_ns(self) -> int | None:
        """The time of the last packet; None before there is one."""
        with _Records(self.path) as records:
            return records.time_ns(records.count - 1) if records.count else None

    def reading(self, from_ns: int, until_ns: int) -> Reading | None:
        """The file, from the first packet of this time on."""
        with _Records(self.path) as records:
            if not records.is_begun:
                return None
            begin = None if records.is_pcap else records.place(from_ns)
            return Reading(Source(str(self.path), (self.path,)), begin)


class Row:
    """Numbered files that follow each other, as ``tailtap tap --rotate`` writes them.

    All but the last are complete.
    """

    def __init__(self, path: Path) -> None:
        """The row of `path`, as ``--write`` names it: ``x.marks`` for ``x-00001.marks``…"""
        self.path = path
        self._first: dict[Path, int] = {}

    def files(self) -> list[Path]:
        """Those that are there, in their order."""
        found = [(number, path) for path in self.path.parent.glob(f"*{self.path.suffix}")
                 if (number := self._number(path)) is not None]  # fmt: skip
        return [path for _, path in sorted(found)]

    def first_ns(self) -> int | None:
        """The time of the first packet; None before there is one."""
        return next((first for _, first in self._begun()), None)

    def last_ns(self) -> int | None:
        """The time of the last packet; None before there is one."""
        for path in reversed(self.files()):
            if (last := Growing(path).last_ns()) is not None:
                return last
        return None

    def reading(self, from_ns: int, until_ns: int) -> Reading | None:
        """The files with packets between two times."""
        found = self.between(from_ns, until_ns)
        return Reading(Source(str(self.path), tuple(found))) if found else None

    def between(self, from_ns: int, until_ns: int) -> list[Path]:
        """The same, as paths; where no file has such, the last one that is begun."""
        begun = list(self._begun())
        ends = pairwise([*begun, (self.path, 1 << 63)])
        found = [path for (path, first), (_, end) in ends if first < until_ns and end > from_ns]
        if found or begun:
            return found or [begun[-1][0]]
        return [path for path in self.files()[-1:] if _Records.begun(path)]

    def drop(self, before_ns: int) -> list[Path]:
        """The complete files whose packets are all older, which are removed."""
        begun = list(self._begun())
        old = [path for (path, _), (_, end) in pairwise(begun) if end <= before_ns]
        for path in old:
            path.unlink(missing_ok=True)
            self._first.pop(path, None)
        return old

    def _begun(self) -> Iterator[tuple[Path, int]]:
        """The files with packets, and the time of the first of each."""
        for path in self.files():
            first = self._first.get(path)
            if first is None:
                first = Growing(path).first_ns()
            if first is not None:
                self._first[path] = first
                yield path, first

    def _number(self, path: Path) -> int | None:
        """The number of a file of this row."""
        found = _NUMBER.search(path.stem)
        if found is None or path.stem[: found.start()] != self.path.stem:
            return None
        return int(found[1])


class _Records:
    """The whole records of a file now; none where there is no file."""

    def __init__(self, path: Path) -> None:
        """Raises `InputError` for a file of another form."""
        self._path = path
        self.count, self.is_begun, self.is_pcap = 0, False, False

    def __enter__(self) -> _Records:
        """Open the file."""
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._file = -1
            return self
        magic = os.pread(self._file, _MAGIC_LEN, 0)
        self.is_pcap = magic.startswith(PCAP)
        if self.is_pcap:
            self._head = PCAP_HEADER
            bytes_ = os.fstat(self._file).st_size
            self.is_begun = bytes_ >= PCAP_HEADER
            self.count = int(bytes_ >= PCAP_HEADER + _PCAP_TIME.size)
            return self
        self._head, self._size = FORMS.get(magic, (0, 0))
        bytes_ = os.fstat(self._file).st_size
        if len(magic) == _MAGIC_LEN and not self._head:
            os.close(self._file)
            raise InputError("what is no stamp file cannot be counted as it grows").at(self._path)
        if self._head and bytes_ >= self._head:
            self.is_begun = True
            self.count = (bytes_ - self._head) // self._size
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        if self._file >= 0:
            os.close(self._file)

    @classmethod
    def begun(cls, path: Path) -> bool:
        """Whether the header of a file is there."""
        with cls(path) as records:
            return records.is_begun

    def time_ns(self, number: int) -> int:
        """The time of a record."""
        if self.is_pcap:  # of which the first one is known
            seconds, ns = _PCAP_TIME.unpack(os.pread(self._file, _PCAP_TIME.size, self._head))
            return int(seconds) * SECOND_NS + int(ns)
        at = self._head + number * self._size
        return int(_TIME.unpack(os.pread(self._file, _TIME.size, at))[0])

    def place(self, from_ns: int) -> int:
        """Where the first record of this time or a later one begins; they ascend."""
        first = bisect_left(range(self.count), from_ns, key=self.time_ns)
        return self._head + first * self._size

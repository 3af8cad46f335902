"""Which packets of which files make a side, as people say it: files, folders, pipes."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import IO, Self

from tailtap import _core
from tailtap.analysis.evaluation.values import Matching
from tailtap.base.errors import InputError, MachineError, NotRead, TailtapError
from tailtap.base.foreign import require_regular
from tailtap.base.packet_filters import Instruction, compile_filter

Path_ = str | PathLike[str]
STANDARD_INPUT = Path("-")
_AT_ONCE = 1 << 20
"""How much of a pipe is copied at a time."""
_LOOK_SECONDS = 0.2
"""How often a signal is looked for while pipes are read."""


@dataclass(frozen=True)
class Source:
    """The packets of a side."""

    name: str
    """What people are told of it."""
    files: tuple[Path, ...]
    """Files that follow each other in time; in which order, their stamps tell."""
    select: str | None = None
    """Which packets of the files: ``interface:0``, ``vlan:100``, ``from:02:00:00:00:00:01``,
    ``copy:1``; by default all."""
    filter: tuple[str, list[Instruction]] | None = None
    """What is true of its packets, in libpcap's words, and the instructions that say so."""
    way: tuple[bytes, bool] | None = None
    """A direction: how it is known, and whether it is the way back."""

    def going(self, ways: bytes, *, back: bool) -> Source:
        """The packets of one direction alone."""
        return replace(self, way=(ways, back))


def source_of(given: Path_ | Source) -> Source:
    """All packets of a file, or what is a source already."""
    return given if isinstance(given, Source) else Source(str(given), (Path(given),))


def selected(source: Source, select: str | None) -> Source:
    """The packets of a choice alone; all without one."""
    return source if select is None else replace(source, select=select)


def filtered(source: Source, words: str | None) -> Source:
    """The packets of which a filter of libpcap's is true; all without words.

    Raises `InputError` for words that libpcap does not understand, `MachineError` without libpcap.
    """
    return replace(source, filter=(words, compile_filter(words))) if words else source


def filtered_pair(
    ingress: Source, egress: Source | None, words: str | None, after: str | None
) -> list[Source]:
    """The packets of one capture, or of both, that `words` are true of.

    Of `egress` those that `after` is true of, if given.

    Raises `InputError` where there is no `egress` that `after` could be of.
    """
    if egress is not None:
        return [filtered(ingress, words), filtered(egress, words if after is None else after)]
    if after is not None:
        raise InputError("--filter-after is of the second capture: give two")
    return [filtered(ingress, words)]


def two_sides(source: Source, matching: Matching) -> tuple[Source, Source]:
    """Both sides of one capture, as its packets show them; it is read as `matching` says.

    By its interfaces, its VLANs, the hardware addresses that packets come from, or the first and
    the second copy of each packet. Raises `InputError` where these do not tell which is which.
    """
    before, after = _core.sides(source, matching)
    return replace(source, select=before), replace(source, select=after)


class Sources:
    """Opens what people give as captures; what comes through pipes is kept until the end.

    Captures are read more than once. So a pipe is copied into a file without a name in $TMPDIR, and
    all pipes are read at the same time: one program may write to several.
    """

    def __init__(self) -> None:
        """With nothing kept."""
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """Drop what was kept."""
        self._kept.close()

    def open(self, given: Sequence[Path_ | Source]) -> list[Source]:
        """The sources of files, folders, patterns and pipes, ``-`` among them.

        Raises `InputError` for what is none of these, and `MachineError` when the disk is full.
        """
        paths = [one for one in given if not isinstance(one, Source)]
        if sum(Path(one) == STANDARD_INPUT for one in paths) > 1:
            raise InputError("the standard input can be one of the captures only").at("-")
        copies = self._copy({str(one) for one in paths if is_pipe(Path(one))})
        return [
            one
            if isinstance(one, Source)
            else Source(str(one), (copies[str(one)],))
            if str(one) in copies
            else _source(Path(one))
            for one in given
        ]

    def _copy(self, pipes: Collection[str]) -> dict[str, Path]:
        """Where what comes through pipes can be read, once all have ended."""
        copying = {pipe: _Copying(Path(pipe), self._kept) for pipe in pipes}
        for one in copying.values():
            one.start()
        while any(one.is_alive() for one in copying.values()):
            for one in copying.values():
                one.join(_LOOK_SECONDS)
                # Others may wait for ever for who writes to all of them.
                if one.error is not None:
                    raise one.error
        return {pipe: one.path() for pipe, one in copying.items()}


class _Copying(Thread):
    """Copies what comes through a pipe into a file that nobody else sees."""

    def __init__(self, pipe: Path, kept: ExitStack) -> None:
        super().__init__(daemon=True, name="tt-pipe")
        self._pipe = pipe
        self._kept: IO[bytes] = kept.enter_context(_temporary())
        self.error: TailtapError | None = None

    def path(self) -> Path:
        """Where it is."""
        if self.error is not None:
            raise self.error
        return Path(f"/proc/self/fd/{self._kept.fileno()}")

    def run(self) -> None:
        """Copy until the pipe ends."""
        try:
            with self._opened() as source:
                while chunk := source.read(_AT_ONCE):
                    self._keep(chunk)
        except TailtapError as error:
            self.error = error
        except OSError as error:
            self.error = InputError(str(error.strerror)).at(self._pipe)

    def _opened(self) -> IO[bytes]:
        if self._pipe == STANDARD_INPUT:
            return os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
        return self._pipe.open("rb", buffering=0)

    def _keep(self, chunk: bytes) -> None:
        try:
            left = memoryview(chunk)
            while left:
                left = left[self._kept.write(left) :]
        except OSError as error:
            raise _unwritable(error, f"{self._pipe}: what comes through it") from error


def _temporary() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(prefix="tailtap-", buffering=0)
    except OSError as error:
        raise _unwritable(error, "what comes through a pipe") from error


def _unwritable(error: OSError, what: str) -> MachineError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    why = "the disk is full" if full else error.strerror
    return MachineError(
        f"{what} cannot be kept in {tempfile.gettempdir()} until it is read again: {why}: set "
        "TMPDIR to a folder with more room, or save the capture first and give that file"
    )


def is_pipe(path: Path) -> bool:
    """Whether what is there can be read once only: a pipe, a terminal, the standard input."""
    if path == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError(
                "the standard input is a terminal: let a program write the capture there, such as "
                "tcpdump -w - | tailtap evaluate - AFTER"
            ).at("-")
        return True
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def _source(path: Path) -> Source:
    if path.is_dir():
        return _of_folder(path)
    if not path.exists() and any(sign in str(path) for sign in "*?["):
        found = sorted(_matching(path))
        if not found:
            raise InputError("no file has such a name").at(path)
        return _of_files(path, found)
    if not path.exists():
        raise NotRead(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), "").at(path)
    return _of_files(path, [path])


def _matching(pattern: Path) -> Iterator[Path]:
    anchor = Path(pattern.anchor)
    return anchor.glob(str(pattern.relative_to(anchor)))


def _of_folder(folder: Path) -> Source:
    """The captures of a folder; hidden files are not among them."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise InputError(str(error.strerror)).at(folder) from error
    if not found:
        raise InputError("there is no capture in this folder").at(folder)
    return _of_files(folder, found)


def _of_files(name: Path, found: Sequence[Path]) -> Source:
    for path in found:
        if not path.is_file():
            raise InputError(
                "not a file: a capture of several files holds files alone; choose them by "
                "a pattern in quotes, such as 'DIR/*.pcap'"
            ).at(path)
        try:
            require_regular(path)
        except ValueError as error:
            raise InputError(str(error)).at(path) from error
        except OSError:
            continue  # whoever reads it says so
    return Source(str(name), tuple(found))

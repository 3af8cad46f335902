"""What cannot be written, in one line: what, why, and what helps against this very reason.

A full disk wants room, a read-only one does not. Libraries that write for us tell the reason in a
sentence of their own; it has the system's words in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tailtap.base.errors import InputError, NotRead, NotWritten

REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "the quota is used up: remove files, or have it raised (quota(1))",
    errno.EROFS: "the file system is read-only: mount it writable (mount -o remount,rw)",
    errno.EACCES: "run it as a user who may write there",
    errno.EPERM: "run it as a user who may write there, and see lsattr(1)",
    errno.EIO: "the disk fails: see dmesg(1)",
    errno.EFBIG: "the file is larger than is allowed: see ulimit -f",
    errno.EMFILE: "too many files are open: raise ulimit -n",
    errno.ENFILE: "too many files are open: end other programs",
    errno.ELOOP: "it is a link, which may lead anywhere: remove it",
    errno.ENOMEM: "memory is short: end other programs",
}
"""What helps, by the number of the error; errno(3)."""

_WORDS = {os.strerror(number): number for number in REMEDIES}
"""The system's words, which are all that Arrow, Matplotlib and DuckDB tell of its errors."""


def error_number(error: BaseException) -> int | None:
    """The number of the system's error, of libraries that say only its words, too."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    return next((number for words, number in _WORDS.items() if words in str(error)), None)


def reason_of(error: BaseException) -> str:
    """Why something could not be written, on one line."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def refused(
    place: Path | str, error: BaseException, kept: str = "", *, doing: str = "write"
) -> NotWritten:
    """The error for what could not be written to `place`; `kept` says what is there even so."""
    remedy = REMEDIES.get(error_number(error) or 0, "")
    what = f"cannot {doing}: {reason_of(error)}" + (f": {kept}" if kept else "")
    return NotWritten(what, place=str(place), remedy=remedy)


@contextlib.contextmanager
def writing(place: Path | str, instead: str = "", *, doing: str = "write") -> Iterator[None]:
    """Turn an `OSError` about `place` into a `NotWritten`; `instead` is what always helps."""
    try:
        yield
    except BrokenPipeError:
        raise  # nobody reads what is printed
    except OSError as error:
        found = refused(place, error, doing=doing)
        raise (found.or_elsewhere(instead) if instead else found) from error


MAX_BYTES = 100_000


def read_private(path: Path) -> str:
    """The text of a file with passwords.

    Raises `InputError` when others than its owner may read or write it, or when it cannot be read.
    """
    try:
        # What is looked at and what is read is the same file: it is opened once.
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{path} is no regular file: passwords are read from a file")
            if status.st_mode & 0o077:
                raise InputError(
                    f"{path} has the mode {stat.S_IMODE(status.st_mode):04o}, so that others can "
                    f"use it: chmod 600 {path}"
                )
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"{path} is no file of passwords: it is larger than 100 kB")
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no file of passwords: it is not UTF-8 text") from error
    except OSError as error:
        raise NotRead(error, f"cannot read the passwords in {path}") from error


def read_password(path: Path) -> str:
    """The first line of a file with one password. Raises `InputError`."""
    password = read_private(path).partition("\n")[0].rstrip("\r")
    if not password:
        raise InputError(f"{path} has no password in its first line")
    return password

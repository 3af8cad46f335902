"""Errors that nobody foresaw: what is said of them, and where their traceback is kept."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from tailtap.base.errors import (
    Bug,
    InputError,
    MachineError,
    NotWritten,
    TailtapError,
)
from tailtap.base.files import write_text
from tailtap.base.writing import REMEDIES

FILE = "bug.txt"
"""Where a run folder has the traceback of the bug that ended its run."""
STORAGE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG))
"""What a disk answers that cannot take what is written."""
LACKING = STORAGE | {errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""What a machine lacks, whoever asks for it."""
_PACKAGE = Path(__file__).parent.parent


def foreseen(error: Exception) -> TailtapError:
    """The error that a user can be told in place of `error`: a `Bug`, unless it is about the
    machine.
    """
    if isinstance(error, TailtapError):
        return error
    if isinstance(error, MemoryError):
        return MachineError(
            "this machine has no memory left for it: end what else runs, or measure less at a time"
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return InputError(str(error.strerror)).at(ascii(str(error.filename))[:60])
    if isinstance(error, FileNotFoundError) and error.filename is None and not _has_folder():
        return InputError("the working folder was removed: change to another one")
    if isinstance(error, OSError) and error.errno in LACKING:
        place = str(error.filename or "")
        found = NotWritten(str(error.strerror), place=place, remedy=REMEDIES[error.errno])
        return found.or_elsewhere("choose another place")
    if isinstance(error, ModuleNotFoundError) and error.name in sys.stdlib_module_names:
        return MachineError(
            f"this Python is compiled without its module {error.name}, which the command needs",
            remedy="install the library that it is made of (Debian: libffi-dev for _ctypes, "
            "liblzma-dev for _lzma, libsqlite3-dev for _sqlite3), and compile Python again",
        )
    return Bug(_sentence(error), "".join(traceback.format_exception(error)))


def _has_folder() -> bool:
    try:
        return Path.cwd().is_dir()
    except OSError:
        return False


def kept(error: Exception, folder: Path) -> str:
    """What is said of an error that ended the run in `folder`; of a bug, the traceback is kept."""
    told = foreseen(error)
    if not isinstance(told, Bug):
        return str(told)
    try:
        write_text(folder / FILE, told.told, below=folder)
    except (OSError, InputError):
        return str(told)
    return f"{told}; the traceback is in {folder / FILE}"


def ending(error: Exception) -> tuple[Sequence[str], int]:
    """What is said of an error that ends a program, a line each, and the exit status.

    The traceback of a bug is kept in a file; where there can be none, it is said.
    """
    told = foreseen(error)
    if not isinstance(told, Bug):
        return [f"tailtap: {line}" for line in told.lines], told.exit_status
    try:
        descriptor, name = tempfile.mkstemp(prefix="tailtap-bug-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(told.told)
    except OSError:
        said = f"tailtap: {told}; the traceback is above: please report it"
        return [*told.told.splitlines(), said], told.exit_status
    said = f"tailtap: {told}; the traceback is in {name}: please report it"
    return [said], told.exit_status


def _sentence(error: Exception) -> str:
    """What happened and where in our code, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    place = ""
    if ours:
        name = Path(ours[-1].filename).relative_to(_PACKAGE)
        place = f" ({name}:{ours[-1].lineno})"
    message = " ".join(str(error).split())
    return f"a bug of tailtap: {type(error).__name__}{f': {message}' if message else ''}{place}"

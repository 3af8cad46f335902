"""Files that hold passwords: nobody but their owner may read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tailtap.base.errors import InputError, NotRead

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

"""The errors that a user can meet, each with the exit status of the command contract.

Every message is one line that says what, why, and which option or file mends it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Put the option or key `what` before the message of an `InputError`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


class TailtapError(Exception):
    """An error with a one-line message for the user and an exit status."""

    exit_status = 2


class InputError(TailtapError):
    """Bad input or usage: a file, an option or an experiment cannot be used as given."""

    exit_status = 2


class NotSplittableError(InputError):
    """Captures were split up although their stamps are not in order, or a capture is damaged.

    They can be evaluated as one piece.
    """


class MachineError(TailtapError):
    """This machine cannot do it: the message says what is missing and how to get it."""

    exit_status = 3


class Interrupted(TailtapError):
    """The user stopped the work; whatever was finished is kept."""

    exit_status = 4

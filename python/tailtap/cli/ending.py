"""How the program ends: what it says last, and with which status."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TextIO

from tailtap.base.errors import Bug, Interrupted, MachineError
from tailtap.base.writing import refused
from tailtap.cli.terminal import warn

NOBODY_READS = 128 + signal.SIGPIPE
"""The exit status of a program whose reader went away before the answer was known."""


def exit_status(error: BaseException) -> int:
    """Say on standard error why a program ends; with which status."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        _say(f"tailtap: {error.code}")
        return Bug.exit_status
    if isinstance(error, KeyboardInterrupt):
        _say("tailtap: interrupted")
        return Interrupted.exit_status
    if isinstance(error, BrokenPipeError) and any(map(_unread, (sys.stdout, sys.stderr))):
        return NOBODY_READS
    assert isinstance(error, Exception)
    from tailtap.base.bugs import ending  # 25 ms that nobody waits for who makes no mistake

    lines, status = ending(error)
    for line in lines:
        _say(line)
    return status


def finish(status: int) -> int:
    """Write out what is printed; the status with which to end.

    Where nobody reads any more the answer stands. Where it could not be written it is not given.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            # The interpreter would try again at its end, and have a status of its own for it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if not isinstance(error, BrokenPipeError):
                told = refused("the output", error).or_elsewhere("write it elsewhere")
                _say(f"tailtap: {told}")
                status = status or MachineError.exit_status
    return status


def _say(text: str) -> None:
    try:
        warn(text)
    except OSError:  # nobody reads that either
        return


def _unread(stream: TextIO | None) -> bool:
    """Whether it is a pipe whose reader has gone."""
    if stream is None:
        return False
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False

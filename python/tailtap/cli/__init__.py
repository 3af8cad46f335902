"""The `tailtap` command: one module for each subcommand.

A command module parses options, calls the library function of the same name and prints. It
imports what it needs inside its function, so that its help and the completion of its options stay
quick; `command.py` shows how a command is written, `program.py` lists them.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, NoReturn, TextIO

from tailtap.base.errors import Bug, Interrupted, MachineError
from tailtap.base.writing import refused
from tailtap.cli.terminal import Telling, escape_undecodable, warn

if TYPE_CHECKING:
    from click.exceptions import ClickException

COMPLETE = "_TAILTAP_COMPLETE"
"""What a shell sets when it asks for completions."""
NOBODY_READS = 128 + signal.SIGPIPE
"""The exit status of a program whose reader went away before the answer was known."""
ALLOCATIONS = 50_000
"""How many objects more there are before garbage is looked for. What is imported is none, and by
Python's own 700 a fifth of the time to start went into looking through it."""


def start() -> NoReturn:
    """Run the command line as a process, and end that at once.

    Taking Python down object by object takes 60 ms after an evaluation, and changes nothing.
    """
    try:
        main()
    except SystemExit as end:
        atexit._run_exitfuncs()
        os._exit(end.code if isinstance(end.code, int) else 0)


def main() -> NoReturn:
    """Run the command line and exit with the status of the contract.

    Whatever happens: an error that nobody foresaw has a status of its own, as 0 and 1 are answers.
    """
    gc.set_threshold(ALLOCATIONS)
    escape_undecodable()
    logging.getLogger("tailtap").addHandler(Telling())
    try:
        status = _run()
    except BaseException as error:
        status = exit_status(error)
    sys.exit(finish(status))


def _run() -> int:
    """Do what the command line says; the exit status."""
    from click.exceptions import ClickException, Exit, NoArgsIsHelpError

    from tailtap.cli.program import program

    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(program, {}, "tailtap", COMPLETE, instruction)
    try:
        with program.make_context("tailtap", sys.argv[1:]) as context:
            program.invoke(context)
    except Exit as end:
        return end.exit_code
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except ClickException as error:
        warn(f"tailtap: {_usage(error)}")
        return error.exit_code
    return 0


def _usage(error: ClickException) -> str:
    """What is wrong with the command line, on one line, and which help tells more."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    place = f" (see `{context.command_path} --help`)" if context else ""
    return f"{message[0].lower()}{message[1:]}{place}"


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

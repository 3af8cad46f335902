"""The `tailtap` command: one module for each subcommand.

A command module parses options, calls the library function of the same name and prints. It
imports what it needs inside its function, so that `tailtap --help` stays quick.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from tailtap.cli.registry import register_commands
from tailtap.errors import Interrupted, TailtapError

app = typer.Typer(
    name="tailtap",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would add 100 ms to every `--help`
    context_settings={"help_option_names": ["-h", "--help"]},
)
register_commands(app)


@app.callback()
def _root() -> None:
    """Measure, explain and predict the tail latency of packet processing."""


TYPER_INTERRUPTED = 130
"""The exit status by which typer ends when a command lets a `KeyboardInterrupt` through."""


def _interrupted() -> NoReturn:
    print("tailtap: interrupted", file=sys.stderr)
    sys.exit(Interrupted.exit_status)


def main() -> None:
    """Run the command line and exit with the status of the contract."""
    try:
        app()
    except TailtapError as error:
        print(f"tailtap: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as end:
        if end.code == TYPER_INTERRUPTED:
            _interrupted()
        raise
    except BrokenPipeError:
        # The reader of our output went away (`tailtap … | head`): nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)

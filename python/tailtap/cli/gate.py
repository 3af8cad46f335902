"""What `tailtap compare --worse-than` prints, and how it ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from tailtap.base.errors import InputError, MachineError
from tailtap.cli import exit_status
from tailtap.cli.command import Command
from tailtap.cli.terminal import say, warn

if TYPE_CHECKING:
    from tailtap.records.compare import GateAnswer, GateRecord

STATUS: dict[GateAnswer, int] = {"better": 0, "no worse": 0, "worse": 1, "not shown": 5}
SKIP = 125
"""What `git bisect run` takes for: this commit cannot be tested."""
ABORT = 128
"""What ends `git bisect run`: 1 to 127 call a commit bad, whatever went wrong."""


class Gate(Command):
    """A command that `git bisect run` may call: no mistake on its line calls a commit bad."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:  # fmt: skip
        """Read the command line."""
        bisecting = "--bisect" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except (click.UsageError, InputError) as error:
            if not bisecting:
                raise
            told = error.format_message() if isinstance(error, click.UsageError) else str(error)
            warn(f"tailtap: {told}")
            raise Exit(ABORT) from error


@contextlib.contextmanager
def bisected(bisect: bool) -> Iterator[None]:
    """End as `git bisect run` understands it, also where there is no answer."""
    try:
        yield
    except Exception as error:
        if not bisect:
            raise
        status = exit_status(error)
        sys.exit(SKIP if status == MachineError.exit_status else ABORT)


def status_of(answer: GateAnswer, *, bisect: bool) -> int:
    """With which status the program ends."""
    status = STATUS[answer]
    return SKIP if bisect and answer == "not shown" else status


def print_gate(found: GateRecord) -> None:
    """Print the object of ``--json``: a row for each configuration, and the answer."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections.answers import gate_table

    print_table(gate_table(found))
    say(f"answer: {found.answer}")

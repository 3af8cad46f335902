"""What all commands share: how one is declared, how its help looks, and --json and --quiet.

A command is a function with click's decorators for its arguments and options, and `command` on top:

    @command(examples=(("tailtap clean --dry-run", "show what would be removed"),))
    @click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
    def clean(dry_run: bool, json: bool, quiet: bool) -> None:
        \"\"\"Remove what a crash left behind.\"\"\"

The docstring is the help text. A command ends with another status than 0 by an error of
`tailtap.errors` or by `sys.exit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

PATH = click.Path(path_type=Path)
Examples = Sequence[tuple[str, str]]
"""Command lines, each with what it does."""


class Command(click.Command):
    """A command whose help ends with examples."""

    examples: Examples = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each example below a line that says what it does."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                formatter.write_text(f"# {meaning}")
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(
    *, examples: Examples = (), cls: type[Command] = Command
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, with --json and --quiet as its last options."""

    def make(function: Callable[..., None]) -> Command:
        made = click.command(cls=cls)(function)
        made.examples = examples
        made.params += [
            click.Option(
                ["--json"], is_flag=True, help="Print one JSON object to standard output."
            ),
            click.Option(["--quiet"], is_flag=True, help="Print the result and nothing else."),
        ]
        return made

    return make

"""What all commands share: how one is declared, how its help looks, and --json and --quiet.

A command is a function with click's decorators for its arguments and options, and `command` on top:

    @command(examples=(("tailtap clean --dry-run", "show what would be removed"),))
    @click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
    def clean(dry_run: bool, json: bool, quiet: bool) -> None:
        \"\"\"Remove what a crash left behind.\"\"\"

The docstring is the help text. A command ends with another status than 0 by an error of
`tailtap.base.errors` or by `sys.exit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click

from tailtap.base.errors import InputError, NothingBegun, NotWritten, Occupied, QuantityError
from tailtap.cli.caller import become_caller

PATH = click.Path(path_type=Path)
PLACES = ("out", "write", "to")
"""The options that say where a command writes."""
Examples = Sequence[tuple[str, str]]
"""Command lines, each with what it does."""


class Command(click.Command):
    """A command whose help ends with examples."""

    examples: Examples = ()
    computes = False
    """It reads and computes: under sudo it runs as whoever typed it."""

    def invoke(self, ctx: click.Context) -> object:
        """Do it. A wrong quantity is told with the options that it was given for."""
        if self.computes:
            become_caller(_paths(ctx.params.values()))
        try:
            return super().invoke(ctx)
        except NotWritten as error:
            # Who reads JSON is a program that has a place of its own for it.
            if self._place is None or ctx.params.get("json"):
                raise
            raise error.or_elsewhere(f"choose another {self._place}") from error
        except Occupied as error:
            if error.begun:
                error = error.or_elsewhere(f"add --resume to finish {error.begun} in it")
            raise error.or_elsewhere(f"choose another {self._place}") from error
        except NothingBegun as error:
            raise error.or_elsewhere(f"check {self._place}, or omit --resume") from error
        except QuantityError as error:
            given = [
                parameter.opts[0]
                for parameter in self.params
                if (value := ctx.params.get(parameter.name or "")) == error.text
                or (isinstance(value, tuple) and error.text in value)
            ]
            if not given or not error.text:
                raise
            raise InputError(str(error)).at(" or ".join(given)) from error

    @property
    def _place(self) -> str | None:
        """The option that says where it writes."""
        options = {parameter.name: parameter.opts[0] for parameter in self.params}
        return next((options[name] for name in PLACES if name in options), None)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each example below a line that says what it does."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                formatter.write_text(f"# {meaning}")
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _paths(values: Iterable[object]) -> Iterator[Path]:
    for value in values:
        if isinstance(value, Path):
            yield value
        elif isinstance(value, tuple):
            yield from _paths(value)


def command(
    *, examples: Examples = (), cls: type[Command] = Command, computes: bool = False
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, with --json and --quiet as its last options.

    One that `computes` needs no root, and under sudo runs as whoever typed it.
    """

    def make(function: Callable[..., None]) -> Command:
        made = click.command(cls=cls)(function)
        made.examples = examples
        made.computes = computes
        made.params += [
            click.Option(
                ["--json"], is_flag=True, help="Print one JSON object to standard output."
            ),
            click.Option(["--quiet"], is_flag=True, help="Print the result and nothing else."),
        ]
        return made

    return make

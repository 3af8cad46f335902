"""What commands share: how one is declared, how its help looks, and options of several.

A command is a function with click's decorators for its arguments and options, and `command` on top:

    @command(examples=(("tailtap clean --dry-run", "show what would be removed"),))
    @click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
    def clean(dry_run: bool, json: bool, quiet: bool) -> None:
        \"\"\"Remove what a crash left behind.\"\"\"

The docstring is the help text. A command gives an `Answer`, or prints by itself what comes bit by
bit. It ends with another status than 0 by that answer or by an error of `tailtap.base.errors`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tailtap.base.errors import (
    InputError,
    NothingBegun,
    NotWritten,
    Occupied,
    QuantityError,
    TailtapError,
)
from tailtap.base.units import (
    parse_cpus,
    parse_length,
    parse_rate,
    parse_share,
    parse_size,
    parse_time,
    percentile_in,
)
from tailtap.cli.caller import become_caller
from tailtap.cli.program import Paged
from tailtap.cli.terminal import warn_of, width_of

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.executors import Executor
    from tailtap.analysis.evaluation.many import Progress
    from tailtap.records.record import Notice, Record
    from tailtap.show.sections import Shown


class Quantity(click.ParamType[Any]):
    """A text with a unit, which the command gets as a number: time as ns, size as bytes."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        """`parse` reads it, or raises `InputError`."""
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Raises `InputError`, which names the option."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except InputError as error:
            raise error.at(_option(param)) from error


class Cpus(click.ParamType[Any]):
    """CPUs of a list such as ``0-3,8``."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Their numbers in order. Raises `InputError`, which names the option."""
        try:
            cpus = parse_cpus(value)
        except ValueError:
            cpus = ()
        if not cpus or len(set(cpus)) != len(cpus):
            raise InputError(
                f"{_option(param)} {value!r} is no list of CPUs: write each once, as in '2-3,5'"
            )
        return sorted(cpus)


class Percentile(click.ParamType[Any]):
    """A percentile such as ``99.9`` or ``p99.9``, or ``max``; from 0 to 1, which is the maximum."""

    name = "p"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The share of packets below it. Raises `InputError`, which names the option."""
        found = 1.0 if value.strip().lower() == "max" else percentile_in(value)
        if found is None:
            raise InputError(
                f"{_option(param)} {value!r} is no percentile: give one such as 99.9, or max"
            )
        return found


def _option(parameter: click.Parameter | None) -> str:
    return "" if parameter is None else parameter.opts[0]


PATH = click.Path(path_type=Path)
PERCENTILE = Percentile()
TIME = Quantity("time", parse_time)
RATE = Quantity("rate", parse_rate)
SIZE = Quantity("size", parse_size)
SHARE = Quantity("share", parse_share)
LENGTH = Quantity("length", parse_length)
CPUS = Cpus()
COMMON = ("json", "quiet")
"""Options of all commands."""
PLACES = ("out", "write", "to")
"""The options that say where a command writes."""
Examples = Sequence[tuple[str, str]]
"""Command lines, each with what it does."""


def refuse(*wrong: tuple[object, str]) -> None:
    """Raise `InputError` with the first of these messages whose condition holds."""
    for holds, message in wrong:
        if holds:
            raise InputError(message)


class Answer(NamedTuple):
    """What a command answers."""

    record: Record
    """What --json prints."""
    show: Callable[[], Iterable[Shown] | None]
    """What a person reads; or prints it, and gives nothing."""
    status: int = 0
    problem: TailtapError | None = None
    """Raised in the end: the answer is given, but not all is well."""
    warnings: Sequence[Notice] = ()
    """What a person reads behind it, unless --quiet is given."""


class Command(Paged):
    """A command whose help ends with examples."""

    examples: Examples = ()
    computes = False
    """It reads and computes: under sudo it runs as whoever typed it."""

    def invoke(self, ctx: click.Context) -> None:
        """Do it. A wrong quantity is told with the options that it was given for."""
        if self.computes:
            become_caller(_paths(ctx.params.values()))
        try:
            return self._tell(super().invoke(ctx), **{key: ctx.params[key] for key in COMMON})
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

    def _tell(self, answer: Answer | None, *, json: bool, quiet: bool) -> None:
        """Print an answer, and end with its status."""
        if answer is None:
            return
        if json:
            from tailtap.records.record import printed

            print(printed(answer.record))
        else:
            if (parts := answer.show()) is not None:
                from tailtap.cli.console import show

                show(parts)
            warn_of(() if quiet else answer.warnings)
        if answer.problem is not None:
            raise answer.problem
        if answer.status:
            sys.exit(answer.status)

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
) -> Callable[[Callable[..., Answer | None]], Command]:
    """Make a command of a function, with --json and --quiet as its last options.

    One that `computes` needs no root, and under sudo runs as whoever typed it.
    """

    def make(function: Callable[..., Answer | None]) -> Command:
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


Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def known(names: Callable[[], Iterable[str]]) -> Completer:
    """Completes names that are asked for when somebody presses Tab: importing them takes long."""
    return lambda _context, _parameter, word: [one for one in names() if one.startswith(word)]


experiment_file: Decorator = click.argument(
    "experiment",
    type=PATH,
    help="The experiment file (YAML).",
)


def runs_and_folders(text: str) -> Decorator:
    """The argument RUN|DIR…, whose help is `text`."""
    return click.argument(
        "runs",
        nargs=-1,
        required=True,
        type=PATH,
        metavar="RUN|DIR…",
        help=text,
    )


def writes_into(text: str) -> Decorator:
    """The option --out DIR, whose help is `text`."""
    return click.option("--out", type=PATH, metavar="DIR", help=text)


undisturbed_latencies: Decorator = click.option(
    "--undisturbed",
    is_flag=True,
    help="Take latencies without the time around pauses from outside "
    "(docs/explanation/undisturbed.md). A run of which these are not known shows "
    "nothing.",
)
"""The option --undisturbed."""


def together(*options: Decorator) -> Decorator:
    """Arguments and options as one decorator, in this order."""

    def declare(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return declare


def measuring(*, resume: str) -> Decorator:
    """The options --set, --out and --resume; `resume` is the help of the last."""
    return together(
        click.option(
            "--set",
            "set_",
            multiple=True,
            metavar="PATH=VALUE",
            help="Replace one value of the file, such as traffic.rate='20 kpkt/s'; may be "
            "repeated.",
        ),
        writes_into("The folder for the results; by default the name and the time of day."),
        click.option(
            "--resume",
            is_flag=True,
            help=resume,
        ),
    )


watched: Decorator = together(
    click.option(
        "--live",
        is_flag=True,
        help="Show the numbers so far in the terminal, and on a page whose address is printed. "
        "The taps then write every second, and a thread counts at low priority off the "
        "device's CPUs (docs/howto/live.md).",
    ),
    click.option(
        "--metrics",
        metavar="[HOST]:PORT",
        help="Give the numbers so far as OpenMetrics at http://HOST:PORT/metrics; ':9400' "
        "listens on all addresses.",
    ),
)
"""The options --live and --metrics."""

on_testbed = click.option(
    "--testbed",
    type=PATH,
    help="A testbed file (YAML), which says the hosts of generator, timestamper and DuT.",
)
"""The option --testbed."""


def require_out(out: Path | None, *, resume: bool) -> None:
    """Raise `InputError` for --resume without --out."""

    if resume and out is None:
        raise InputError("--resume needs --out DIR: the folder of what is to be finished")


def selected_runs(text: str) -> Decorator:
    """The option --runs, whose help is `text`."""
    return click.option(
        "--runs",
        multiple=True,
        metavar="SELECTION",
        help=f"{text} May be given several times: each adds runs. By default all runs.",
    )


@dataclass(frozen=True)
class Where:
    """What the options say: --scheduler, --chunk, --jobs and --quiet."""

    scheduler: str | None
    chunk: int | None
    jobs: int | None
    quiet: bool

    @property
    def default(self) -> bool:
        """Whether no option says where."""
        return self.scheduler is None and self.chunk is None and self.jobs is None

    def executor(self) -> Executor:
        """What does the work. Raises `InputError` and `MachineError`."""

        if self.scheduler is None:
            from tailtap.analysis.evaluation.executors import Threads

            return Threads(self.jobs)
        if self.jobs is not None:
            raise InputError("--jobs is for this machine: the workers of --scheduler say their own")
        from tailtap.analysis.evaluation.cluster import Cluster

        return Cluster(self.scheduler)

    def chunk_bytes(self) -> int:
        """How large a piece is. Raises `InputError`."""
        from tailtap.analysis.evaluation.many import CHUNK_BYTES

        if self.chunk == 0:
            raise InputError("--chunk: a piece must hold something")
        return self.chunk or CHUNK_BYTES

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """A bar of the pieces done, on a terminal."""

        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = ("pieces", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True, width=width_of(sys.stderr))
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, known: bar.update(task, completed=done, total=known)

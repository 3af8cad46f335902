"""Arguments and options that several commands have, declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.cli.command import PATH
from tailtap.cli.terminal import width_of

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.executors import Executor
    from tailtap.analysis.evaluation.many import Progress

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


def measuring(*, resume: str) -> Decorator:
    """The options --set, --out and --resume; `resume` is the help of the last."""
    options: list[Decorator] = [
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
    ]

    def declare(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return declare


def watched(function: Function) -> Function:
    """The options --live and --metrics."""
    options = [
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
    ]
    for option in reversed(options):
        function = option(function)
    return function


on_testbed = click.option(
    "--testbed",
    type=PATH,
    help="A testbed file (YAML), which says the hosts of generator, timestamper and DuT.",
)
"""The option --testbed."""


def require_out(out: Path | None, *, resume: bool) -> None:
    """Raise `InputError` for --resume without --out."""
    from tailtap.base.errors import InputError

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
        from tailtap.base.errors import InputError

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
        from tailtap.base.errors import InputError

        if self.chunk == 0:
            raise InputError("--chunk: a piece must hold something")
        return self.chunk or CHUNK_BYTES

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """A bar of the pieces done, on a terminal."""
        import sys

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

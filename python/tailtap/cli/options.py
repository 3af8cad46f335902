"""Arguments and options that several commands have, declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from tailtap.cli.command import PATH

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


def undisturbed_latencies(verb: str) -> Decorator:
    """The option --undisturbed, by which a command does what `verb` says with such latencies."""
    return click.option(
        "--undisturbed",
        is_flag=True,
        help=f"{verb.capitalize()} latencies without the time around pauses from outside: a "
        "hypervisor that took the core, a generator that was late. Of a run of which these are not "
        "shown, nothing is.",
    )


def measuring(*, resume: str) -> Decorator:
    """The options --set, --out and --resume; `resume` is the help of the last."""
    options: list[Decorator] = [
        click.option(
            "--set",
            "set_",
            multiple=True,
            metavar="PATH=VALUE",
            help="Replace one value of the file, such as traffic.rate='20 kpkt/s'. May be given "
            "several times.",
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


on_testbed = click.option(
    "--testbed",
    type=PATH,
    help="A testbed file (YAML): generator, timestamper and DuT are on the hosts that it says.",
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

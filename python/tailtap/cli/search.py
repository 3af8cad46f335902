"""`tailtap search`: find the highest rate with at most so much loss."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.cli.command import command
from tailtap.cli.completing import one_of
from tailtap.cli.options import experiment_file, measuring, require_out

if TYPE_CHECKING:
    from tailtap.search.answer import Answer


@command()
@experiment_file
@click.option(
    "--loss",
    multiple=True,
    default=["0"],
    metavar="SHARE",
    help="How many packets may be lost: 0, '0.5%' or 0.005; repeatable.",
)
@click.option(
    "--from",
    "from_",
    default="1 kpkt/s",
    metavar="RATE",
    help="The lowest rate of interest.",
)
@click.option(
    "--to",
    default="2 Mpkt/s",
    metavar="RATE",
    help="The highest rate of interest.",
)
@click.option(
    "--precision",
    default="2%",
    metavar="SHARE",
    help="The largest distance of the two bounds, as a share of the rate.",
)
@click.option(
    "--method",
    default="mlr",
    shell_complete=one_of("mlr", "binary"),
    help="mlr; or binary, which tries each rate once, for the full time.",
)
@click.option(
    "--trial",
    default="2 s",
    metavar="TIME",
    help="Duration of a trial that decides about a rate.",
)
@click.option(
    "--trials",
    default=3,
    help="mlr: how many such trials decide about a rate.",
)
@click.option(
    "--exceed",
    default=0.5,
    help="mlr: the share of them that may lose more than allowed.",
)
@click.option(
    "--short",
    default="500 ms",
    metavar="TIME",
    help="mlr: duration of a trial that only guides the search.",
)
@click.option(
    "--latency/--no-latency",
    default=True,
    help="Then measure latency at 100, 90, 50 and 10 % of the rate.",
)
@click.option(
    "--keep-stamps",
    is_flag=True,
    help="Keep the stamps of the trials, not only counts.",
)
@measuring(unfinished="trials and runs")
def search(
    experiment: Path,
    loss: tuple[str, ...],
    from_: str,
    to: str,
    precision: str,
    method: str,
    trial: str,
    trials: int,
    exceed: float,
    short: str,
    latency: bool,
    keep_stamps: bool,
    set_: tuple[str, ...],
    out: Path | None,
    resume: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Find the highest rate at which a device loses no more than allowed, and measure it there.

    The experiment file is that of `tailtap run`, without vary and cases. The trials use rates and
    durations of their own. With --loss 0 the result is the throughput of RFC 2544, also called
    non-drop rate; with a higher loss, the partial drop rate. One search can have several losses.

    The method mlr works like MLRsearch: short trials guide the search, and --trials long trials
    decide about a bound; the share --exceed of them may disagree. A trial ends early when it has
    lost more than every loss allows. The method binary is that of RFC 2544, which demands
    --trial '60 s' at least. A rate that the generator cannot send limits the search, not the
    device; the result says so.

    The result states the distance of the bounds, the number and duration of the trials behind
    them, the upper limit of the loss with 95 % confidence, and trials that disagree. Then latency
    is measured, as the file describes it, at 100, 90, 50 and 10 % of each rate found. --out holds
    every trial as a run (trials), these measurements (latency) and search.json; `tailtap report`
    makes a page of the folder. The exit status is 1 when no rate holds.
    """
    import json as json_module

    from tailtap.errors import InputError
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.runner import default_folder
    from tailtap.search import METHODS, Settings
    from tailtap.search.conduct import Plan, search_experiment
    from tailtap.units import parse_rate, parse_share, parse_time

    if method not in METHODS:
        raise InputError(f"there is no --method {method!r}: known: {', '.join(METHODS)}")
    settings = Settings(
        losses=tuple(sorted(parse_share(one) for one in loss)),
        low=parse_rate(from_),
        high=parse_rate(to),
        precision=parse_share(precision),
        trial=parse_time(trial),
        trials=trials,
        exceed=exceed,
        short=min(parse_time(short), parse_time(trial)),
    )
    checked = read_experiment(experiment, set_)
    require_out(out, resume=resume)
    from tailtap import store  # after what needs no database

    plan = Plan(checked, experiment, settings, method, keep_stamps, latency)

    def print_line(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    folder = out or default_folder(f"{checked.name}-search")
    found = search_experiment(
        plan, folder, store=store, resume=resume, quiet=quiet, print_line=print_line
    )
    if json:
        print(json_module.dumps(found.as_json()))
    else:
        print_answers(found.answers)
        _print_latency(found.as_json())
    if any(answer.rate is None for answer in found.answers):
        sys.exit(1)


def print_answers(answers: list[Answer]) -> None:
    """Print a row for each loss, then the warnings."""
    from rich.table import Table

    from tailtap.cli.console import print_table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("loss allowed", no_wrap=True)
    for name in ("highest rate", "up to", "width", "trials at it", "packets", "lost", "loss below"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in answers:
        table.add_row(*_cells(found))
    print_table(table)
    print("up to: the next rate that does not hold; loss below: with 95 % confidence")
    for found in answers:
        for warning in found.warnings:
            print(f"loss {share_text(found.bounds.loss)}: {warning.message}")


def share_text(share: float) -> str:
    """A ratio as people write it: ``0.5 %``, or ``0``."""
    return f"{100 * share:.3g} %" if share else "0"


def _cells(found: Answer) -> list[str]:
    from tailtap.units import format_rate, format_time

    bounds, lower = found.bounds, found.lower
    upper = "not tried" if bounds.upper is None else format_rate(bounds.upper)
    if bounds.reason == "generator":
        upper += " (generator)"
    if lower is None:
        return [share_text(bounds.loss), "none", upper, *[""] * 5]
    good = lower.trials - lower.exceeding
    each = format_time(lower.duration // max(1, lower.trials))
    return [
        share_text(bounds.loss),
        format_rate(lower.rate),
        upper,
        "" if found.width is None else share_text(found.width),
        f"{good} of {lower.trials} × {each}",
        f"{lower.packets:,}",
        f"{lower.lost:,}",
        "" if found.loss_limit is None else share_text(found.loss_limit),
    ]


def _print_latency(summary: dict[str, Any]) -> None:
    from tailtap.cli.runs import print_runs

    if summary["latency"] is None:
        print(f"results: {summary['folder']}")
        return
    print()
    print_runs(summary["latency"])

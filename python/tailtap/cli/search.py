"""`tailtap search`: the highest rate with at most so much loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtap.cli.options import Json, Quiet

if TYPE_CHECKING:
    from tailtap.search.answer import Answer


def search(
    experiment: Annotated[Path, typer.Argument(help="The experiment file (YAML).")],
    *,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHARE",
            help="How many packets may be lost: 0, '0.5%' or 0.005; repeatable. [default: 0]",
        ),
    ] = None,
    from_: Annotated[
        str, typer.Option("--from", metavar="RATE", help="The lowest rate of interest.")
    ] = "1 kpkt/s",
    to: Annotated[
        str, typer.Option("--to", metavar="RATE", help="The highest rate of interest.")
    ] = "2 Mpkt/s",
    precision: Annotated[
        str, typer.Option(metavar="SHARE", help="How far the bounds may be apart.")
    ] = "2%",
    method: Annotated[
        str, typer.Option(help="mlr; or binary, which tries each rate once, at full length.")
    ] = "mlr",
    trial: Annotated[
        str, typer.Option(metavar="TIME", help="How long a trial lasts that decides.")
    ] = "2 s",
    trials: Annotated[int, typer.Option(help="mlr: how many of these decide about a rate.")] = 3,
    exceed: Annotated[
        float, typer.Option(help="mlr: which share of them may lose more than allowed.")
    ] = 0.5,
    short: Annotated[
        str, typer.Option(metavar="TIME", help="mlr: how long a trial lasts that only guides.")
    ] = "500 ms",
    latency: Annotated[
        bool,
        typer.Option(
            "--latency/--no-latency",
            help="Then measure latency at 100, 90, 50 and 10 % of the rate.",
        ),
    ] = True,
    keep_stamps: Annotated[
        bool, typer.Option("--keep-stamps", help="Keep the stamps of the trials, not only counts.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Replace one value of the file, such as dut.platform=wire; repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for the results; by default the name and the time of day."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Finish the search in --out: make what is not made.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the highest rate at which a device loses no more than allowed, and measure it there.

    The experiment file is that of `tailtap run`, without vary and cases; rate and duration of its
    traffic are replaced in the trials. With --loss 0 the result is what is called throughput in
    RFC 2544, or non-drop rate; with more, partial drop rate. Several losses are searched for at
    once.

    The method mlr searches in the manner of MLRsearch: short trials show where to look, and a
    bound counts when --trials long ones have decided about it, of which --exceed may differ. A
    trial that has surely lost more than any loss allows is given up. The method binary is that of
    RFC 2544, which wants --trial '60 s' at least. A rate that the generator cannot send bounds the
    search and not the device, and the answer says so.

    The answer tells how far apart the bounds are, how many trials of which length speak for them,
    below which limit the loss lies with 95 % confidence, and which trials disagree. Then latency is
    measured as the file describes it at 100, 90, 50 and 10 % of each rate found. --out gets every
    trial as a run (trials), these measurements (latency) and search.json; `tailtap report` makes
    a page of the folder. The exit status is 1 when no rate holds.
    """
    import json as json_module
    import sys

    from tailtap.errors import InputError
    from tailtap.experiment.reading import read_experiment
    from tailtap.experiment.runner import default_folder
    from tailtap.search import METHODS, Settings
    from tailtap.search.conduct import Plan, search_experiment
    from tailtap.units import parse_rate, parse_share, parse_time

    if method not in METHODS:
        raise InputError(f"there is no --method {method!r}: known: {', '.join(METHODS)}")
    settings = Settings(
        losses=tuple(sorted(parse_share(one) for one in loss or ["0"])),
        low=parse_rate(from_),
        high=parse_rate(to),
        precision=parse_share(precision),
        trial=parse_time(trial),
        trials=trials,
        exceed=exceed,
        short=min(parse_time(short), parse_time(trial)),
    )
    checked = read_experiment(experiment, set_ or ())
    if resume and out is None:
        raise InputError("--resume needs --out DIR: the folder of the search to finish")
    plan = Plan(checked, experiment, settings, method, keep_stamps, latency)

    def told(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    folder = out or default_folder(f"{checked.name}-search")
    found = search_experiment(plan, folder, resume=resume, quiet=quiet, told=told)
    if json:
        print(json_module.dumps(found.as_json()))
    else:
        print_answers(found.answers)
        _print_latency(found.as_json())
    if any(answer.rate is None for answer in found.answers):
        raise typer.Exit(1)


def print_answers(answers: list[Answer]) -> None:
    """Print a row for each loss, and below it what makes one doubt it."""
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

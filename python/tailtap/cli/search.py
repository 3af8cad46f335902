"""`tailtap search`: find the highest rate at which no more is lost than allowed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.units import format_share
from tailtap.cli.command import (
    RATE,
    SHARE,
    TIME,
    Answer,
    command,
    experiment_file,
    measuring,
    on_testbed,
    require_out,
)
from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.measure.search import Search
    from tailtap.records.search import SearchAnswer


@command()
@experiment_file
@click.option(
    "--loss",
    multiple=True,
    default=["0"],
    type=SHARE,
    help="How many packets may be lost: 0, '0.5%' or 0.005; repeatable.",
)
@click.option(
    "--from",
    "low",
    default="1 kpkt/s",
    type=RATE,
    help="The lowest rate of interest.",
)
@click.option(
    "--to",
    "high",
    default="2 Mpkt/s",
    type=RATE,
    help="The highest rate of interest.",
)
@click.option(
    "--precision",
    default="2%",
    type=SHARE,
    help="The largest distance of the two bounds, as a share of the rate.",
)
@click.option(
    "--method",
    default="mlr",
    type=click.Choice(("mlr", "binary")),
    help="mlr; or binary, which tries each rate once, for the full time.",
)
@click.option(
    "--trial",
    default="2 s",
    type=TIME,
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
    type=TIME,
    help="mlr: duration of a trial that only guides the search.",
)
@click.option(
    "--latency/--no-latency",
    default=True,
    help="Then measure latency at what was found.",
)
@click.option(
    "--latency-at",
    multiple=True,
    default=["100%", "90%", "50%", "10%"],
    type=SHARE,
    help="A share of each rate found at which latency is measured; repeatable.",
)
@click.option(
    "--keep-stamps",
    is_flag=True,
    help="Keep the stamps of the trials, not only counts.",
)
@measuring(resume="Finish what --out holds: make the trials and runs that are missing.")
@on_testbed
def search(
    experiment: Path,
    loss: tuple[float, ...],
    low: int,
    high: int,
    precision: float,
    method: str,
    trial: int,
    trials: int,
    exceed: float,
    short: int,
    latency: bool,
    latency_at: tuple[float, ...],
    keep_stamps: bool,
    set_: tuple[str, ...],
    out: Path | None,
    resume: bool,
    testbed: Path | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Find the highest rate at which a device loses no more than allowed, and measure it there.

    Each combination of vary and cases has a search. With --loss 0 the result is RFC 2544's
    throughput (non-drop rate), else the partial drop rate.

    mlr works like MLRsearch: short trials guide, --trials long ones decide. binary is the search of
    RFC 2544, which demands --trial '60 s' at least. The result says so where the generator, not the
    device, is the limit.

    Then latency is measured. --out holds every trial as a run, and search.json. The exit status is
    1 when no rate holds, 3 when a measurement at a rate found failed or is invalid.
    docs/howto/search.md has more.
    """
    from tailtap.cli.results import problem_of
    from tailtap.cli.run import stations_of_file
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.search import Plan, search_experiment
    from tailtap.measure.search.methods import settings_of

    settings = settings_of(
        losses=sorted(loss),
        low=low,
        high=high,
        precision=precision,
        method=method,
        trial_ns=trial,
        trials=trials,
        exceed=exceed,
        short_ns=min(short, trial),
    )
    checked = read_experiment(experiment, set_, on_testbed=testbed is not None)
    require_out(out, resume=resume)
    stations, boots = stations_of_file(checked, testbed, quiet=quiet)
    from tailtap.cli.progress import campaign_in

    shares = latency_at if latency else ()
    plan = Plan(checked, experiment, settings, keep_stamps, shares)
    with campaign_in(
        out, f"{checked.name}-search", quiet=quiet, resume=resume, stations=stations,
        testbed=testbed, boots=boots,
    ) as campaign:  # fmt: skip
        found = search_experiment(plan, campaign)
    status = 1 if any(answer.rate is None for answer in found.record.answers) else 0
    problem = None if status or found.latency is None else problem_of(found.latency.runs)
    return Answer(found.printed(), lambda: _print(found, campaign.out), status, problem)


def _print(found: Search, folder: Path) -> None:
    from tailtap.cli.results import print_runs

    print_answers(found.record.answers)
    if found.latency is None:
        say(f"results: {folder}")
    else:
        say()
        print_runs(found.latency.runs, Path(found.latency.folder))


def print_answers(answers: list[SearchAnswer]) -> None:
    """Print a row for each loss and each combination of what varies, then the warnings."""
    from tailtap.analysis.runs.text import in_words
    from tailtap.cli.console import print_table
    from tailtap.show.sections.answers import rates_table

    print_table(rates_table(answers))
    say("up to: the next rate that does not hold; loss below: with 95 % confidence")
    for found in answers:
        of = in_words(found.variables)
        for warning in found.warnings:
            say(f"{of}loss {format_share(found.loss, 3)}: {warning.message}")

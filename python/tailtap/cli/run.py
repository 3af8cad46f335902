"""`tailtap run`: make the measurements of an experiment file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap import library
from tailtap.base.errors import InputError, MachineError, naming
from tailtap.base.units import format_count, format_rate, format_share, ranges
from tailtap.cli.command import (
    PATH,
    PERCENTILE,
    SHARE,
    TIME,
    Answer,
    command,
    experiment_file,
    measuring,
    on_testbed,
    require_out,
    watched,
)
from tailtap.cli.terminal import say, unless, warn

if TYPE_CHECKING:
    from tailtap.analysis.live.numbers import Board
    from tailtap.experiment.model import Experiment
    from tailtap.experiment.plan import PlannedRun
    from tailtap.experiment.reading import CheckedExperiment
    from tailtap.measure.boots import Boots
    from tailtap.measure.live import Live
    from tailtap.measure.roles import Stations
    from tailtap.records.printed import RunCheckRecord
    from tailtap.records.search import AgainstRecord


@command(
    examples=(
        (
            "tailtap run examples/quickstart.yaml --check",
            "say what this machine cannot do, and measure nothing",
        ),
        (
            "sudo tailtap run examples/quickstart.yaml --out results/first",
            "measure",
        ),
        (
            "sudo tailtap run examples/quickstart.yaml --out results/first --resume",
            "finish what was interrupted",
        ),
    )
)
@experiment_file
@measuring(resume="Finish what --out holds: make the runs that are missing.")
@on_testbed
@click.option(
    "--check",
    is_flag=True,
    help="Measure nothing: plan the runs and say which of them this machine cannot make.",
)
@click.option(
    "--against",
    type=PATH,
    metavar="BASE",
    help="Another experiment file, or this one with --against-set: is this one worse?",
)
@click.option(
    "--against-set",
    multiple=True,
    metavar="PATH=VALUE",
    help="Replace one value of BASE only (--set: of both); may be repeated.",
)
@click.option(
    "--at",
    default="p99.9",
    type=PERCENTILE,
    metavar="P",
    help="--against: the percentile that is compared.",
)
@click.option(
    "--worse-than",
    default="5%",
    type=SHARE,
    help="--against: how much more latency than that of BASE counts as worse.",
)
@click.option(
    "--within",
    default="30min",
    type=TIME,
    help="--against: end after this time at the latest.",
)
@watched
def run(
    experiment: Path,
    set_: tuple[str, ...],
    out: Path | None,
    resume: bool,
    testbed: Path | None,
    check: bool,
    against: Path | None,
    against_set: tuple[str, ...],
    at: float,
    worse_than: float,
    within: int,
    live: bool,
    metrics: str | None,
    json: bool,
    quiet: bool,
) -> Answer | None:
    """Measure the latency of every packet through a device under test, on this machine.

    The experiment file describes the traffic and the device that it passes
    (docs/reference/experiment.md):

    \b
        name: container-vs-bare-metal
        dut: {forwarder: tc-mirred, cpus: [1]}
        traffic: {rate: 10 kpkt/s, size: 64 B, duration: 10 s, cpu: 0}
        vary: {dut.platform: [wire, bare-metal, container]}
        repeat: 3

    Needs root: generator, taps and device are network namespaces joined by virtual links. Each run
    gets a folder with its evaluation; results.duckdb has all evaluations. Ctrl-C keeps the finished
    runs. A run that fails is recorded with its reason, and the others go on; one whose generator
    did not send what was asked is invalid. Verdicts on `require` and `claims` follow, and, of up to
    eight runs with small traces, why packets were late. The exit status is 3 when runs failed or
    are invalid, else 1 unless all that is required holds.

    With --against pairs of runs in random order decide: better or no worse (exit status 0), worse
    by more than --worse-than (1) or, after --within, not shown (5). "Worse" is wrong in at most 1 %
    of all cases, each other answer in at most 5 %. `vary`, `repeat` and `require` are left out.
    """
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.campaign import default_folder

    if against is not None:
        if testbed is not None or check or resume or live or metrics is not None:
            raise InputError(
                "--against goes with none of --testbed, --check, --resume, --live and --metrics"
            )
        return _against(
            experiment, against, set_, against_set, at=at, worse_than=worse_than, within=within,
            out=out, quiet=quiet,
        )  # fmt: skip
    if against_set:
        raise InputError("--against-set is for --against BASE: name that file, too")
    checked = read_experiment(experiment, set_, on_testbed=testbed is not None)
    watching = live or metrics is not None
    if testbed is not None and watching:
        raise InputError(
            "--live and --metrics count stamps that this machine writes: leave them out with "
            "--testbed, or watch `tailtap tap` where the stamps are written"
        )
    stations, boots = stations_of_file(checked, testbed, quiet=quiet)
    if check:
        if resume:
            raise InputError("--check asks about the whole experiment: leave --resume out")
        return _check(checked, out or default_folder(checked.name), stations, boots)
    require_out(out, resume=resume)
    from tailtap.analysis.runs.flows import summarize
    from tailtap.cli.analyses import explain_briefly
    from tailtap.cli.caller import results_of_caller
    from tailtap.cli.console import show
    from tailtap.cli.progress import Bar, listener
    from tailtap.cli.results import print_flows, print_hops, print_runs, problem_of
    from tailtap.cli.spectrum import print_worst
    from tailtap.cli.verdict import exit_status
    from tailtap.measure.campaign import Campaign
    from tailtap.measure.runner import run_experiment
    from tailtap.records.record import printed
    from tailtap.results.current import kept_current
    from tailtap.show.sections.answers import claims_table, verdict_parts

    folder = out or default_folder(checked.name)
    if not quiet:
        for line in differences(checked.differs):
            warn(line)
    listeners = [listener(quiet=quiet, watched=live)]
    campaign = Campaign(folder, resume, listeners, stations, testbed, boots)
    with results_of_caller(folder), contextlib.ExitStack() as stack:
        if watching:
            from tailtap.analysis.live.numbers import Board
            from tailtap.measure.live import FLUSH

            board = Board()
            if isinstance(bar := listeners[0], Bar):
                bar.board = board
            listeners.append(_watched(checked, folder, board, live, metrics, quiet, stack))
            campaign.flush = FLUSH
        with kept_current(folder):
            runs = run_experiment(checked, experiment, campaign)
        stack.close()
        summary = summarize(folder, runs)
        if checked.require and any(run.done for run in runs):
            summary.verdict = library.verdict(folder, checked.require)
        if checked.claims:
            from tailtap.analysis.claims.judge import claims_at

            summary.claims = claims_at([folder])
        if json:
            print(printed(summary))
        else:
            print_runs(summary.runs, folder)
            print_worst(folder)
            print_flows(summary.flows)
            print_hops(summary.runs)
            if summary.verdict is not None:
                show(verdict_parts(summary.verdict))
            show([claims_table(summary.claims)])
            explain_briefly(folder, [run.path for run in runs if run.done])
    if problem := problem_of(summary.runs):
        raise problem
    if summary.verdict is not None:
        sys.exit(exit_status(summary.verdict))
    return None


def _watched(
    checked: CheckedExperiment,
    folder: Path,
    board: Board,
    live: bool,
    metrics: str | None,
    quiet: bool,
    stack: contextlib.ExitStack,
) -> Live:
    """What has packets counted, which are shown as asked until `stack` is left."""
    from tailtap.analysis.runs.folder import ExperimentFolder
    from tailtap.cli.progress import showing
    from tailtap.host.cpu.cpus import away_from
    from tailtap.measure.live import Live

    made = [experiment for _, experiment in checked.combinations]
    senders = {cpu for one in made for cpu in one.senders}
    served = {cpu for one in made if one.traits.has_dut for cpu in one.dut.cpus}
    cpus = away_from(senders, served)
    stack.enter_context(showing(board, live=live, metrics=metrics, quiet=quiet, cpus=cpus))
    return Live(ExperimentFolder(folder), board)


def stations_of_file(
    checked: CheckedExperiment, path: Path | None, *, quiet: bool
) -> tuple[Stations | None, Boots | None]:
    """The stations of a testbed, between whose cards the experiment is measured then, and what
    boots the DuT's; without a file none of them.
    """
    if path is None:
        return None, None
    from tailtap.measure.testbed.boot.booting import booting_of, stations_of
    from tailtap.measure.testbed.model import cables_of, read_testbed

    testbed = read_testbed(path)
    with naming(str(path)):
        checked.wire(cables_of(testbed, checked.entries))
    tell = unless(quiet)
    return stations_of(testbed, tell), booting_of(testbed, testbed.roles.dut, tell)


def _check(
    checked: CheckedExperiment,
    out: Path,
    stations: Stations | None,
    boots: Boots | None,
) -> Answer:
    """What is known before anything is made."""
    from tailtap.experiment.plan import make_plan
    from tailtap.measure.check import check_experiment

    outlook = check_experiment(checked, out, stations, boots)
    impossible = [run for run in outlook.runs if run.problems]
    problem = None
    if outlook.problems:
        problem = MachineError(f"nothing would be begun: {outlook.problems[0].message}")
    elif impossible:
        problem = MachineError(
            f"{len(impossible)} of {len(outlook.runs)} runs are not possible, {impossible[0].slug} "
            f"first: {impossible[0].problems[0].message}"
        )
    return Answer(outlook, lambda: print_outlook(outlook, make_plan(checked)), problem=problem)


def _against(
    new: Path,
    base: Path,
    set_: Sequence[str],
    base_set: Sequence[str],
    *,
    at: float,
    worse_than: float,
    within: int,
    out: Path | None,
    quiet: bool,
) -> Answer:
    """Measure one experiment against another."""
    from tailtap.cli.progress import campaign_in
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.pairs import Question, measure_against

    question = Question(
        read_experiment(new, set_), new, read_experiment(base, [*set_, *base_set]), base,
        at, worse_than, within,
    )  # fmt: skip
    with campaign_in(out, f"{question.new.name}-against", quiet=quiet) as campaign:
        found = measure_against(question, campaign)
    status = {"better": 0, "no worse": 0, "worse": 1, "not shown": 5}[found.answer]

    def show() -> None:
        say(against_text(found, worse_than))
        say(f"results: {campaign.out}")

    return Answer(found, show, status)


def against_text(found: AgainstRecord, worse_than: float) -> str:
    """The answer and what it rests on."""
    from tailtap.analysis.evaluation.values import label

    low = "0" if found.low is None else f"{found.low:.3g}"
    high = "no limit" if found.high is None else f"{found.high:.3g}"
    ratio = (
        "" if found.ratio is None else f"is {found.ratio:.3g} times the base's ({low} to {high}), "
    )
    spoiled = f", {found.spoiled} spoiled" if found.spoiled else ""
    return (
        f"{found.answer}: {label(found.p)} {ratio}after {format_count(len(found.pairs), 'pair')}"
        f"{spoiled}; worse means more than {format_share(worse_than)} longer"
    )


def differences(differs: Sequence[str]) -> Iterator[str]:
    """The lines that say how an experiment differs from the one that it follows."""
    if differs:
        yield "this experiment differs from the one that it follows:"
        yield from (f"- {sentence}" for sentence in differs)


def print_outlook(outlook: RunCheckRecord, plan: Sequence[PlannedRun]) -> None:
    """Print the runs of a plan with the numbers of what was found, and below it what that is."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections import Cell, Column, row, table

    for line in differences(outlook.differs):
        say(line)
    numbers: dict[str, int] = {}
    possible = "yes" if outlook.as_root else "as root"
    rows = []
    for run in outlook.runs:
        said = [one.message for one in (*run.problems, *run.notes)]
        places = sorted({numbers.setdefault(text, len(numbers) + 1) for text in said})
        answer = Cell("no", "alarm") if run.problems else possible
        rows.append(row(run.slug, answer, ", ".join(map(str, places))))
    columns = Column("run", wrap=16), Column("possible"), Column("see", wrap=8)
    print_table(table("", columns, rows))
    print_networks(plan)
    remarks = [row(str(number), text) for text, number in numbers.items()]
    remarks += [row("all", one.message) for one in (*outlook.problems, *outlook.notes)]
    if remarks:
        say()
        print_table(table("", (Column(right=True), Column(wrap=24)), remarks))
        say()
    takes = f"{outlook.traffic_seconds / 60:.1f} min of traffic, "
    takes += f"{format_count(outlook.boots, 'boot')}, " if outlook.boots else ""
    room = (
        f"{outlook.room_bytes / 1e6:.1f} MB of them at once, "
        if outlook.room_bytes < outlook.stamp_bytes
        else ""
    )
    say(
        f"{len(outlook.runs)} runs: {takes}{outlook.stamp_bytes / 1e6:.1f} MB of stamps, "
        f"{room}{outlook.free_bytes / 1e6:.1f} MB free"
    )


LONGEST = 8
"""Of more nodes in a row the inner ones are left out."""
IN, OUT = "in", "out"


@dataclass(frozen=True)
class Drawing:
    """What is drawn of a network; equal for runs that are wired alike."""

    nodes: tuple[tuple[str, ...], ...]
    """Name, platform, forwarder, CPUs, and neighbours of each; empty for a line of equal nodes."""
    flows: tuple[tuple[str, ...], ...]
    """Name, rate and path of each."""


def drawing_of(experiment: Experiment) -> Drawing:
    """How its nodes are joined, and the ways of its flows."""
    graph, dut = experiment.graph(), experiment.dut
    paths = {flow.name: (IN, *flow.passed, OUT) for flow in graph.flows}
    beside: dict[str, dict[str, None]] = {}
    for path in paths.values():
        for before, after in pairwise(path):
            beside.setdefault(before, {})[after] = None
            beside.setdefault(after, {})[before] = None
    rows = tuple(
        (
            one.name,
            one.dut.platform,
            one.dut.forwarder,
            ranges(one.cpus),
            ", ".join(beside[one.name]),
        )
        for one in dut.members
        if one.name in beside and (dut.named_nodes or dut.flows)
    )
    flows = tuple(
        (name, format_rate(experiment.traffic_of(name).rate), chain(path))
        for name, path in paths.items()
    )
    return Drawing(rows, flows)


def chain(path: Sequence[str]) -> str:
    """A path as `dut.links` has it."""
    if len(path) > LONGEST + 2:
        path = [*path[:3], "…", *path[-2:]]
    return " - ".join(path)


def print_networks(runs: Iterable[PlannedRun]) -> None:
    """Print each network that has several nodes or flows once, with the runs that have it."""
    found: dict[Drawing, list[str]] = {}
    known: dict[int, Drawing] = {}  # repeats are the same experiment
    for run in runs:
        experiment = run.experiment
        if len(experiment.dut.members) == 1 and not experiment.dut.flows:
            continue
        if id(experiment) not in known:
            known[id(experiment)] = drawing_of(experiment)
        found.setdefault(known[id(experiment)], []).append(run.slug)
    for drawing, slugs in found.items():
        more = f" and {len(slugs) - 1} more" if len(slugs) > 1 else ""
        if not drawing.nodes:
            say(f"{slugs[0]}{more}: {drawing.flows[0][-1]}")
            continue
        say()
        say(f"network of {slugs[0]}{more}:")
        _print_network(("node", "platform", "forwarder", "CPUs", "joined with"), drawing.nodes)
        _print_network(("flow", "rate", "path"), drawing.flows)
    if found:
        say()


def _print_network(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from tailtap.cli.console import print_table
    from tailtap.show.sections import row, table, words

    print_table(table("", words(*names, wrap=10), (row(*one) for one in rows)))

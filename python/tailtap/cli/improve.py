"""`tailtap improve`: try what may lower the tail, and show what does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.errors import InputError
from tailtap.cli.command import (
    CPUS,
    PATH,
    SHARE,
    TIME,
    Answer,
    command,
    measuring,
    require_out,
    undisturbed_latencies,
)
from tailtap.cli.terminal import say, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtap.measure.improve import Improvement, Plan
    from tailtap.records.search import ImproveRecord, ImproveSettings

FORMATS = {"tuned": "tuned.conf", "sysctl": "sysctl.conf", "ansible": "ansible.yaml"}
"""Those of `tailtap host export`, and the file in --out that each goes into."""


@command(
    examples=(
        (
            "sudo tailtap improve examples/improve.yaml --require 'p99.9 < 1 ms' --within 30min",
            "try what may help, put everything back, and say what helped",
        ),
        (
            "sudo tailtap improve examples/improve.yaml --keep --export tuned",
            "with the file's requirement; keep what helped, and write it for tuned",
        ),
        (
            "sudo tailtap improve --observe eth0 eth1 --require 'p99 < 1 ms' --for '20 s'",
            "what forwards between two interfaces, under its own load",
        ),
    )
)
@click.argument(
    "experiment",
    type=PATH,
    required=False,
    metavar="[EXPERIMENT]",
    help="The experiment file (YAML); none with --observe.",
)
@click.option(
    "--observe",
    nargs=2,
    metavar="IN OUT",
    help="Improve what forwards packets between these interfaces (as of `tailtap observe`) "
    "under its own load. Each run is a stretch of that.",
)
@click.option(
    "--for", "stretch", default="10 s", type=TIME, help="How long a stretch of --observe is."
)
@click.option(
    "--cpus",
    type=CPUS,
    help="The CPUs on which packets are served, with --observe; by default found out.",
)
@click.option(
    "--filter",
    "filter_",
    metavar="EXPRESSION",
    help="With --observe, only packets of which this is true, as `tailtap tap --filter`.",
)
@click.option(
    "--require",
    metavar="REQUIREMENT",
    help="A percentile, such as 'p99.9 < 1 ms', or 'reliability(1 ms) >= 99.9 %'; by default that "
    "of the file.",
)
@click.option("--within", default="30min", type=TIME, help="When to end at the latest.")
@click.option(
    "--margin",
    default="20%",
    type=SHARE,
    help="A smaller effect on the share of late packets counts as none.",
)
@click.option(
    "--disruptive",
    is_flag=True,
    help="Also try what takes links of the experiment's cards down, and what can do harm.",
)
@undisturbed_latencies
@click.option(
    "--keep",
    is_flag=True,
    help="Leave what helped set, until `tailtap host revert`.",
)
@click.option(
    "--export",
    "exports",
    multiple=True,
    metavar="FORMAT",
    type=click.Choice(FORMATS),
    help=f"Write what helped as `tailtap host export` does: {', '.join(FORMATS)}; may be repeated.",
)
@measuring(resume="Go on with what was interrupted in --out; --within begins anew.")
def improve(
    experiment: Path | None,
    observe: tuple[str, str] | None,
    stretch: int,
    cpus: list[int] | None,
    filter_: str | None,
    require: str | None,
    within: int,
    margin: float,
    disruptive: bool,
    undisturbed: bool,
    keep: bool,
    exports: tuple[str, ...],
    set_: tuple[str, ...],
    out: Path | None,
    resume: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Try the knobs that answer why packets are late, and keep those that help.

    Measures with a trace, explains, and takes the knobs of `tailtap host` that answer the causes
    found, can be set at runtime, and are not as they should be. Blocks of runs, one with each and
    one with none, in random order, try them. What helps is kept, and causes are looked for again,
    until the requirement holds, nothing is left, or the time is over. Each run puts the machine
    back.

    Compared is the share of packets later than required, or lost. A knob without effect is said to
    help with a probability of at most 5 %, over all of them. docs/howto/improve.md explains the
    answers.

    --out holds every run, and improve.json. The exit status is 0 when the requirement holds in the
    end, 1 when violated, 5 when not shown.
    """
    from tailtap.cli.progress import campaign_in
    from tailtap.measure.improve import improve as try_knobs
    from tailtap.measure.improve import settings_of

    if (experiment is None) == (observe is None):
        raise InputError("give an experiment file, or --observe IN OUT")
    require_out(out, resume=resume)
    asked = settings_of(within, margin, disruptive=disruptive, undisturbed=undisturbed)
    if observe is not None:
        plan = _observed(observe, stretch, cpus, filter_, require, asked)
    elif experiment is not None:
        plan = _experiment(experiment, set_, require, asked)
    with campaign_in(out, f"{plan.name}-improve", quiet=quiet, resume=resume) as campaign:
        found = try_knobs(plan, campaign)
        files = [_export(found, name) for name in exports if found.record.kept]
    if keep and found.record.kept:
        for name, why in found.apply():
            warn(f"tailtap: {name} helped, and is not kept: {why}")
    status = {"holds": 0, "violated": 1, "not shown": 5}[found.record.answer]
    return Answer(found.record, lambda: _print(found.record, files, campaign.out), status)


def _print(record: ImproveRecord, files: Sequence[Path], folder: Path) -> None:
    print_improvement(record)
    for file in files:
        say(f"wrote {file}")
    say(f"results: {folder}")


def _experiment(
    file: Path, changes: tuple[str, ...], require: str | None, settings: ImproveSettings
) -> Plan:
    """The plan for an experiment file. Raises `InputError`."""
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.improve import Goal, plan_of_experiment

    checked = read_experiment(file, changes)
    required = list(checked.require) if require is None else [require]
    return plan_of_experiment(checked, file, Goal.of(required), settings)


def _observed(
    ends: tuple[str, str],
    stretch: int,
    cpus: list[int] | None,
    filter_: str | None,
    require: str | None,
    settings: ImproveSettings,
) -> Plan:
    """The plan for a device that is there already. Raises `InputError`."""
    from tailtap.measure.improve import Goal, plan_of_observed
    from tailtap.measure.observe.look import Options

    if not stretch:
        raise InputError("--for: give a time above zero")
    options = Options.of(*ends, duration_ns=stretch, cpus=cpus or (), filter=filter_)
    return plan_of_observed(options, Goal.of([] if require is None else [require]), settings)


def _export(found: Improvement, name: str) -> Path:
    """Write what helped as a file of another program."""
    from tailtap.base.files import write_text
    from tailtap.host.tuning.exports import FORMATS as KNOWN
    from tailtap.host.tuning.exports import content

    made = KNOWN[name](content(found.explainer.tree, found.explainer.purpose, found.record.kept))
    folder = found.campaign.out
    write_text(folder / FORMATS[name], made.text, below=folder)
    return folder / FORMATS[name]


def print_improvement(record: ImproveRecord) -> None:
    """Print a row for each trial, then what is left, and what holds."""
    from tailtap.cli.console import print_section
    from tailtap.show.sections.answers import improvement_section

    print_section(improvement_section(record))
    if record.kept:
        names = " ".join(record.kept)
        how = (
            "they stay set: `tailtap host revert` puts them back"
            if record.applied
            else f"set them: sudo tailtap host apply {names} {record.purpose}"
        )
        say(f"proven: {', '.join(record.kept)}; {how}")

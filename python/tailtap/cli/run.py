"""`tailtap run`: make the measurements of an experiment file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.completing import experiment_files
from tailtap.cli.options import experiment_file, measuring, require_out

if TYPE_CHECKING:
    from tailtap.experiment.reading import CheckedExperiment
    from tailtap.measure.boots import Boots
    from tailtap.measure.run import Stations


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
@measuring(unfinished="runs")
@click.option(
    "--testbed",
    type=PATH,
    shell_complete=experiment_files,
    help="A testbed file (YAML): generator, timestamper and DuT are on the hosts that it says.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Measure nothing: plan the runs and say what of them this machine cannot do.",
)
def run(
    experiment: Path,
    set_: tuple[str, ...],
    out: Path | None,
    resume: bool,
    testbed: Path | None,
    check: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Measure the latency of every packet through a device under test, on this machine.

    The experiment file says what to send through what:

    \b
        name: container-vs-bare-metal
        dut: {forwarder: tc-mirred, cpus: [1]}
        traffic: {rate: 10 kpkt/s, size: 64 B, duration: 10 s, cpu: 0}
        vary: {dut.platform: [wire, bare-metal, container]}
        repeat: 3

    docs/experiment.md describes every key, with its unit, default and an example, and how an
    editor completes the file; `python -m tailtap.experiment.reference` prints that page.

    With --check nothing is made: every planned run is shown with what is missing for it, and how
    to get it. Exit status 0 when this machine can make all runs, 3 when it cannot make some.

    The generator, the taps and the device are network namespaces joined by virtual links; this
    needs root. Each run is stored with its evaluation in a folder of its own, and all evaluations
    in results.duckdb. Ctrl-C keeps the finished runs, and --resume makes the rest. A run that fails
    is recorded with its reason while the others go on, and the exit status is 3. With `require` in
    the file, the verdict follows, and the exit status is 1 unless everything holds.
    """
    import json as json_module

    from tailtap.cli.flows import print_flows
    from tailtap.cli.hops import print_hops
    from tailtap.cli.outlook import differences
    from tailtap.cli.runs import print_runs
    from tailtap.cli.verdict import exit_status, print_verdict
    from tailtap.errors import InputError, MachineError
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.runner import default_folder, run_experiment
    from tailtap.results.summary import summarize

    checked = read_experiment(experiment, set_, on_testbed=testbed is not None)
    stations, boots = None, None
    if testbed is not None:
        if check:
            raise InputError("--check asks this machine: `tailtap testbed check` asks a testbed's")
        stations, boots = _stations(checked, testbed, quiet=quiet)
    if check:
        if resume:
            raise InputError("--check asks about the whole experiment: leave --resume out")
        _check(checked, out or default_folder(checked.name), json=json)
        return
    require_out(out, resume=resume)
    from tailtap import store  # after what needs no database: loading it takes a third of a second

    folder = out or default_folder(checked.name)
    if not quiet:
        for line in differences(checked.differs):
            print(line, file=sys.stderr)
    runs = run_experiment(
        checked, experiment, folder, store=store, resume=resume, quiet=quiet,
        stations=stations, testbed=testbed, boots=boots,
    )  # fmt: skip
    summary = summarize(folder, runs)
    verdict = None
    if checked.require and any(run.done for run in runs):
        verdict = _judge(folder, checked.require)
    if json:
        print(json_module.dumps({**summary, "verdict": verdict}))
    else:
        print_runs(summary)
        print_flows(summary)
        print_hops(summary)
        if verdict is not None:
            print_verdict(verdict)
    failed = [row for row in summary["runs"] if row["status"] != "done"]
    if failed:
        raise MachineError(
            f"{len(failed)} of {len(runs)} runs failed, {failed[0]['slug']} first: "
            f"{failed[0]['error']}"
        )
    if verdict is not None:
        sys.exit(exit_status(verdict))


def _stations(
    checked: CheckedExperiment, path: Path, *, quiet: bool
) -> tuple[Stations, Boots | None]:
    """The stations of a testbed, between whose cards the experiment is measured then, and what
    boots the DuT's.
    """
    from tailtap.errors import naming
    from tailtap.testbed.model import read_testbed
    from tailtap.testbed.stations import booting_of, stations_of
    from tailtap.testbed.wiring import cables_of

    def tell(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    testbed = read_testbed(path)
    with naming(str(path)):
        checked.wire(cables_of(testbed))
    return stations_of(testbed), booting_of(testbed, testbed.roles.dut, tell)


def _check(checked: CheckedExperiment, out: Path, *, json: bool) -> None:
    """Say what is known before anything is made. Raises `MachineError` when it is not enough."""
    import json as json_module

    from tailtap.cli.outlook import print_outlook
    from tailtap.errors import MachineError
    from tailtap.measure.check import check_experiment

    outlook = check_experiment(checked, out)
    if json:
        print(json_module.dumps(outlook.as_json()))
    else:
        print_outlook(outlook)
    if outlook.whole.problems:
        raise MachineError(f"nothing would be begun: {outlook.whole.problems[0]}")
    if outlook.impossible:
        run, findings = outlook.impossible[0]
        raise MachineError(
            f"{len(outlook.impossible)} of {len(outlook.runs)} runs are not possible, {run.slug} "
            f"first: {findings.problems[0]}"
        )


def _judge(folder: Path, require: Sequence[str]) -> dict[str, Any]:
    """The verdict as JSON. Loads SciPy, which takes a while: not before it is needed."""
    from tailtap.verdict.record import record
    from tailtap.verdict.requirement import parse_requirements
    from tailtap.verdict.runs import judge_runs

    return record(judge_runs([folder], parse_requirements(require)))

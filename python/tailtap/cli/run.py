"""`tailtap run`: make the measurements of an experiment file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtap.cli.options import Json, Quiet

if TYPE_CHECKING:
    from tailtap.experiment.reading import CheckedExperiment
    from tailtap.verdict.runs import Verdict


def run(
    experiment: Annotated[Path, typer.Argument(help="The experiment file (YAML).")],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Replace one value of the file, such as traffic.rate='20 kpkt/s'; repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for the results; by default the name and the time of day."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Finish the experiment in --out: make what is not done."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Measure nothing: plan the runs and say what of them this machine cannot do.",
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the latency of every packet through a device under test, on this machine.

    The experiment file says what to send through what. Its keys, with their defaults: name;
    dut.platform (bare-metal; container; vm; or wire, which is no DuT at all, for calibration),
    dut.forwarder (tc-mirred; the others and their options: docs/forwarders.md), dut.cpus ([1]),
    dut.options (or as dut.forwarder: {NAME: OPTIONS}); of a container dut.memory, dut.cgroup (1 or
    2, the version of control groups that limits it) and dut.root (host, this machine's own file
    system; or debian); dut.kernel (vanilla, rt, a version or an image) and
    dut.boot (parameters of its command line; {cpus} are the DuT's CPUs), with which a vm boots,
    while the other platforms' runs fail and say what to boot where this machine runs another
    kernel or was booted without them; counters (false; true counts instructions, TLB misses and
    migrations: docs/platforms.md); traffic.generator (af_packet; af_xdp; or
    external, any command in traffic.external.command: {interface}, {rate}, {gap}, {size},
    {packets}, {seconds} and {cpu} are filled in; its packets carry MoonSniff's ids or, with
    traffic.external.key, ids at OFFSET:WIDTH:le|be, as in `tailtap tap --key`),
    traffic.rate (10 kpkt/s), traffic.size
    (64 B; imix; or a list that is sent in turn), traffic.duration (10 s), traffic.warm_up (1 s;
    or traffic.warm_up_packets), traffic.pause after it (0 s), traffic.pattern (constant; burst,
    poisson, on-off, ramp: see `tailtap generate`), traffic.replay (none; or a capture that is sent
    instead, {file: x.pcap, pace: own, ids: stamp}: at its own pace or with pace: rate at ours, as
    often as traffic.duration says, by default once; our ids are written into it unless ids: keep),
    traffic.flows (1; or ranges of src, dst, sport, dport), traffic.ip (4), traffic.vlan (none),
    traffic.cpu (0), traffic.bidirectional (false; true sends the answers to the flows the other
    way at the same time, by a second generator on traffic.reverse_cpu, and makes two runs, one for
    each direction), traffic.slip_limit (100 us: when 1 % of the packets leave later than this after
    their time, the run is marked invalid);
    evaluation.key (auto), evaluation.trim (0 s), evaluation.window (5 s); vary, which maps such
    paths to lists of values and makes a run for each combination; cases, a list of mappings from
    such paths to values that change together, each of which is combined with vary; exclude, a list
    of mappings from varied paths to a value or a list of values: a combination that has all of one
    is left out; repeat (1); scales, which maps
    names to other values of such paths, chosen by `--set scale=NAME`; differs, sentences that say
    how this is not the experiment that it follows; require, a list of what all
    runs must hold (none; see `tailtap verdict`). An error in the file names the line.

    With --check nothing is made: every planned run is shown with what is missing for it (CPUs,
    programs, network cards, another kernel or its boot parameters, a version of control groups,
    huge pages, room on the disk) and how to get it. Exit status 0 when this machine can make all
    runs, 3 when it cannot make some. What only a trial tells is tried by `tailtap doctor`.

    Generator, taps and device are network namespaces joined by virtual links; this needs root.
    Everything about a run is stored in its own folder, its evaluation included, and all
    evaluations in results.duckdb. Ctrl-C keeps the finished runs, and --resume makes the rest. A
    run that fails is recorded with its reason while the others go on, and the exit status is 3.
    With `require`, the verdict follows, and the exit status is 1 unless everything holds.
    """
    import json as json_module

    from tailtap.cli.outlook import differences
    from tailtap.cli.runs import print_runs
    from tailtap.cli.verdict import exit_status, print_verdict
    from tailtap.errors import InputError, MachineError
    from tailtap.experiment.reading import read_experiment
    from tailtap.experiment.runner import default_folder, run_experiment
    from tailtap.experiment.summary import summarize

    checked = read_experiment(experiment, set_ or ())
    if check:
        if resume:
            raise InputError("--check asks about the whole experiment: leave --resume out")
        _check(checked, out or default_folder(checked.name), json=json)
        return
    if resume and out is None:
        raise InputError("--resume needs --out DIR: the folder of the experiment to finish")
    folder = out or default_folder(checked.name)
    if not quiet:
        for line in differences(checked.differs):
            print(line, file=sys.stderr)
    runs = run_experiment(checked, experiment, folder, resume=resume, quiet=quiet)
    summary = summarize(folder, runs)
    verdict, told = None, None
    if checked.require and any(run.done for run in runs):
        verdict, told = _judge(folder, checked.require)
    if json:
        print(json_module.dumps({**summary, "verdict": told}))
    else:
        print_runs(summary)
        if verdict is not None:
            print_verdict(verdict)
    failed = [row for row in summary["runs"] if row["status"] != "done"]
    if failed:
        raise MachineError(
            f"{len(failed)} of {len(runs)} runs failed, {failed[0]['slug']} first: "
            f"{failed[0]['error']}"
        )
    if verdict is not None:
        raise typer.Exit(exit_status(verdict))


def _check(checked: CheckedExperiment, out: Path, *, json: bool) -> None:
    """Say what is known before anything is made. Raises `MachineError` when it is not enough."""
    import json as json_module

    from tailtap.cli.outlook import print_outlook
    from tailtap.errors import MachineError
    from tailtap.experiment.check import check_experiment

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


def _judge(folder: Path, require: Sequence[str]) -> tuple[Verdict, dict[str, Any]]:
    """The verdict and its JSON. Loads SciPy, which takes a while: not before it is needed."""
    from tailtap.verdict.record import record
    from tailtap.verdict.requirement import parse_requirements
    from tailtap.verdict.runs import judge_runs

    verdict = judge_runs([folder], parse_requirements(require))
    return verdict, record(verdict)

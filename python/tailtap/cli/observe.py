"""`tailtap observe`: measure a device that is in service, as it is."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.base.units import format_count, format_share
from tailtap.cli.command import CPUS, SHARE, SIZE, TIME, command, watched, writes_into
from tailtap.cli.terminal import say, unless, warn, warn_of, width_of

if TYPE_CHECKING:
    from tailtap.analysis.runs.folder import RunFolder
    from tailtap.measure.campaign import Campaign
    from tailtap.measure.observe.look import Options
    from tailtap.measure.observe.prepared import Prepared
    from tailtap.measure.observe.recording import Recording
    from tailtap.records.live import RecordingRecord


def _print(told: RecordingRecord, out: Path) -> None:
    """What became of all packets, and of the incidents."""
    from rich.console import Console

    from tailtap.cli.progress import drawn

    Console(width=width_of(sys.stdout)).print(drawn(told.numbers))
    for count, why in (
        (told.dropped_limit, "were more than --incidents"),
        (told.dropped_rate, "came faster than --rate"),
        (told.dropped_busy, "came while too many others were being made"),
        (told.dropped_disk, "found no room on the disk"),
    ):
        if count:
            say(f"not kept: {format_count(count, 'incident')} {why}")
    say(f"results: {out}")


@command(
    examples=(
        ("sudo tailtap observe eth0 eth1 --for '60 s' --out today", "a bridge or a router"),
        ("sudo tailtap observe container:web/eth0 --for '60 s'", "a server in a container"),
        ("sudo tailtap observe tap0 tap1 --both --trace none", "a virtual machine, both ways"),
    )
)
@click.argument(
    "ingress",
    metavar="IN",
    help="[PLACE/]INTERFACE[@arrival|@egress]: where packets are stamped before the "
    "device. PLACE is a network namespace by name or path, container:NAME, pid:NUMBER "
    "or pod:NAME; by default the current one. @arrival: as they come in; @egress: as "
    "they leave; by default a look tells.",
)
@click.argument(
    "egress",
    required=False,
    metavar="[OUT]",
    help="The same behind the device. Without it IN is a server's interface.",
)
@click.option("--for", "duration_ns", type=TIME, help="How long, '60 s'; else until SIGINT.")
@click.option(
    "--packets",
    type=click.IntRange(min=1),
    help="End when so many packets have passed at each place.",
)
@writes_into("The folder for the results; by default 'observed' and the time of day.")
@click.option("--both", is_flag=True, help="Observe the way back as well, as a second run.")
@click.option(
    "--trace",
    default="thin",
    type=click.Choice(("thin", "full", "none")),
    help="What is recorded of the cores that serve, as `tailtap trace --mode`.",
)
@click.option(
    "--cpus",
    type=CPUS,
    help="The CPUs on which packets are served, '2-3,5'; by default found out.",
)
@click.option(
    "--served",
    multiple=True,
    metavar="BY[:PID,...]",
    help="By what packets are served, as `tailtap trace --served`; by default found out.",
)
@click.option(
    "--key",
    help="What packets are matched by, as `tailtap evaluate --key`; by default found out.",
)
@click.option(
    "--filter",
    metavar="EXPRESSION",
    help="Only packets of which this is true, as `tailtap tap --filter`: 'udp port 53'.",
)
@click.option(
    "--sample",
    metavar="1/N",
    help="One packet of N, the same ones in both places, as `tailtap tap --sample`.",
)
@click.option(
    "--budget",
    default="2 %",
    type=SHARE,
    help="The share of the serving cores' time that observing may take, half for taps and "
    "half for the trace; both are thinned to it. '100 %' for any.",
)
@click.option(
    "--above",
    multiple=True,
    metavar="WHAT",
    help="Keep incidents only: what surrounds packets that took longer than a time ('200 "
    "us'), were lost ('loss'), or a percentile that rose ('p99.9 > 1 ms over 10 s'); "
    "may be repeated. The rest is only counted.",
)
@click.option(
    "--keep",
    "keep_ns",
    default="1 s",
    type=TIME,
    help="How long before its cause an incident begins; a later packet is lost.",
)
@click.option(
    "--incidents",
    type=click.IntRange(min=1),
    default=100,
    help="At most so many incidents; more are counted.",
)
@click.option(
    "--rate",
    metavar="NUMBER/TIME",
    help="At most so many incidents in a time: 1/min, 10/h.",
)
@click.option(
    "--then",
    metavar="COMMAND",
    help="Run this by sh for each incident, with its folder as $TAILTAP_INCIDENT, what made it "
    "as $TAILTAP_WHY, and its late packets as $TAILTAP_PACKETS.",
)
@click.option(
    "--memory",
    default="1 GB",
    type=SIZE,
    help="What waits in memory (/dev/shm) takes this much at most.",
)
@watched
@click.option(
    "--look",
    "look_ns",
    default="1 s",
    type=TIME,
    help="How long packets are looked at before, twice; less where many pass.",
)
def observe(
    *,
    ingress: str,
    egress: str | None,
    above: tuple[str, ...],
    keep_ns: int,
    incidents: int,
    rate: str | None,
    then: str | None,
    memory: int,
    cpus: list[int] | None,
    sample: str | None,
    out: Path | None,
    live: bool,
    metrics: str | None,
    json: bool,
    quiet: bool,
    **others: Any,
) -> None:
    """Stamp the packets that pass a device which is there already, and trace who serves them.

    IN and OUT are interfaces that packets pass on their way: ports of a bridge, a router, a
    firewall, a container or a pod, or tap devices of a virtual machine. Nothing is changed; the
    eBPF programs vanish with the process.

    A look finds which way packets go, what they are matched by and which cores serve them. Then
    they are stamped until --for, --packets or SIGINT. The folder has a run like those of `tailtap
    run`. The exit status is 3 when it has no result. docs/howto/observe.md has more.
    """
    unless(quiet)(f"observe: looking at {' and '.join(filter(None, (ingress, egress)))}")
    from tailtap.cli.progress import campaign_in
    from tailtap.cli.tap import parse_sample
    from tailtap.measure.observe import observe as observe_devices
    from tailtap.measure.observe.look import Options
    from tailtap.measure.observe.recording import Recording, parse_rate

    pace = None if rate is None else parse_rate(rate)
    recording = Recording(above, keep_ns, incidents, pace, then, memory)
    one_of = 1 if sample is None else 1 << parse_sample(sample)
    options = Options.of(ingress, egress, **others, cpus=cpus or (), sample=one_of)
    with campaign_in(out, "observed", quiet=quiet, watched=live) as campaign:
        if above or live or metrics is not None:
            if not above and not quiet:
                warn("without --above nothing but numbers is kept")
            _record(options, recording, campaign, live, metrics, json, quiet)
            return
        runs = observe_devices(options, campaign)
        from tailtap.analysis.runs.flows import summarize
        from tailtap.cli.results import problem_of
        from tailtap.records.record import printed

        summary = summarize(campaign.out, runs)
        if json:
            print(printed(summary))
        else:
            _show(campaign.out, runs, quiet=quiet)
    if problem := problem_of(summary.runs):
        raise problem


def _record(
    options: Options,
    recording: Recording,
    campaign: Campaign,
    live: bool,
    metrics: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Keep incidents, and print what became of all packets.

    Raises what `record` raises, and `MachineError` when not all incidents could be kept.
    """
    from tailtap.analysis.live.numbers import Board
    from tailtap.base.errors import MachineError
    from tailtap.cli.progress import showing
    from tailtap.host.cpu.cpus import away_from
    from tailtap.measure.observe.recorder import record
    from tailtap.records.record import printed

    board = Board()
    with contextlib.ExitStack() as stack:

        def show(prepared: Prepared) -> None:
            cpus = away_from(prepared.serving.cpus)
            stack.enter_context(showing(board, live=live, metrics=metrics, quiet=quiet, cpus=cpus))

        recorded = record(options, recording, campaign, board=board, on_begin=show)
    if json:
        print(printed(recorded))
    else:
        _print(recorded, campaign.out)
    if recorded.ended is not None:
        raise MachineError(recorded.ended)


def _show(folder: Path, runs: list[RunFolder], *, quiet: bool) -> None:
    """What `tailtap evaluate` prints of each run, its warnings, and what to do next."""
    from tailtap.analysis.evaluation import Evaluation
    from tailtap.analysis.evaluation.values import DEFAULT
    from tailtap.cli.analyses import explain_briefly
    from tailtap.cli.results import show

    done = [run for run in runs if run.done]
    for run in done:
        if len(runs) > 1:
            say(run.path.name)
        show(Evaluation.load(run.evaluation), DEFAULT, 0, 0, None, json=False, quiet=quiet)
        record = run.read()
        if record.observed is not None and (cost := record.observed.cost) is not None:
            say(
                f"of the serving cores' time, the taps took {format_share(cost.taps)} and the "
                f"trace {format_share(cost.trace)}"
            )
        warn_of(() if quiet else record.warnings)
    explain_briefly(folder, [run.path for run in done])
    say(f"results: {folder}")
    if not quiet and done:
        warn(
            f"next: tailtap report {folder}; tailtap explain {folder}; "
            f"tailtap verdict {folder} --require 'p99.9 < 1 ms'"
        )

"""`tailtap evaluate`: match two captures and show the tail of the latency."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.base.errors import InputError, MachineError, NothingMatched, TailtapError
from tailtap.cli.command import PATH, SIZE, TIME, Where, command, refuse, writes_into
from tailtap.cli.terminal import unless, warn

if TYPE_CHECKING:
    from tailtap.analysis.evaluation import Evaluation
    from tailtap.analysis.evaluation.evaluate import Direction, Settings
    from tailtap.analysis.evaluation.sources import Source
    from tailtap.analysis.evaluation.transactions import Transactions
    from tailtap.records.evaluation import From, Match


@command(
    computes=True,
    examples=(
        (
            "tailtap evaluate in.pcap out.pcap",
            "the tail of the latency between two captures",
        ),
        (
            "tailtap evaluate in.pcap out.pcap --trim '1 s' --percentiles 50,99.99 --json",
            "two percentiles without the first second, as JSON",
        ),
        (
            "tailtap evaluate in.pcap out.pcap --losses 20",
            "the same, and the first 20 packets that were lost",
        ),
        (
            "tailtap evaluate in.pcap out.pcap --by flow --filter 'udp and net 10.1.0.0/16'",
            "losses and latencies of each flow, of these packets alone",
        ),
        (
            "tailtap evaluate in.pcap out.pcap --back back-out.pcap back-in.pcap",
            "captures of two clocks, aligned by packets both ways",
        ),
        (
            "tailtap evaluate both.pcapng --ingress interface:eth0 --egress interface:eth1",
            "both sides in one file, by the interfaces that captured them",
        ),
        (
            "tcpdump -i eth0 -w - | tailtap evaluate - 'ring/out*.pcap'",
            "a capture that comes through a pipe, and one of several files",
        ),
        (
            "tailtap evaluate results/first --window '10 s' --out results/first-10s",
            "all runs of an experiment again, into a folder of its own",
        ),
        (
            "tailtap evaluate server.pcap --match transactions --out waits",
            "how long requests waited for their answers: TCP, TLS, DNS, HTTP, ping and others",
        ),
    ),
)
@click.argument(
    "ingress",
    type=PATH,
    help="Capture from before the device: a file, a pipe, '-', or several files in their "
    "order, as a folder or a pattern in quotes. Alone: a capture of both sides, or of "
    "requests and answers; or an experiment's folder.",
)
@click.argument(
    "egress",
    required=False,
    type=PATH,
    help="Capture from after the device, given in the same ways.",
)
@click.option(
    "--ingress",
    "before",
    metavar="SELECT",
    help="Which packets of INGRESS are from before the device: interface:NUMBER or "
    "interface:NAME of a pcapng file, vlan:ID or vlan:none, from:MAC, copy:1 (the first "
    "copy of each packet); several with commas. By default all; of one capture with both "
    "sides, what its packets show.",
)
@click.option(
    "--egress",
    "behind",
    metavar="SELECT",
    help="Which packets of EGRESS are from after the device; of INGRESS, where it is given alone.",
)
@click.option(
    "--filter",
    "filter_",
    metavar="EXPRESSION",
    help="Take only packets of which this is true, on both sides, in the words of libpcap (`man "
    "pcap-filter`): 'udp port 53 and net 10.1.0.0/16'.",
)
@click.option(
    "--filter-after",
    metavar="EXPRESSION",
    help="The same for EGRESS, where the device changes what --filter names; '' takes all.",
)
@click.option(
    "--direction",
    type=click.Choice(("there", "back", "both")),
    help="Of captures of both directions: 'there' or 'back' alone; 'both' takes all "
    "packets as one. By default each by itself.",
)
@click.option(
    "--key",
    help="What packets are matched by: 'auto', the default, looks for a key and says what it "
    "chose; 'packet' and its kinds ('packet-nat', ...); 'moonsniff'; 'signature'; an "
    "integer of the frame, OFFSET:WIDTH:le|be, of a header or payload, udp.payload+0:4:le, "
    "or at the end, -12:4:le; ip.id, tcp.seq and others have names "
    "(docs/reference/captures.md).",
)
@click.option(
    "--key-after",
    metavar="KEY",
    help="Where the number that --key names stands in EGRESS, or in answers, if elsewhere; of "
    "the same width.",
)
@click.option(
    "--match",
    default="auto",
    type=click.Choice(("auto", "packets", "transactions")),
    help="'packets' before and behind a device; 'transactions' in one capture, or requests "
    "in INGRESS and answers in EGRESS. 'auto': transactions where there is one "
    "capture, or no packet is in both.",
)
@click.option(
    "--from",
    "since",
    default="first",
    type=click.Choice(("first", "last")),
    help="Which of repeated requests a transaction's time counts from.",
)
@click.option(
    "--trim",
    "trim_ns",
    type=TIME,
    help="Leave out packets that left the device this soon after the first.",
)
@click.option(
    "--window",
    "window_ns",
    type=TIME,
    help="A packet must leave the device within this time, by default 5 s.",
)
@click.option(
    "--percentiles",
    default="default",
    help="Percentiles to list: 'default', 'papers' (the 275 of the published result "
    "files) or percentages such as 50,99.9,99.999.",
)
@click.option(
    "--worst",
    default=5000,
    type=click.IntRange(min=0, max=10**9),
    help="How many of the worst packets to keep.",
)
@click.option(
    "--losses",
    default=0,
    type=click.IntRange(min=0),
    help="Print the first so many lost packets.",
)
@click.option(
    "--by",
    type=click.Choice(("flow",)),
    help="Losses and latencies of each flow as well: 24 bytes of memory for each packet.",
)
@click.option(
    "--bucket",
    "bucket_ns",
    default="100 ns",
    type=TIME,
    help="Width of the histograms' buckets.",
)
@click.option(
    "--egress-ahead",
    metavar="LEAST..MOST",
    help="The clock of EGRESS is ahead of that of INGRESS by this much all the time, such as '-3 "
    "us..5 us'.",
)
@click.option(
    "--clocks",
    type=PATH,
    help="How the clocks of both captures are: what `tailtap tap --clock hardware --json` printed "
    "when it wrote them.",
)
@click.option(
    "--back",
    nargs=2,
    type=PATH,
    metavar="BEFORE AFTER",
    help="Align two clocks by packets the other way: BEFORE has the clock of EGRESS, AFTER "
    "that of INGRESS.",
)
@click.option(
    "--format",
    type=click.Choice(("pcap", "pcapng", "erf", "mscap", "stamps", "marks")),
    help="Format of both captures where neither content nor suffix says it.",
)
@click.option(
    "--nanoseconds",
    metavar="SIDE",
    type=click.Choice(("ingress", "egress", "both")),
    help="The stamps of ingress, egress or both are nanoseconds, although the file says "
    "microseconds.",
)
@click.option(
    "--stamps",
    metavar="SOURCE",
    type=click.Choice(("record", "trailer")),
    help="The stamps of switches behind each frame ('trailer', the default where both have "
    "them), or of the capturing program ('record').",
)
@click.option(
    "--throughout",
    is_flag=True,
    default=None,
    help="Both captures ran all the time: what EGRESS misses at its ends is lost.",
)
@writes_into(
    "Write all tables as Parquet files, and evaluation.json, into DIR (DIR/back: the way "
    "back). Of a folder: put the results into DIR, a new experiment folder."
)
@click.option(
    "--replace",
    is_flag=True,
    help="Replace results that were made with other settings, or of other captures.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on the cluster of this Dask scheduler, tcp://10.0.0.1:8786, whose workers have "
    "the same tailtap and see the same files. Needs `pip install distributed`.",
)
@click.option(
    "--chunk",
    type=SIZE,
    help="Evaluate larger captures in pieces of this size side by side, by default 1 GiB.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="How many pieces to evaluate at once; by default one for each CPU.",
)
def evaluate(
    ingress: Path,
    egress: Path | None,
    before: str | None,
    behind: str | None,
    filter_: str | None,
    filter_after: str | None,
    direction: Direction | None,
    match: Match,
    since: From,
    percentiles: str,
    worst: int,
    losses: int,
    by: str | None,
    egress_ahead: str | None,
    clocks: Path | None,
    back: tuple[Path, Path] | None,
    out: Path | None,
    replace: bool,
    scheduler: str | None,
    chunk: int | None,
    jobs: int | None,
    json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Match the packets of two captures and show the tail of the latency between them.

    Reads pcap, pcapng, ERF, MoonSniff's mscap and tailtap's files of stamps and marks, also
    compressed, with or without Ethernet headers (docs/reference/captures.md). Needs no privileges.
    Percentiles are exact, with 95 % confidence intervals; those with fewer than ten packets above
    are marked as not supported.

    Of one capture with both sides, interfaces, VLANs, hardware addresses or copies tell the sides
    apart. Where both captures hold both directions, each is evaluated by itself.

    Of a folder of `tailtap run`, all finished runs are evaluated again. With other settings (--key,
    --trim, --window, --bucket, --worst) results go to --out, or take the old ones' place
    (--replace). A run that cannot be evaluated keeps its results, and the exit status is not 0.

    --match transactions takes requests and answers: TCP's handshake, TLS, DNS, HTTP, ping, QUIC,
    NTP, PTP, GTP-U's echo, and with --key an id at any place. --out gets a folder for each kind.

    Captures of two clocks need their offset: --egress-ahead, --clocks, --back, or both directions
    in both captures. Every bound and verdict has what it leaves open. A clock that stepped is
    refused.
    """
    from tailtap.analysis.evaluation.clocks import known, parse_interval, told_by_tap
    from tailtap.analysis.evaluation.evaluate import Settings
    from tailtap.analysis.evaluation.transactions import Transactions
    from tailtap.analysis.evaluation.values import parse_list

    ps = parse_list(percentiles)
    where = Where(scheduler, chunk, jobs, quiet)
    given = {name: value for name, value in options.items() if value is not None}
    given["worst"] = worst
    selects = (before, behind)
    if egress is not None or any(selects) or not ingress.is_dir():
        if out is not None:
            _load_writer()
        if sum(one is not None for one in (egress_ahead, clocks, back)) > 1:
            raise InputError(
                "--egress-ahead, --clocks and --back all say how the clocks are: give one of them"
            )
        if egress_ahead is not None:
            given["clocks"] = known(*parse_interval(egress_ahead))
        if clocks is not None:
            if egress is None:
                raise InputError("--clocks is for two captures of one tap: give EGRESS as well")
            given["clocks"] = told_by_tap(clocks, ingress, egress)
        given["flows"] = by is not None
        settings = Settings(**given)
        filters = (filter_, filter_after)
        found = _evaluate_captures(
            ingress, egress, selects, filters, back, settings, where, direction, match, since
        )
        if isinstance(found, Transactions):
            if by is not None:
                raise InputError("--by flow is of packets: leave it out for requests and answers")
            from tailtap.cli.results import show_transactions

            show_transactions(found, ps, worst, out, json=json, quiet=quiet, replace=replace)
            return
        from tailtap.cli.results import require_same, show

        if out is not None and not replace:
            require_same(found, out)
        show(found, ps, worst, losses, out, json=json, quiet=quiet)
        return
    refuse(
        (
            match == "transactions",
            "--match transactions is for captures: the experiment of runs says what they match",
        ),
        (direction, "--direction is for two captures: runs hold one direction"),
        (
            {"format", "nanoseconds", "stamps", "key_after"} & given.keys(),
            (
                "--format, --nanoseconds, --stamps and --key-after are for two captures: stamps of "
                "runs say what they are"
            ),
        ),
        (
            not (filter_ is filter_after is None),
            "--filter and --filter-after are for captures: runs have their flows",
        ),
        (by, "--by flow is for captures: give the two of a run, ingress.* and egress.*"),
        (
            losses,
            (
                "--losses is for two captures: the lost packets of runs are in the table 'losses' "
                "of results.duckdb, and in evaluation/losses.parquet of each run folder"
            ),
        ),
        (
            out is not None and replace,
            "--out leaves the results of the runs alone: leave --replace out",
        ),
        (
            any(given is not None for given in (egress_ahead, clocks, back)),
            (
                "--egress-ahead, --clocks and --back are for two captures: a run knows how its "
                "clocks stood"
            ),
        ),
    )
    _evaluate_folder(ingress, given, where, percentiles, out, json, quiet, replace=replace)


def _load_writer() -> None:
    """Loads what writes the tables while the captures are evaluated; whoever imports it waits."""
    import os
    from importlib import import_module
    from threading import Thread

    # numpy's linear algebra, which nothing here uses, would start threads that spin for a while.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    Thread(target=import_module, args=("tailtap.analysis.evaluation.tables",)).start()


def _evaluate_captures(
    ingress: Path,
    egress: Path | None,
    selects: tuple[str | None, str | None],
    filters: tuple[str | None, str | None],
    back: tuple[Path, Path] | None,
    settings: Settings,
    where: Where,
    direction: Direction | None,
    match: Match,
    since: From,
) -> Evaluation | Transactions:
    """Evaluate what the arguments name: one capture of both sides, or two."""
    from dataclasses import replace

    from tailtap.analysis.evaluation.evaluate import evaluate_by, evaluate_directions
    from tailtap.analysis.evaluation.sources import (
        Sources,
        filtered_pair,
        is_pipe,
        selected,
        two_sides,
    )
    from tailtap.analysis.evaluation.transactions import transactions_by

    if egress is None:
        settings = replace(settings, nanoseconds=settings.nanoseconds and "both")
    given = [path for path in (ingress, egress, *(back or ())) if path is not None]
    piped = next((path for path in given if is_pipe(path)), None)
    if where.scheduler is not None and piped is not None:
        raise InputError(f"--scheduler: its workers cannot read {piped}: save the capture first")
    if egress is None and any(selects) and not all(selects):
        raise InputError("--ingress and --egress: of one capture, say both or neither")
    plain = where.default and back is None and settings.clocks is None and direction is None
    if match == "transactions" and not plain:
        raise InputError(
            "transactions are of one clock and both directions, and found in one piece: leave "
            "--egress-ahead, --clocks, --back, --direction, --scheduler, --chunk and --jobs out"
        )
    with Sources() as sources:
        first, *others = sources.open(given)
        second = None if egress is None else others.pop(0)
        first, *behind_it = filtered_pair(first, second, *filters)
        second = behind_it[0] if behind_it else None
        before, behind = first, second
        if second is not None or all(selects):
            before, behind = selected(first, selects[0]), selected(second or first, selects[1])
        if match == "transactions":
            return transactions_by(settings, before, behind, since=since)
        try:
            pair = two_sides(first, settings.matching) if behind is None else (before, behind)
            return evaluate_directions(
                evaluate_by if where.default else partial(_evaluate_pair, where=where),
                settings,
                *pair,
                direction=direction,
                back=(others[0], others[1]) if others else None,
            )
        except NothingMatched as nothing:
            from tailtap.cli.results import instead

            # Who names a key of packets in two captures asks for packets.
            named = second is not None and settings.key != "auto"
            if match != "auto" or named or not plain:
                raise
            return instead(settings, before, behind, since, nothing)


def _evaluate_pair(
    settings: Settings, ingress: Source, egress: Source, *, where: Where
) -> Evaluation:
    from tailtap.analysis.evaluation.many import Captures, evaluate_many

    pair = Captures(ingress, egress, settings)
    with where.executor() as executor, where.progress() as progress:
        [(_, found)] = evaluate_many(
            [pair], executor, chunk_bytes=where.chunk_bytes(), progress=progress
        )
    if isinstance(found, TailtapError):
        raise found
    return found


def _evaluate_folder(
    folder: Path,
    changes: dict[str, Any],
    where: Where,
    percentiles: str,
    out: Path | None,
    json: bool,
    quiet: bool,
    *,
    replace: bool,
) -> None:
    from tailtap.analysis.evaluation.values import DEFAULT, parse_list
    from tailtap.analysis.runs.again import copy_of, evaluate_again, find, warm_up_of
    from tailtap.cli.results import PERCENTILES, print_hops, print_runs
    from tailtap.records.record import printed
    from tailtap.results.current import kept_current

    columns = PERCENTILES if percentiles == "default" else parse_list(percentiles)
    runs = find(folder)
    warm_up = warm_up_of(runs.folders[0]) if changes.get("trim_ns") else None
    if warm_up is not None and not quiet and (out is not None or replace):
        warn(f"--trim: {warm_up}")
    if out is not None:
        runs = copy_of(runs, out, changes)
    current = runs.experiment.path if runs.experiment else runs.path
    with kept_current(current), where.executor() as executor, where.progress() as progress:
        outcome = evaluate_again(
            runs,
            executor,
            changes,
            chunk_bytes=where.chunk_bytes(),
            percentiles=DEFAULT if percentiles == "default" else columns,
            print_line=unless(quiet),
            progress=progress,
            replace=replace,
        )
    summary = outcome.summary()
    if json:
        print(printed(summary))
    else:
        print_runs(summary.runs, runs.path, columns)
        print_hops(summary.runs)
    if outcome.errors:
        name, first = min(outcome.errors.items())
        kinds = {type(error).exit_status for error in outcome.errors.values()}
        kind = MachineError if MachineError.exit_status in kinds else InputError
        raise kind(
            f"{len(outcome.errors)} of {len(outcome.ended)} runs could not be evaluated, {name} "
            f"first: {first}"
        )

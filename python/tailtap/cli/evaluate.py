"""`tailtap evaluate`: two captures in, the tail out; or all runs of an experiment again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtap.cli.options import Json, Quiet
from tailtap.cli.where import Where

if TYPE_CHECKING:
    from tailtap.evaluation import Evaluation
    from tailtap.evaluation.evaluate import Settings


def evaluate(
    ingress: Annotated[
        Path,
        typer.Argument(
            help="Capture from before the device under test; or the folder of an experiment, to "
            "evaluate all its runs again."
        ),
    ],
    egress: Annotated[
        Path | None, typer.Argument(help="Capture from after the device under test.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="What packets are matched by: 'auto', the default, looks for a key and says what "
            "it chose; "
            "'moonsniff' is a u32 little-endian id at the start of the UDP payload, followed by "
            "the byte 0x55; 'signature' is bytes 12 to 63 of the frame without checksums; "
            "OFFSET:WIDTH:le|be is an integer of WIDTH bytes at byte OFFSET of the frame."
        ),
    ] = None,
    trim: Annotated[
        str | None,
        typer.Option(
            help="Leave out packets that left the device this soon after the first; by default "
            "none."
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            help="A packet must leave the device within this time, by default 5 s. The same key "
            "after a longer time is another packet."
        ),
    ] = None,
    percentiles: Annotated[
        str,
        typer.Option(
            help="Percentiles to list: 'default', 'papers' (the 275 of the published result "
            "files) or percentages such as 50,99.9,99.999."
        ),
    ] = "default",
    worst: Annotated[
        int, typer.Option(min=0, max=10**9, help="How many of the worst packets to keep.")
    ] = 5000,
    bucket: Annotated[str, typer.Option(help="Width of the histograms' buckets.")] = "100 ns",
    format: Annotated[
        str | None,
        typer.Option(
            help="Format of both captures (pcap, pcapng, mscap, stamps) where it cannot be told "
            "by content: mscap has no magic and is otherwise taken by its suffix."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write all tables as Parquet files, and evaluation.json, into DIR.", metavar="DIR"
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Work on the cluster of the Dask scheduler at ADDRESS, such as "
            "tcp://10.0.0.1:8786, whose workers have the same tailtap and see the captures under "
            "the same paths. Needs `pip install 'tailtap[cluster]'`.",
        ),
    ] = None,
    chunk: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Evaluate captures that are larger in pieces of this size, 1 GiB by default, "
            "side by side.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many pieces to evaluate at once without a cluster; all CPUs' worth."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Match the packets of two captures and show the tail of the latency between them.

    Reads pcap (micro- and nanoseconds), pcapng, MoonSniff's mscap and tailtap's stamp files, each
    also compressed with zstd or gzip. Needs no privileges. Percentiles are exact; each comes with
    its 95 % confidence interval, and one with fewer than ten packets above it is marked as not
    supported by the data. Warnings go to standard error.

    Given a folder that `tailtap run` made, evaluates all its finished runs again, each as its
    experiment said where --key, --trim and --window say nothing else, and puts the results in
    place of those in the run folders and in results.duckdb. A run that cannot be evaluated keeps
    what it had; the others go on, and the exit status tells. A folder of run folders from
    elsewhere will do too.

    The results do not depend on where and in how many pieces the work is done. pcap and stamp
    files can be cut into pieces; compressed captures, pcapng and mscap, and captures whose stamps
    are not in order of time, are evaluated in one.
    """
    from tailtap.errors import InputError
    from tailtap.evaluation.evaluate import Settings
    from tailtap.evaluation.percentiles import parse_list
    from tailtap.units import parse_time

    ps = parse_list(percentiles)
    where = Where(scheduler, chunk, jobs, quiet)
    given: dict[str, Any] = {
        "key": key,
        "trim_ns": None if trim is None else parse_time(trim),
        "window_ns": None if window is None else parse_time(window),
        "worst": worst,
        "bucket_ns": parse_time(bucket),
        "format": format,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if egress is not None:
        found = _evaluate_pair(ingress, egress, Settings(**given), where)
        _show_pair(found, ps, worst, out, json=json, quiet=quiet)
    elif not ingress.is_dir():
        raise InputError(
            f"{ingress}: give two captures, from before and from after the device, or the folder "
            "of an experiment"
        )
    elif out is not None or format is not None:
        raise InputError(
            "--out and --format are for two captures: the results of runs go into their folders"
        )
    else:
        _evaluate_folder(ingress, given, where, percentiles, json, quiet)


def _evaluate_pair(ingress: Path, egress: Path, settings: Settings, where: Where) -> Evaluation:
    from dataclasses import asdict

    from tailtap import evaluation
    from tailtap.errors import TailtapError
    from tailtap.evaluation.many import Captures, evaluate_many

    if where.unsaid:
        return evaluation.evaluate(ingress, egress, **asdict(settings))
    pair = Captures(ingress, egress, settings)
    chunk_bytes = where.chunk_bytes()
    with where.executor() as executor, where.progress() as progress:
        [(_, found)] = evaluate_many([pair], executor, chunk_bytes=chunk_bytes, progress=progress)
    if isinstance(found, TailtapError):
        raise found
    return found


def _evaluate_folder(
    folder: Path, changes: dict[str, Any], where: Where, percentiles: str, json: bool, quiet: bool
) -> None:
    import json as json_module
    import sys

    from tailtap.cli.runs import PERCENTILES, print_runs
    from tailtap.errors import InputError, MachineError
    from tailtap.evaluation.percentiles import DEFAULT, parse_list
    from tailtap.experiment.again import evaluate_again, find

    columns = PERCENTILES if percentiles == "default" else parse_list(percentiles)
    runs = find(folder)
    chunk_bytes = where.chunk_bytes()
    with where.executor() as executor, where.progress() as progress:
        outcome = evaluate_again(
            runs,
            executor,
            changes,
            chunk_bytes=chunk_bytes,
            percentiles=DEFAULT if percentiles == "default" else columns,
            told=lambda line: None if quiet else print(line, file=sys.stderr, flush=True),
            progress=progress,
        )
    if json:
        print(json_module.dumps(outcome.summary()))
    else:
        print_runs(outcome.summary(), columns)
    if outcome.errors:
        name, first = min(outcome.errors.items())
        kinds = {type(error).exit_status for error in outcome.errors.values()}
        kind = MachineError if MachineError.exit_status in kinds else InputError
        raise kind(
            f"{len(outcome.errors)} of {len(outcome.ended)} runs could not be evaluated, {name} "
            f"first: {first}"
        )


def _show_pair(
    found: Evaluation,
    ps: tuple[float, ...],
    worst: int,
    out: Path | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    import json as json_module
    import sys

    if out is not None:
        found.write(out)
    if json:
        print(json_module.dumps(found.as_json(ps, worst=worst)))
    else:
        _print(found, ps)
    if not quiet:
        for warning in found.warnings:
            print(f"warning: {warning.message} [{warning.code}]", file=sys.stderr)
        if out is not None:
            print(f"tables written to {out}", file=sys.stderr)


def _print(found: Evaluation, ps: tuple[float, ...]) -> None:
    from rich.table import Table

    from tailtap.cli.console import print_table
    from tailtap.evaluation.percentiles import label
    from tailtap.units import format_us

    reason = f": {found.key_reason}" if found.key_reason else ""
    print(f"matched by {found.key}{reason}")
    counts = Table(title="packets", title_justify="left", box=None, show_header=False)
    for name, count in found.counts.items():
        if count or name in ("ingress", "egress", "matched", "lost"):
            share = f"{found.loss:.4%}" if name == "lost" else ""
            counts.add_row(name.replace("_", " "), f"{count:,}", share)
    counts.columns[1].justify = "right"
    print_table(counts)
    latency = Table(title="latency in us", title_justify="left", box=None)
    for heading in ("", "value", "95 % interval", "packets above"):
        latency.add_column(heading, justify="right")
    latency.add_row("min", format_us(found.min))
    for percentile in found.percentiles(ps):
        low, high = (
            "open" if bound is None else format_us(bound)
            for bound in (percentile.low, percentile.high)
        )
        latency.add_row(
            label(percentile.p),
            format_us(percentile.value),
            f"{low} to {high}",
            f"{percentile.above:,}" + ("" if percentile.supported else " (unsupported)"),
            style=None if percentile.supported else "dim",
        )
    latency.add_row("max", format_us(found.max))
    latency.add_row("mean", format_us(round(found.mean)))
    print_table(latency)

"""`tailtap evaluate`: two captures in, the tail out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailtap.cli.options import Json, Quiet

if TYPE_CHECKING:
    from tailtap.evaluation import Evaluation


def evaluate(
    ingress: Annotated[Path, typer.Argument(help="Capture from before the device under test.")],
    egress: Annotated[Path, typer.Argument(help="Capture from after the device under test.")],
    key: Annotated[
        str,
        typer.Option(
            help="What packets are matched by: 'auto' looks for a key and says what it chose; "
            "'moonsniff' is a u32 little-endian id at the start of the UDP payload, followed by "
            "the byte 0x55; 'signature' is bytes 12 to 63 of the frame without checksums; "
            "OFFSET:WIDTH:le|be is an integer of WIDTH bytes at byte OFFSET of the frame."
        ),
    ] = "auto",
    trim: Annotated[
        str,
        typer.Option(help="Leave out packets that left the device this soon after the first."),
    ] = "0 s",
    window: Annotated[
        str,
        typer.Option(
            help="A packet must leave the device within this time. The same key after a longer "
            "time is another packet."
        ),
    ] = "5 s",
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
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Match the packets of two captures and show the tail of the latency between them.

    Reads pcap (micro- and nanoseconds), pcapng, MoonSniff's mscap and tailtap's stamp files, each
    also compressed with zstd or gzip. Needs no privileges. Percentiles are exact; each comes with
    its 95 % confidence interval, and one with fewer than ten packets above it is marked as not
    supported by the data. Warnings go to standard error.
    """
    import json as json_module
    import sys

    from tailtap import evaluation
    from tailtap.evaluation.percentiles import parse_list
    from tailtap.units import parse_time

    ps = parse_list(percentiles)
    found = evaluation.evaluate(
        ingress,
        egress,
        key=key,
        trim_ns=parse_time(trim),
        window_ns=parse_time(window),
        worst=worst,
        bucket_ns=parse_time(bucket),
        format=format,
    )
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

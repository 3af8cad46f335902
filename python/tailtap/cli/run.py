"""`tailtap run`: make the measurements of an experiment file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tailtap.cli.options import Json, Quiet

PERCENTILES = (0.5, 0.99, 0.999, 0.9999, 0.99999)
"""The columns of the table."""


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
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the latency of every packet through a device under test, on this machine.

    The experiment file says what to send through what. Its keys, with their defaults: name;
    dut.platform (bare-metal; or wire, which is no DuT at all, for calibration), dut.forwarder
    (tc-mirred; or fault), dut.cpus ([1]), dut.options; traffic.rate (10 kpkt/s), traffic.size
    (64 B), traffic.duration (10 s), traffic.warm_up (1 s), traffic.flows (1), traffic.cpu (0);
    evaluation.key (auto), evaluation.trim (0 s), evaluation.window (5 s); vary, which maps such
    paths to lists of values and makes a run for each combination; repeat (1). An error in the
    file names the line.

    Generator, taps and device are network namespaces joined by virtual links; this needs root.
    Everything about a run is stored in its own folder, its evaluation included, and all
    evaluations in results.duckdb. Ctrl-C keeps the finished runs, and --resume makes the rest. A
    run that fails is recorded with its reason while the others go on, and the exit status is 3.
    """
    import json as json_module

    from tailtap.errors import InputError, MachineError
    from tailtap.experiment.reading import read_experiment
    from tailtap.experiment.runner import default_folder, run_experiment
    from tailtap.experiment.summary import summarize

    checked = read_experiment(experiment, set_ or ())
    if resume and out is None:
        raise InputError("--resume needs --out DIR: the folder of the experiment to finish")
    folder = out or default_folder(checked.name)
    runs = run_experiment(checked, experiment, folder, resume=resume, quiet=quiet)
    summary = summarize(folder, runs)
    if json:
        print(json_module.dumps(summary))
    else:
        _print(summary)
    failed = [row for row in summary["runs"] if row["status"] != "done"]
    if failed:
        raise MachineError(
            f"{len(failed)} of {len(runs)} runs failed, {failed[0]['slug']} first: "
            f"{failed[0]['error']}"
        )


def _print(summary: dict[str, Any]) -> None:
    """Print the tail of every run; a percentile with too few samples above it is marked ``*``."""
    from rich.table import Table
    from rich.text import Text

    from tailtap.cli.console import print_table
    from tailtap.evaluation.percentiles import label

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    for name in ("packets", *map(label, PERCENTILES), "max", "loss", "warnings"):
        table.add_column(name, justify="right", no_wrap=True)
    unsupported = False
    for row in summary["runs"]:
        if row["evaluation"] is None:
            table.add_row(row["slug"], Text(row["status"], style="red"))
            continue
        cells = _cells(row["evaluation"])
        unsupported = unsupported or any(cell.endswith("*") for cell in cells)
        doubts = len(row["warnings"]) + len(row["evaluation"]["warnings"])
        table.add_row(row["slug"], *cells, str(doubts) if doubts else "")
    print_table(table)
    notes = "latencies in us"
    if unsupported:
        notes += "; *: fewer than ten packets above it, not to be relied on"
    print(notes)
    print(f"results: {summary['folder']}")


def _cells(evaluation: dict[str, Any]) -> list[str]:
    from tailtap.units import format_us

    counts, latency = evaluation["counts"], evaluation["latency_ns"]
    found = {row["p"]: row for row in latency["percentiles"]}
    cells = [f"{counts['matched']:,}"]
    for p in PERCENTILES:
        row = found[p]
        cells.append(format_us(row["value"]) + (" " if row["supported"] else "*"))
    return [*cells, format_us(latency["max"]), f"{counts['lost']:,}"]

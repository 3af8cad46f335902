"""What commands print of evaluations, of runs, and of requests and their answers."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path

from tailtap.analysis.evaluation.evaluate import Settings
from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.evaluation.sources import Source
from tailtap.analysis.evaluation.transactions import (
    Transactions,
    has_transactions,
    transactions_by,
)
from tailtap.analysis.evaluation.values import KEPT_LOSSES
from tailtap.base.errors import InputError, MachineError, NothingMatched
from tailtap.base.units import format_count, format_time
from tailtap.cli.console import print_section, print_table
from tailtap.cli.console import show as show_parts
from tailtap.cli.spectrum import print_spectrum
from tailtap.cli.terminal import say, warn, warn_of
from tailtap.records.evaluation import (
    EvaluationRecord,
    From,
    Sides,
    WorstRecord,
    packet_name,
)
from tailtap.records.experiment import FlowsRow, RunRow
from tailtap.records.record import read_if_there
from tailtap.records.warnings import invalidating
from tailtap.show.sections.latency import (
    evaluation_parts,
    hop_name,
    hop_section,
    lost_table,
    runs_table,
    together_table,
    transactions_parts,
)


def require_same(found: Evaluation, out: Path) -> None:
    """Raise `InputError` when `out` has an evaluation of other captures, or with other settings.

    One that cannot be read is replaced, and the user told so.
    """
    try:
        stored = read_if_there(out / "evaluation.json", EvaluationRecord)
    except InputError as error:
        warn(f"warning: {error}; this evaluation takes its place")
        return
    if stored is None:
        return
    for name in ("inputs", "options", "key", "key_after", "clocks"):
        there, here = (_known(getattr(content, name)) for content in (stored, found))
        if there != here:
            raise InputError(
                f"there is an evaluation with other {name} in it: choose another --out, or "
                "give --replace"
            ).at(out)


def _known(content: object) -> object:
    """What an evaluation says of its captures wherever they lie; all of what else it says."""
    if not isinstance(content, Sides):
        return content
    return [(side.packets, side.first_ns, side.last_ns) for side in content.both]


def show(
    found: Evaluation,
    ps: tuple[float, ...],
    worst: int,
    losses: int,
    out: Path | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Print and write an evaluation, and the way back where there is one."""
    if out is not None:
        found.write(out)
    if json:
        print(json_module.dumps(found.as_json(ps, worst=worst, losses=losses)))
    else:
        for name, way in found.ways.items():
            show_parts(["", name] if name else ())
            show_parts(evaluation_parts(way, ps))
            print_spectrum(way)
            if losses:
                _print_losses(way, losses)
    if not quiet:
        for name, way in found.ways.items():
            warn_of(way.warnings, f"{name}: " if name else "")
        if out is not None:
            warn(f"tables written to {out}")


def _print_losses(found: Evaluation, n: int) -> None:
    """The first `n` lost packets as a table."""
    lost, kept = found.counts.lost, len(found.columns("losses")[-1])
    if not lost:
        say("no packet was lost")
        return
    print_table(lost_table(found, n))
    if kept < min(lost, KEPT_LOSSES):
        say(f"not listed, as others are equal: {format_count(lost - kept, 'lost packet')}")


def instead(
    settings: Settings,
    ingress: Source,
    egress: Source | None,
    since: From,
    nothing: NothingMatched,
) -> Transactions:
    """The transactions of captures without a packet on both sides. Raises `nothing` without any."""
    if egress is None:
        pairs: list[tuple[Source, Source | None]] = [(ingress, None)]
        reason = "one capture, which holds requests and answers"
    else:
        pairs = [(ingress, egress), (egress, ingress)]
        reason = "no packet is in both captures, and the second answers the first"
    if not any(has_transactions(settings, *pair) for pair in pairs):
        raise nothing
    return transactions_by(settings, ingress, egress, since=since, reason=reason)


def show_transactions(
    found: Transactions,
    ps: tuple[float, ...],
    worst: int,
    out: Path | None,
    *,
    json: bool,
    quiet: bool,
    replace: bool,
) -> None:
    """Print and write transactions as the command was asked to."""
    if out is not None:
        if not replace:
            for name, evaluation in found.answered.items():
                require_same(evaluation, out / name)
        found.write(out)
    if json:
        print(json_module.dumps(found.as_json(ps, worst=worst)))
    else:
        show_parts(transactions_parts(found, ps))
    if not quiet:
        of_kinds = (warning for kind in found.kinds for warning in kind.warnings)
        warn_of(dict.fromkeys((*found.warnings, *of_kinds)))
        if out is not None:
            warn(f"tables written to {out}, a folder for each kind")


PERCENTILES = (0.5, 0.99, 0.999, 0.9999, 0.99999)
"""The columns of the table unless asked otherwise."""
MOST_RUNS = 3
"""Runs whose hops are printed; of more, the page and the files tell."""
MOST_PACKETS = 5
"""Worst packets of a line that are told of."""
MOST_PARTS = 3
"""Hops that are named of a packet, the slowest first."""


def print_runs(runs: Sequence[RunRow], folder: Path, ps: Sequence[float] = PERCENTILES) -> None:
    """Print the tail of every run."""
    print_table(runs_table(runs, ps))
    say(f"results: {folder}")


def print_flows(flows: Sequence[FlowsRow]) -> None:
    """Print which flow of each measurement was worst, and how fairly the flows were served."""
    print_table(together_table(flows, "first run", {}))


def print_hops(runs: Sequence[RunRow]) -> None:
    """Print the hops of the runs that have some: who lost packets, and who made the worst ones."""
    found = [(one, one.evaluation) for one in runs if one.evaluation and one.evaluation.hops]
    if len(found) > MOST_RUNS:
        say(f"{len(found)} runs have hops: `tailtap report` shows them all")
        return
    for run, evaluation in found:
        hops = evaluation.hops or []
        print_section(hop_section(hops, run.slug + " (invalid)" * (run.valid is False)))
        names = list(map(hop_name, hops))
        for packet in evaluation.worst[:MOST_PACKETS]:
            after = packet.ingress_ns - evaluation.inputs.ingress.first_ns
            say(f"{packet_name(packet.key, after)}: {in_words(packet, names)}")


def in_words(packet: WorstRecord, nodes: list[str]) -> str:
    """How long a packet took, and at which nodes: ``4.1 ms, of which dut3 3.9 ms``."""
    hops = packet.hops or []
    parts = sorted(
        ((ns, node) for node, ns in zip(nodes, hops, strict=True) if ns is not None),
        key=lambda part: -part[0],
    )
    told = ", ".join(f"{node} {format_time(ns)}" for ns, node in parts[:MOST_PARTS])
    missing = "; not every tap has a stamp of it" if None in hops else ""
    return f"{format_time(packet.latency)}, of which {told}{missing}"


def problem_of(rows: Sequence[RunRow]) -> MachineError | None:
    """What a command ends with when some of these runs failed or are invalid."""
    failed = [(row.slug, row.error) for row in rows if row.status != "done"]
    invalid = [row for row in rows if row.valid is False]
    # In a measurement of several flows, the generator of another one may be the reason.
    why = [(row.slug, one.message) for row in invalid for one in invalidating(row.warnings)[:1]]
    said = []
    if failed:
        said.append(
            f"{len(failed)} of {len(rows)} runs failed, {failed[0][0]} first: {failed[0][1]}"
        )
    if invalid:
        verb = "is" if len(invalid) == 1 else "are"
        slug, reason = why[0] if why else (invalid[0].slug, "another flow of it is")
        said.append(f"{len(invalid)} of {len(rows)} runs {verb} invalid, {slug} first: {reason}")
    return MachineError("; ".join(said)) if said else None

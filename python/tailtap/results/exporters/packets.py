"""Every matched packet of a run, from its captures: an evaluation keeps only the worst."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.evaluate import evaluate_by
from tailtap.analysis.evaluation.settings import of_evaluation
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.evaluation import Side


def all_packets(run: Run) -> pa.Table:
    """Latency, stamps (ns) and key of every matched packet, in the order of the ingress stamps.

    The captures are matched again with the options of the stored evaluation. Raises `InputError`
    when a capture is gone, is not the one that was evaluated, or not all of a file. Needs about
    200 bytes of memory a packet.
    """
    stored = run.stored
    settings = of_evaluation(stored, worst=stored.counts.matched)
    found = evaluate_by(settings, *(_capture(run, side) for side in stored.inputs.both))
    if (found.counts, found.min, found.max) != (stored.counts, stored.min, stored.max):
        raise (
            InputError(
                "the captures are not those that were evaluated; run tailtap evaluate --out again"
            )
            .at("--packets")
            .at(run.folder)
        )
    return tables.worst(found.worst_packets).sort_by("ingress_ns")


def _capture(run: Run, side: Side) -> Path:
    """The capture of one side: beside the evaluation, as in a run folder, or where it was read."""
    path = Path(side.path)
    if not side.whole:
        raise (
            InputError(
                "this side is several files, or a part of one: only "
                "captures of one side each can be read again"
            )
            .at("--packets")
            .at(path)
        )
    beside = [run.folder.parent / path.name] if run.folder else []
    for place in (*beside, path) if run.record else (path, *beside):
        if place.is_file():
            return place
    raise (InputError(f"this capture of {run.slug} is no longer there").at("--packets").at(path))

"""Valid records of runs and evaluations, of which a test says only what matters to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tailtap.lab.topology.graph import Graph
from tailtap.records.evaluation import (
    BlockWidth,
    Counts,
    EvaluationRecord,
    Floor,
    Latency,
    Options,
    Side,
    Sides,
)
from tailtap.records.experiment import RunRow
from tailtap.records.machine import BUILT_IN, ClockErrors, Timekeeping
from tailtap.records.record import as_json, parsed
from tailtap.records.run import RunRecord


def made(**fields: Any) -> RunRecord:
    """A record with these fields of ``run.json``."""
    least = {
        "number": 1,
        "slug": "001-a",
        "repeat": 1,
        "variables": {},
        "parameters": {},
        "name": "made",
        "status": "done",
        "warnings": [],
    }
    return parsed("the record of a test", {**least, **fields}, RunRecord)


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def wiring(graph: Graph) -> dict[str, Any]:
    return {
        "nodes": [as_json(one.record()) for one in graph.nodes],
        "links": [as_json(one.record()) for one in graph.links],
        "flows": [as_json(one.record()) for one in graph.flows],
    }


def keeping(rate_ppb: int = 0, slewing_ns: int = 0) -> Timekeeping:
    """How a clock is kept by nobody else."""
    return Timekeeping(
        synchronised=False,
        rate_ppb=rate_ppb,
        slewing_ns=slewing_ns,
        error_ns=ClockErrors(estimated=0, most=0),
        programs=[],
        ptp={},
    )


def traits_of(platform: str) -> dict[str, Any] | None:
    return as_json(BUILT_IN[platform]) if platform in BUILT_IN else None


def counts(**known: int) -> Counts:
    return Counts(**(dict.fromkeys(Counts.__struct_fields__, 0) | known))


def side(packets: int, first_ns: int, last_ns: int, path: str = "ingress.stamps") -> Side:
    return Side(
        path=path,
        format="stamps",
        clock="monotonic",
        packets=packets,
        first_ns=first_ns,
        last_ns=last_ns,
        resolution_ns=1,
        fcs_bytes=0,
        unread={},
    )


def evaluation(found: Counts, latency: Latency) -> EvaluationRecord:
    captures = (side(found.ingress, 0, 10**9), side(found.egress, 0, 10**9, "egress.stamps"))
    return EvaluationRecord(
        key="moonsniff",
        key_reason=None,
        counts=found,
        latency_ns=latency,
        worst=[],
        inputs=Sides(ingress=captures[0], egress=captures[1]),
        options=Options(trim_ns=0, window_ns=5_000_000_000, bucket_ns=100, worst=5_000),
        exceedances=Floor(floor_ns=0, packets=0),
        blocks=BlockWidth(width_ns=10**9),
        warnings=[],
    )


def run_row(slug: str, **known: Any) -> RunRow:
    """A run of ``tailtap run --json`` that is done, but for what is given."""
    least: dict[str, Any] = {
        "number": 1,
        "repeat": 1,
        "status": "done",
        "error": None,
        "variables": {},
        "parameters": {},
        "warnings": [],
        "valid": True,
        "folder": f"runs/{slug}",
        "evaluation": None,
    }
    return RunRow(slug=slug, **least | known)

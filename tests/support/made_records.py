"""Records of runs that are valid, whatever a test says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tailtap.lab.topology.graph import Graph
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
    """Have a JSON file say this as well."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def wiring(graph: Graph) -> dict[str, Any]:
    """`nodes`, `links` and `flows` of ``run.json``."""
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
    """The traits of one of our platforms in ``run.json``."""
    return as_json(BUILT_IN[platform]) if platform in BUILT_IN else None

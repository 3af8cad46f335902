"""Valid parts of evaluations, of which a test says only what matters to it."""

from __future__ import annotations

from typing import Any

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


def counts(**known: int) -> Counts:
    """Counts that are 0 but for those that are given."""
    return Counts(**(dict.fromkeys(Counts.__struct_fields__, 0) | known))


def side(packets: int, first_ns: int, last_ns: int, path: str = "ingress.stamps") -> Side:
    """A capture of stamps of which all were read."""
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


def sides(ingress: Any, egress: Any) -> Sides:
    """The captures whose stamps are these arrays, in order."""
    found = (
        side(len(times), int(times[0]), int(times[-1]), f"{name}.stamps")
        for name, times in (("ingress", ingress), ("egress", egress))
    )
    return Sides(ingress=next(found), egress=next(found))


OPTIONS = Options(trim_ns=0, window_ns=5_000_000_000, bucket_ns=100, worst=5_000)


def evaluation(found: Counts, latency: Latency) -> EvaluationRecord:
    """An evaluation of two captures of stamps."""
    captures = (side(found.ingress, 0, 10**9), side(found.egress, 0, 10**9, "egress.stamps"))
    return EvaluationRecord(
        key="moonsniff",
        key_reason=None,
        counts=found,
        latency_ns=latency,
        worst=[],
        inputs=Sides(ingress=captures[0], egress=captures[1]),
        options=OPTIONS,
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

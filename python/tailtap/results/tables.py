"""The tables of results: their columns, and the rows of a run, whoever measured it.

`results.duckdb` and the exporters have them. Times are integer nanoseconds. A type with a question
mark may be NULL. In the database each table begins with `run`, the number of the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import to_builtins
from msgspec.structs import asdict

from tailtap.analysis.evaluation import Evaluation, tables
from tailtap.analysis.evaluation.hops import Hops
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.runs.run import Run
from tailtap.base.foreign import storable
from tailtap.records.evaluation import Counts, HopRecord
from tailtap.records.record import as_json
from tailtap.records.run import Passed, RunRecord

Columns = Mapping[str, str]
_INT, _MAYBE, _TEXT = "int64", "int64?", "string"
VALUES = ("repeat", "status", "valid", "error", "started", "finished")
"""Columns of `runs` that hold values of the record as they are."""
OBJECTS = (
    "variables", "parameters", "generator", "taps", "platform", "forwarder", "counters",
    "environment",
)  # fmt: skip
"""Columns of `runs` that hold JSON."""
PARQUET = ("percentiles", "distribution", "histogram", "worst", "losses", "gaps", "rates")
"""Tables that an evaluation holds as Parquet files of the same columns, less the run."""
FAILED = ("errors", "errors_timed")
"""Requests that failed, as other tools tell, and how many of them may be among the latencies."""
_EXTREMES = {"min_ns": _INT, "mean_ns": "double", "max_ns": _INT}
_HOP = {"hop": "int32", "node": _TEXT, "part": _TEXT}
HOP_COUNTS = ("ingress", "egress", "matched", "lost", "reordered", "noncausal")
HOPS: Mapping[str, Columns] = {
    "hops": {
        **_HOP,
        **dict.fromkeys(HOP_COUNTS, _INT),
        **_EXTREMES,
        "slowest_of_worst": _INT,
    },
    "hop_percentiles": {**_HOP, **tables.COLUMNS["percentiles"], "above": _INT},
    "hop_distribution": {**_HOP, **tables.COLUMNS["distribution"]},
    "hop_worst": {**_HOP, "key": _TEXT, "ingress_ns": _INT, "latency_ns": _INT, "hop_ns": _MAYBE},
}
"""Those of runs that were stamped between their nodes; `part` is ``node``, or ``queue`` of the
node. In `hop_worst` a packet of `worst` has a row for each hop, where `latency_ns` is its whole
latency and `hop_ns` the part of this hop; NULL where a stamp is missing.
"""
CAUSES: Mapping[str, Columns] = {
    "causes": {
        **dict.fromkeys(("cause", "detail", "claim"), _TEXT),
        **dict.fromkeys(("packets", "behind", "stalls", "delay_ns", "worst_ns"), _INT),
        **{"share": "double", "beyond_chance": "double?", "p_value": "double?"},
        **{"shifts": _MAYBE, "knobs": "json", "task": "json?", "processes": _INT},
    },
    "stalls": tables.COLUMNS["causes-stalls"],
    "late_packets": {
        **dict.fromkeys(("packet", "ingress_ns", "egress_ns", "latency_ns", "excess_ns"), _INT),
        **{"cpu": _MAYBE, "state": _TEXT, "cause": _TEXT, "blamed": _TEXT, "detail": _TEXT},
        **{"stall": _MAYBE, "segment": _MAYBE},
    },
}
"""What `tailtap explain` found out."""
UNDISTURBED: Mapping[str, Columns] = {
    "undisturbed": {
        **{"shown": "bool", "reason": "string?", "words": _TEXT, "pauses": "json"},
        **dict.fromkeys(("of_ns", "left_out_ns", "stretches", "packets", "left_out"), _INT),
        "p_value": "double?",
    },
    "undisturbed_percentiles": {**tables.COLUMNS["percentiles"], "above": _INT},
}
"""What is left of runs without the time around pauses from outside."""
TABLES: Mapping[str, Columns] = {
    "runs": {
        **{"slug": _TEXT, "experiment": _TEXT, "repeat": "int32", "status": _TEXT},
        **{"valid": "bool?", "error": "string?", "started": "time?", "finished": "time?"},
        **{name: "json" if name in OBJECTS[:2] else "json?" for name in OBJECTS},
    },
    "evaluations": {
        "key": _TEXT,
        # Results of others do not say all of them.
        **{name: f"{kind}?" for name, kind in
           {**dict.fromkeys((*Counts.__struct_fields__, *FAILED), _INT), **_EXTREMES}.items()},
    },
    **{name: tables.COLUMNS[name] for name in PARQUET},
    "warnings": {"code": _TEXT, "message": _TEXT},
    "events": {
        **{"event": "int32", "name": "string?", "place": "string?", "command": "json?"},
        **dict.fromkeys(("at_ns", "begin_ns", "end_ns", "status"), _MAYBE),
        "output": "string?",
        **dict.fromkeys(("blocked_ns", "blocked_least_ns", "blocked_most_ns"), _MAYBE),
        **dict.fromkeys(("time_ns", "packets", "lost"), _INT),
        **dict.fromkeys(("p50_ns", "p99_ns", "p999_ns", "max_ns"), _MAYBE),
    },
    "counts": {
        **dict.fromkeys(("during", "scope"), _TEXT),
        **{"cpu": "int32?", "counter": _TEXT, "asked": "bool", "count": _MAYBE},
        **{"estimated": "bool", "elapsed_ns": _INT, "packets": _MAYBE},
    },
    **HOPS,
    **CAUSES,
    **UNDISTURBED,
}  # fmt: skip
"""The tables of `results.duckdb`. In `events` the run's other time has event 0, which is nothing's.
`counts` has a row of each counter for the scope in which it was counted, where `cpu` is NULL, and
for each CPU.
"""
_DUCKDB = {
    "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN",
    "string": "VARCHAR", "json": "JSON", "time": "TIMESTAMPTZ",
}  # fmt: skip
_ARROW = {
    "int32": pa.int32(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(),
    "string": pa.string(), "json": pa.string(), "time": pa.string(),
}  # fmt: skip


def in_duckdb() -> str:
    """The statements that make the tables, where they are not there."""
    statements = []
    for table, columns in TABLES.items():
        rows = [
            "run INTEGER " + ("PRIMARY KEY" if table in ("runs", "evaluations") else "NOT NULL")
        ]
        rows += [
            f"{name} {_DUCKDB[kind.rstrip('?')]}{'' if kind.endswith('?') else ' NOT NULL'}"
            for name, kind in columns.items()
        ]
        statements.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(rows)});\n")
    return "".join(statements)


def in_arrow(columns: Columns) -> pa.Schema:
    """The columns of a table of Arrow."""
    return pa.schema({name: _ARROW[kind.rstrip("?")] for name, kind in columns.items()})


def rows(run: Run, table: str) -> pa.Table:
    """The rows of a run in one of `TABLES`.

    Raises `InputError`, `LookupError`, `TypeError`, `ValueError` and Arrow's errors for files that
    are damaged.
    """
    found = next(part for names, part in PARTS.items() if table in names)
    return found(run)[table]


def described(run: Run) -> dict[str, pa.Table]:
    """What its record says, and what became of it."""
    record = as_json(run.record) if run.record else {}
    row = {
        "slug": run.slug, "experiment": run.experiment, "repeat": run.repeat, "status": run.status,
        **{name: record[name] for name in VALUES if name in record},
        **{name: json.dumps(value) for name in OBJECTS if (value := record.get(name)) is not None},
    }  # fmt: skip
    warnings = [*(run.record.warnings if run.record else ())]
    warnings += run.evaluation.warnings if run.evaluation else ()
    known = [] if run.record is None else [run.record]
    return {
        "runs": _made("runs", [row]),
        "warnings": _made("warnings", [asdict(one) for one in warnings]),
        "events": _made("events", [row for one in known for row in _events(one)]),
        "counts": _made("counts", [row for one in known for row in _counts(one)]),
    }


def measured(run: Run) -> dict[str, pa.Table]:
    """Its evaluation, whole or in part."""
    shown = run.evaluation
    if shown is None:
        return {name: _made(name, []) for name in ("evaluations", *PARQUET, *HOPS)}
    row: dict[str, Any] = {"mean_ns": shown.mean, **shown.counted}
    if isinstance(shown, Evaluation):
        row |= {"key": shown.key, "min_ns": shown.min, "max_ns": shown.max}
    elif isinstance(shown, Partial):
        latency = shown.record.latency_ns
        row |= {"key": shown.record.key, "min_ns": latency.min, "max_ns": latency.max}
    found, stored = {"evaluations": _made("evaluations", [row])}, shown.to_arrow()
    for name in PARQUET:
        there = stored.get(name)
        found[name] = _made(name, []) if there is None else _cast(there, TABLES[name])
    return found | {name: _hops(name, shown.hops, stored) for name in HOPS}


def explained(run: Run) -> dict[str, pa.Table]:
    """What `tailtap explain` found out, unless the run was evaluated anew since."""
    folder, nothing = run.own_folder, {name: _made(name, []) for name in CAUSES}
    if folder is None or not (folder / "causes.json").is_file():
        return nothing  # reading them takes a module that takes long to load
    from tailtap.analysis.causes.stored import read_stored

    stored = read_stored(folder, run.stored.percentile(0.5).value)
    if stored is None:
        return nothing
    content, (late, _, stalls) = stored
    for place, (name, unknown) in enumerate(zip(late.column_names, late.columns, strict=True)):
        none = {"cpu": -1, "stall": 0}.get(name)
        if none is not None:
            known = pc.if_else(pc.equal(unknown, none), pa.scalar(None, pa.int64()), unknown)
            late = late.set_column(place, name, known)
    causes = [
        {
            **asdict(row),
            "knobs": json.dumps(row.knobs),
            "task": None if row.task is None else json.dumps(asdict(row.task)),
        }
        for row in content.causes
    ]
    return {
        "causes": _made("causes", causes),
        "stalls": _cast(stalls, TABLES["stalls"]),
        "late_packets": _cast(late, TABLES["late_packets"]),
    }


def undisturbed(run: Run) -> dict[str, pa.Table]:
    """Its percentiles without pauses from outside, where they are known."""
    from tailtap.analysis.undisturbed import read_undisturbed

    folder, evaluation = run.own_folder, run.evaluation
    stored = None
    if folder is not None and isinstance(evaluation, Evaluation):
        stored = read_undisturbed(folder, evaluation)
    if stored is None:
        return {name: _made(name, []) for name in UNDISTURBED}
    record, name = stored.record, "undisturbed_percentiles"
    row = asdict(record) | {
        "p_value": record.independence.p_value,
        "pauses": json.dumps(to_builtins(record.pauses)),
    }
    left = _made(name, [])
    if stored.evaluation is not None:
        left = _cast(stored.evaluation.to_arrow()["percentiles"], TABLES[name])
    return {"undisturbed": _made("undisturbed", [row]), name: left}


PARTS: Mapping[tuple[str, ...], Callable[[Run], dict[str, pa.Table]]] = {
    ("runs", "warnings", "events", "counts"): described,
    ("evaluations", *PARQUET, *HOPS): measured,
    tuple(CAUSES): explained,
    tuple(UNDISTURBED): undisturbed,
}
"""What the tables of a run are made by."""


def _made(table: str, found: list[dict[str, Any]]) -> pa.Table:
    return tables.from_rows([storable(row) for row in found], in_arrow(TABLES[table]))


def _cast(found: pa.Table, columns: Columns) -> pa.Table:
    return found.select(list(columns)).cast(in_arrow(columns))


def _counts(run: RunRecord) -> Iterator[dict[str, object]]:
    """What was counted: a row for each counter of the scope and of each CPU."""
    tap = (run.taps or {}).get("ingress")
    packets = None if tap is None else tap.known.came
    for name, window in (run.counters or {}).items():
        listed: list[tuple[int | None, Mapping[str, int | None], Mapping[str, int]]]
        listed = [(None, window.events, window.kinds)]
        listed += [
            (int(cpu), events, window.kinds_by_cpu.get(cpu, {}))
            for cpu, events in window.by_cpu.items()
        ]
        for cpu, events, kinds in listed:
            for asked, counts in ((True, events), (False, kinds)):
                for counter, count in counts.items():
                    yield {
                        "during": name, "scope": window.scope, "cpu": cpu, "counter": counter,
                        "asked": asked, "count": count,
                        "estimated": counter in window.estimated,
                        "elapsed_ns": window.elapsed_ns,
                        "packets": packets if name == "run" else None,
                    }  # fmt: skip


def _events(run: RunRecord) -> Iterator[dict[str, object]]:
    """What was done while packets were measured, and what these met with; row 0 is the run's other
    time."""
    if run.beside_events is not None:
        yield {"event": 0, **_passed(run.beside_events)}
    for number, event in enumerate(run.events, 1):
        if event.around is None:
            continue
        blocked = {} if event.blocked is None else asdict(event.blocked)
        yield {
            **asdict(event),
            "event": number,
            "place": event.where,
            "command": json.dumps(event.command),
            **{f"blocked_{name}": ns for name, ns in blocked.items()},
            **_passed(event.around),
        }


def _passed(passed: Passed) -> dict[str, object]:
    values = {row.p: row.value for row in passed.percentiles}
    latencies = {"p50_ns": values.get(0.5), "p99_ns": values.get(0.99)}
    return {**asdict(passed), **latencies, "p999_ns": values.get(0.999)}


_HOP_FILES = {
    "hop_percentiles": "hops",
    "hop_distribution": "hops-distribution",
    "hop_worst": "hops-worst",
}


def _hops(name: str, found: Hops | None, read: Mapping[str, pa.Table]) -> pa.Table:
    """One of `HOPS`: one row or more for each hop of a line that was stamped between its nodes."""
    if found is None:
        return _made(name, [])
    hops = found.record()
    if name == "hops":
        return _made(name, [_hop(hop) for hop in hops])
    hop_rows = read[_HOP_FILES[name]]
    told = tables.from_rows([asdict(hop) for hop in hops], in_arrow({"node": _TEXT, "part": _TEXT}))
    for column in told.column_names:
        # Hops are numbered from 1.
        places = pc.subtract(hop_rows["hop"], 1)
        hop_rows = hop_rows.append_column(column, told[column].take(places))
    if name == "hop_worst":
        worst = read["worst"].take(hop_rows["packet"])
        names = ["hop_ns" if one == "latency_ns" else one for one in hop_rows.column_names]
        hop_rows = hop_rows.rename_columns(names)
        for column in ("key", "ingress_ns", "latency_ns"):
            hop_rows = hop_rows.append_column(column, worst[column])
    return _cast(hop_rows, HOPS[name])


def _hop(hop: HopRecord) -> dict[str, Any]:
    latency = hop.latency_ns
    return {
        "hop": hop.hop,
        "node": hop.node,
        "part": hop.part,
        **{count: getattr(hop.counts, count) for count in HOP_COUNTS},
        "min_ns": latency.min,
        "mean_ns": latency.mean,
        "max_ns": latency.max,
        "slowest_of_worst": hop.slowest_of_worst,
    }

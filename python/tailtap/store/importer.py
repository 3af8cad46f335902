"""Published result trees into `results.duckdb`, next to your own runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtap import _core
from tailtap.errors import InputError, MachineError
from tailtap.evaluation.values import Warning
from tailtap.files import slugify
from tailtap.store.database import TABLES
from tailtap.store.published import PublishedRun, find_published
from tailtap.units import format_rate, format_time, parse_rate

#: Imported runs are numbered from here on: the numbers of an experiment's own runs stay free.
FIRST_NUMBER = 1_000_001
#: More packets after the device without a match than this share are a warning.
UNMATCHED_LIMIT = 0.001
MILLISECOND_NS = 1_000_000
SIDES = {"ingress": "pre", "egress": "post"}


@dataclass(frozen=True)
class Imported:
    """The result of an import: the number of runs, how many were new, and all warnings."""

    runs: int
    new: int
    warnings: list[Warning]


def import_tree(tree: Path, database: Path) -> Imported:
    """Put every run of a published result tree into the database, made if missing.

    A run is identified by the content of its files or, if that changed, by their path: importing
    a tree again, or after it was moved, replaces its runs. All runs are imported or, after an
    error, none. A damaged file is a warning, stored with the run; the run's other files are used.
    A copy of another run of the tree is left out.

    Raises `InputError` when `tree` holds no result file, `MachineError` when the database cannot
    be written.
    """
    if not tree.is_dir():
        raise InputError(f"{tree}: no such folder; give the folder of a published result tree")
    runs = find_published(tree)
    if not runs:
        raise InputError(
            f"{tree}: no result files in it; their names are like "
            "latencies-pre-rate10000-repeat0.pcap.zst.trim_ms0.percentiles.csv"
        )
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(str(database)) as connection:
            connection.execute(files(__package__).joinpath("schema.sql").read_text())
            connection.begin()
            found = _import_all(connection, runs, tree.resolve().name)
            connection.commit()
    except (duckdb.Error, OSError) as error:
        reason = str(error).splitlines()[0]
        raise MachineError(
            f"{database}: cannot write: {reason}; give another file by --into"
        ) from error
    return found


def _import_all(
    connection: duckdb.DuckDBPyConnection, runs: list[PublishedRun], experiment: str
) -> Imported:
    by_digest, by_source = _known(connection, "digest"), _known(connection, "source")
    following = max([FIRST_NUMBER - 1, *by_source.values()]) + 1
    taken: dict[int, str] = {}
    digests: dict[str | None, int] = {}  # never of None
    warnings: list[Warning] = []
    new = 0
    for run in runs:
        read = run.read()
        twin = digests.get(run.digest)
        if twin is not None:
            copy = Warning("run-twice", f"{run.source}: left out, {taken[twin]} is the same")
            _insert_warning(connection, twin, copy)
            warnings.append(copy)
            continue
        number = by_digest.get(run.digest or "", by_source.get(run.source))
        if number is None or number in taken:
            number, following, new = following, following + 1, new + 1
        taken[number] = run.source
        if run.digest is not None:
            digests[run.digest] = number
        warnings += _replace(connection, run, read, number, experiment)
    return Imported(len(taken), new, warnings)


def _known(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, int]:
    """The numbers of the imported runs that the database has, by a text of their parameters."""
    rows = connection.execute(
        "SELECT parameters->>?, run FROM runs WHERE status = 'imported'", [name]
    ).fetchall()
    return {str(text): int(number) for text, number in rows if text}


def _replace(
    connection: duckdb.DuckDBPyConnection,
    run: PublishedRun,
    read: Mapping[str, pa.Table],
    number: int,
    experiment: str,
) -> list[Warning]:
    """Put one run in place of what the database holds under its number; return its warnings."""
    evaluation = evaluation_of(read)
    warnings = run.warnings
    warning = _unmatched(run, evaluation)
    if warning is not None:
        warnings.append(warning)
    for table in TABLES:
        connection.execute(f"DELETE FROM {table} WHERE run = ?", [number])
    _insert_row(connection, "runs", {"run": number, **_run_row(run, experiment)})
    if evaluation:
        _insert_row(connection, "evaluations", {"run": number, **evaluation})
    for name, table in tables_of(read, evaluation).items():
        whole = table.add_column(0, "run", pa.repeat(pa.scalar(number, pa.int32()), len(table)))
        connection.register("imported", whole)
        connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM imported")
        connection.unregister("imported")
    for warning in warnings:
        _insert_warning(connection, number, warning)
    return warnings


def _run_row(run: PublishedRun, experiment: str) -> dict[str, Any]:
    parts = [slugify(run.place), slugify(run.capture.removeprefix("latencies-pre").split(".")[0])]
    if run.trim_ms:
        parts.append(f"trim{run.trim_ms}ms")
    variables: dict[str, Any] = {"source": run.place}
    parameters: dict[str, Any] = {
        "source": run.source,
        "digest": run.digest,
        "evaluation": {"trim": run.trim_ms * MILLISECOND_NS, "bucket": run.bucket_ns},
    }
    if run.rate is not None:
        variables["traffic.rate"] = _rate_text(run.rate)
        parameters["traffic"] = {"rate": run.rate}
    if run.addition:
        variables["capture"] = run.addition
    if run.trim_ms:
        variables["evaluation.trim"] = format_time(run.trim_ms * MILLISECOND_NS)
    return {
        "slug": "-".join(part for part in parts if part),
        "experiment": experiment,
        "repeat": run.repeat,
        "status": "imported",
        "variables": json.dumps(variables),
        "parameters": json.dumps(parameters),
    }


def _rate_text(rate: int) -> str:
    """A rate as experiment files write it, short where that is exact."""
    short = format_rate(rate)
    return short if parse_rate(short) == rate else f"{rate} pkt/s"


def _insert_warning(connection: duckdb.DuckDBPyConnection, number: int, warning: Warning) -> None:
    connection.execute("INSERT INTO warnings VALUES (?, ?, ?)", [number, *warning])


def _insert_row(connection: duckdb.DuckDBPyConnection, table: str, row: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    columns = ", ".join(row)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", list(row.values()))


def evaluation_of(read: Mapping[str, pa.Table]) -> dict[str, Any]:
    """The row of `evaluations` from a run's files; what they do not contain is None.

    Empty without any file that counts packets. `lost` is, as in the published files, the packets
    before the device minus those after it. `unmatched_egress` are all packets after the device
    without a latency, whatever the reason.
    """
    counts: dict[str, int] = {}
    if "stats" in read:
        counts = read["stats"].to_pylist()[0]
    elif "transferrate" in read:
        row = read["transferrate"].to_pylist()[0]
        counts = {f"{name}_trimmed": row[name] for name in ("pre_received", "post_received")}
    pre, post = counts.get("pre_received"), counts.get("post_received")
    kept = counts.get("pre_received_trimmed"), counts.get("post_received_trimmed")
    matched = int(pc.sum(read["hist"]["count"]).as_py()) if "hist" in read else None
    if not counts and matched is None:
        return {}
    before, after = kept
    percentiles = read["percentiles"]["value"].to_pylist() if "percentiles" in read else []
    first = read["percentiles"]["percentile"][0].as_py() if percentiles else None
    return {
        "key": "signature",
        "ingress": before if pre is None else pre,
        "egress": after if post is None else post,
        "matched": matched,
        "lost": None if before is None or after is None else max(before - after, 0),
        "unmatched_egress": None if after is None or matched is None else max(after - matched, 0),
        "trimmed_ingress": None if pre is None or before is None else pre - before,
        "trimmed_egress": None if post is None or after is None else post - after,
        "min_ns": percentiles[0] if first == 0 else None,
        "max_ns": int(pc.max(read["worst"]["latency"]).as_py()) if "worst" in read else None,
    }


def tables_of(read: Mapping[str, pa.Table], evaluation: Mapping[str, Any]) -> dict[str, pa.Table]:
    """The tables of own runs from a run's files, without the run's number."""
    found: dict[str, pa.Table] = {}
    if "percentiles" in read:
        found["percentiles"] = _percentiles(read["percentiles"], evaluation.get("matched"))
    if "hist" in read:
        found["histogram"] = read["hist"].rename_columns(["bucket_ns", "count"])
    if "worst" in read:
        names = ["latency_ns", "ingress_ns", "egress_ns", "key"]
        found["worst"] = read["worst"].rename_columns(names)
    for name, kind, columns in (
        ("gaps", "jitter", ["bucket_ns", "count"]),
        ("rates", "packetrate", ["start_ns", "packets"]),
    ):
        sides = [
            read[kind + end]
            .rename_columns(columns)
            .add_column(0, "side", pa.repeat(side, len(read[kind + end])))
            for side, end in SIDES.items()
            if kind + end in read
        ]
        if sides:
            found[name] = pa.concat_tables(sides)
    return found


def _percentiles(read: pa.Table, matched: int | None) -> pa.Table:
    """Published percentiles with what follows from their rank; the files have no interval."""
    count = len(read)
    above = pa.nulls(count, pa.int64())
    supported = pa.repeat(False, count)
    if matched:
        # Ranks follow from the number of packets alone.
        one, packets = np.zeros(1, np.int64), np.array([matched], np.int64)
        ranks = _core.percentiles(one, packets, read["percentile"].to_pylist())
        above, supported = (
            pa.array(ranks["above"], pa.int64()),
            pa.array(ranks["supported"], pa.bool_()),
        )
    unknown = pa.nulls(count, pa.int64())
    return pa.table(
        {
            "p": read["percentile"],
            "value": read["value"],
            "low": unknown,
            "high": unknown,
            "above": above,
            "supported": supported,
        }
    )


def _unmatched(run: PublishedRun, evaluation: Mapping[str, Any]) -> Warning | None:
    """A warning about a run that left too many packets after the device out of its statistics."""
    matched, unmatched = evaluation.get("matched"), evaluation.get("unmatched_egress")
    if matched is None or not unmatched:
        return None
    share = unmatched / (matched + unmatched)
    if share <= UNMATCHED_LIMIT:
        return None
    return Warning(
        "unmatched-egress",
        f"{run.source}: {unmatched} packets after the device ({share:.2%}) match none before it "
        "and are in none of its latencies",
    )

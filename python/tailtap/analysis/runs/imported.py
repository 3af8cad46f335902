"""Imported runs, read out of `results.duckdb` into the values that the report shows.

Published files hold less than an evaluation does: no exact distribution, no confidence intervals,
and of some runs no counts. What they do not say stays empty here; nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from tailtap.analysis.evaluation import Histogram, Percentile
from tailtap.analysis.evaluation.model import SIDES
from tailtap.analysis.evaluation.percentiles import DEFAULT
from tailtap.analysis.evaluation.values import require_counts
from tailtap.analysis.runs.run import Integers, Origin, Run, RunEvaluation
from tailtap.base.duck import connect, require_tables
from tailtap.base.errors import InputError
from tailtap.base.foreign import parse_json
from tailtap.records.record import Notice, opened
from tailtap.records.run import Parameters, RunRecord

if TYPE_CHECKING:
    import duckdb

COUNTED = (
    "ingress", "egress", "matched", "lost", "unmatched_egress", "trimmed_ingress", "trimmed_egress",
    "reordered", "duplicate_egress", "errors", "errors_timed",
)  # fmt: skip
TABLES = ("runs", "warnings", "evaluations", "percentiles", "histogram", "worst", "gaps", "rates")
"""Those that imported runs are read from."""
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)
"""What values say that are of other kinds than an import puts in."""


def load_imported(database: Path) -> list[Run]:
    """The imported runs of a database, in the order of their numbers.

    Raises `InputError` when the database cannot be read.
    """
    import duckdb  # takes a tenth of a second to load

    try:
        with connect(database, read_only=True) as connection:
            require_tables(connection, database, TABLES)
            rows = connection.execute(
                "SELECT run, slug, experiment, repeat, variables, parameters, error FROM runs "
                "WHERE status = 'imported' ORDER BY run"
            ).fetchall()
            runs = [_run(connection, *row) for row in rows]
    except (duckdb.Error, *DAMAGED) as error:
        raise _unreadable(database, error) from error
    origins = [run.origin for run in runs if run.origin]
    short = short_places({origin.path for origin in origins})
    return [
        replace(run, database=database, origin=replace(origin, short=short[origin.path]))
        for run, origin in zip(runs, origins, strict=True)
    ]


def has_imported(database: Path) -> bool:
    """Whether a database holds imported runs. Raises `InputError` when it cannot be read."""
    if not database.is_file():
        return False
    import duckdb

    try:
        with connect(database, read_only=True) as connection:
            require_tables(connection, database, TABLES)
            query = "SELECT count(*) FROM runs WHERE status = 'imported'"
            row = connection.execute(query).fetchone()
    except duckdb.Error as error:
        raise _unreadable(database, error) from error
    return bool(row and row[0])


def _unreadable(database: Path, error: Exception) -> InputError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return InputError(
        f"cannot read it: {reason}; close it elsewhere, or remove it and repeat tailtap import"
    ).at(database)


def _run(
    connection: duckdb.DuckDBPyConnection,
    number: int,
    slug: str,
    experiment: str,
    repeat: int,
    variables: str,
    parameters: str,
    error: str | None,
) -> Run:
    settings: dict[str, Any] = parse_json(parameters)
    varied: dict[str, Any] = parse_json(variables)
    place = str(varied.pop("source", ""))
    source = str(settings.get("source", ""))
    told = connection.execute(
        "SELECT code, message FROM warnings WHERE run = ? ORDER BY rowid", [number]
    ).fetchall()
    evaluation = _evaluation(connection, number, settings)
    kinds = ("hdr", "worst", "gaps", "rates", "latency")
    nothing = not evaluation.counts and not any(evaluation.shows(kind) for kind in kinds)
    return Run(
        slug=slug,
        number=number,
        repeat=repeat,
        status="imported",
        experiment=experiment,
        variables={name: str(value) for name, value in varied.items()},
        record=RunRecord(
            number=number,
            slug=slug,
            repeat=repeat,
            variables=varied,
            parameters=opened(f"the parameters of run {number}", settings, Parameters),
            name=experiment,
            status="imported",
            warnings=[],
        ),
        origin=Origin(experiment, place, source),
        error=(error or "imported, but none of its files could be read") if nothing else "",
        # Where the files lie is told once a run, not with every warning.
        notes=tuple(Notice(c, m.removeprefix(f"{source}: ")) for c, m in told),
        read=lambda: evaluation,
    )


def _evaluation(
    connection: duckdb.DuckDBPyConnection, number: int, settings: Mapping[str, Any]
) -> RunEvaluation:
    def columns(names: str, table: str, more: str = "") -> list[Integers]:
        found = connection.execute(
            f"SELECT {names} FROM {table} WHERE run = ? {more} ORDER BY rowid", [number]
        ).fetchnumpy()
        return [np.asarray(column, np.int64) for column in found.values()]

    counts = _counts(connection, number)
    packets = counts.get("matched")
    percentiles = _percentiles(connection, number)
    width = (settings.get("evaluation") or {}).get("bucket")
    if width is not None and (type(width) is not int or width < 1):
        raise ValueError(f"the bucket of run {number} is {width!r}")
    rates = {side: columns("start_ns, packets", "rates", f"AND side = '{side}'") for side in SIDES}
    for _, packets_of in rates.values():
        require_counts(packets_of, "packets")
    worst, arrived = columns("latency_ns, ingress_ns", "worst")
    starts = [start[:1] for start in (rates["ingress"][0], arrived[np.argsort(arrived)])]
    origin = next((int(start[0]) for start in starts if start.size), 0)
    kept = counts.get("ingress")
    row = connection.execute(
        "SELECT mean_ns, max_ns FROM evaluations WHERE run = ?", [number]
    ).fetchone()
    mean, most = row or (None, None)
    return RunEvaluation(
        counts=counts,
        packets=packets,
        offered=None if kept is None else kept - counts.get("trimmed_ingress", 0),
        mean=None if mean is None else float(mean),
        maximum=int(worst.max()) if worst.size else _maximum(counts, percentiles, most),
        percentiles=tuple(row for row in percentiles if row.p in DEFAULT),
        curve_percentiles=percentiles,
        histogram=_histogram(columns("bucket_ns, count", "histogram"), width),
        worst_latency=worst,
        worst_time=(arrived - origin) / 1e9,
        gaps={
            side: _histogram(columns("bucket_ns, count", "gaps", f"AND side = '{side}'"), width)
            for side in SIDES
        },
        rate_start={side: (rates[side][0] - origin) / 1e9 for side in SIDES},
        rate_packets={side: rates[side][1] for side in SIDES},
    )


def _counts(connection: duckdb.DuckDBPyConnection, number: int) -> dict[str, int]:
    """What the files say of `COUNTED`."""
    row = connection.execute(
        f"SELECT {', '.join(COUNTED)} FROM evaluations WHERE run = ?", [number]
    ).fetchone()
    pairs = zip(COUNTED, row or (), strict=bool(row))
    found = {name: int(value) for name, value in pairs if value is not None}
    for name, count in found.items():
        require_counts([count], name)
    return found


def _percentiles(connection: duckdb.DuckDBPyConnection, number: int) -> tuple[Percentile, ...]:
    """The published percentiles, ascending.

    How many packets are above is 0 where nobody says: then `RunEvaluation.packets` is None.
    """
    rows = connection.execute(
        "SELECT p, value, low, high, coalesce(above, 0), supported FROM percentiles "
        "WHERE run = ? ORDER BY p",
        [number],
    ).fetchall()
    return tuple(Percentile(*row) for row in rows)


def _maximum(
    counts: Mapping[str, int], percentiles: tuple[Percentile, ...], most: int | None
) -> int | None:
    """The largest latency where no worst packet tells: a percentile that no packet is above, or
    what the files call it."""
    last = percentiles[-1] if percentiles else None
    return last.value if last and "matched" in counts and not last.above else most


def _histogram(columns: list[Integers], width: int | None) -> Histogram:
    """Buckets of `width` or, where no file's name says it, of the widest that fits the edges."""
    edges, counts = columns
    require_counts(counts)
    if np.any(edges[1:] < edges[:-1]):
        raise ValueError("the buckets of a histogram are not in order")
    return Histogram(edges, counts, width or int(np.gcd.reduce(edges)) or 1)


def short_places(places: set[str]) -> dict[str, str]:
    """Folders without the parts that all of their neighbours share, which tell nothing.

    ``a/measurements/v1`` beside ``a/measurements/v2`` and ``b/v1`` is ``a/v1``. Different folders
    have different names, if need be their own; a folder without neighbours keeps its own.
    """
    below: dict[tuple[str, ...], set[str]] = {}
    for place in places:
        parts = PurePath(place).parts
        for depth, part in enumerate((*parts, "")):
            below.setdefault(parts[:depth], set()).add(part)
    result = {}
    for place in places:
        parts = PurePath(place).parts
        told = [part for depth, part in enumerate(parts) if len(below[parts[:depth]]) > 1]
        result[place] = "/".join(told) or place
    return result if len(set(result.values())) == len(places) else {p: p for p in places}

"""DuckDB: a join by id and quantile_disc over Parquet files made from the captures."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benches.timing import Answer
from benches.traffic import PERCENTILES, Pair
from benches.ways import by_numpy

# Exponents make the literals doubles; without them they are decimals, which are rounded.
QUERY = f"""
SELECT quantile_disc(after.ns - before.ns, [{", ".join(f"{p:.20f}e0" for p in PERCENTILES)}])
FROM read_parquet($before) AS before JOIN read_parquet($after) AS after USING (id)
WHERE after.ns > before.ns AND after.ns < before.ns + 5_000_000_000
"""


def convert(pair: Pair) -> None:
    """Writes stamps and ids of both captures beside them, read as the NumPy script does."""
    for capture in (pair.ingress, pair.egress):
        times, ids = by_numpy.load(capture)
        pq.write_table(pa.table({"ns": times, "id": ids}), _parquet(capture))


def from_parquet(pair: Pair) -> Answer:
    """The query, over files that `convert` wrote before."""
    files = {"before": str(_parquet(pair.ingress)), "after": str(_parquet(pair.egress))}
    with duckdb.connect() as connection:
        row = connection.execute(QUERY, files).fetchone()
    assert row is not None
    return Answer(row[0])


def from_captures(pair: Pair) -> Answer:
    """From the captures to the percentiles."""
    convert(pair)
    return from_parquet(pair)


def _parquet(capture: Path) -> Path:
    return capture.with_suffix(".parquet")

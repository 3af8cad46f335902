"""How fast a pair of captures is evaluated, beside reading it and beside other ways.

All ways run in turn, in several rounds, from the page cache, on all cores; medians are printed.
Each must find the percentiles of the traffic. The captures take 400 MB of disk and of page cache
for each million pairs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import postgres

from benches import timing, traffic
from benches.timing import MILLION, Way
from benches.traffic import Pair
from benches.ways import by_duckdb, by_numpy, by_reading, by_tailtap
from benches.ways.by_postgresql import PostgreSQL

#: PostgreSQL takes a hundred times as long as tailtap.
POSTGRESQL_ROUNDS = 3


def ways(captures: dict[str, Pair], rounds: int) -> list[Way]:
    """The ways that evaluate all packets; the first merely reads, the second is tailtap's."""
    plain = captures["plain"]
    moonsniff = by_tailtap.function("moonsniff")
    return [
        Way("read both files (cat)", plain, by_reading.read, rounds),
        Way("tailtap", plain, moonsniff, rounds),
        Way("tailtap, as a program", plain, by_tailtap.program("moonsniff"), rounds),
        *(
            Way(f"tailtap, {name}", pair, moonsniff, rounds)
            for name, pair in captures.items()
            if pair is not plain
        ),
        Way("tailtap, key signature", plain, by_tailtap.function("signature"), rounds),
        Way("NumPy", plain, by_numpy.evaluate, rounds),
        # The second of two needs the files of the first.
        Way("DuckDB, making the Parquet files included", plain, by_duckdb.from_captures, rounds),
        Way("DuckDB, join and quantile_disc", plain, by_duckdb.from_parquet, rounds),
    ]


def postgresql_ways(pair: Pair, address: str) -> list[Way]:
    """The papers' way, in a database; the second needs the tables of the first."""
    database = PostgreSQL(address)
    return [
        Way("PostgreSQL, import included", pair, database.from_captures, POSTGRESQL_ROUNDS),
        Way("PostgreSQL, join and percentile_disc", pair, database.query, POSTGRESQL_ROUNDS),
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="benches.evaluate", description=__doc__)
    parser.add_argument("--pairs", type=float, default=10, help="millions (default: 10)")
    parser.add_argument(
        "--postgresql-pairs", type=float, default=1, help="millions for PostgreSQL (default: 1)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds in turn (default: 5)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-bench-")))
        found = ways(traffic.variants(folder, int(options.pairs * MILLION)), options.rounds)
        if binaries := postgres.programs():
            (folder / "fewer").mkdir()
            fewer = traffic.plain(folder / "fewer", int(options.postgresql_pairs * MILLION))
            address = stack.enter_context(postgres.cluster(binaries))
            found += postgresql_ways(fewer, address)
        os.sync()
        timing.in_turn(found)
    print(f"{timing.machine()}; median of {options.rounds} rounds in turn\n")
    print("\n".join(timing.table(found, reading=found[0], ours=found[1])))
    if not binaries:
        print("\nPostgreSQL is not installed: apt install postgresql")


if __name__ == "__main__":
    main()

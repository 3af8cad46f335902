"""How fast a pair of captures is evaluated, compared with reading it and with other programs.

Everything runs in turn, in several rounds, from the page cache, on all cores; medians are printed.
Each must find the percentiles of the traffic. The captures take 460 MB of disk and of page cache
for each million pairs. A second table says how long the program takes to start, and to evaluate
small captures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import postgres
from program import TAILTAP

from benches import process, timing, traffic
from benches.timing import MILLION, Way
from benches.traffic import Pair
from benches.ways import by_duckdb, by_numpy, by_reading, by_scapy, by_tailtap, by_tshark
from benches.ways.by_postgresql import PostgreSQL

#: PostgreSQL takes a hundred times as long as tailtap, DuckDB's Parquet files ten times.
SLOW_ROUNDS = 2
#: Pairs of the small captures.
SMALL_PAIRS = 10_000
#: Pairs of the captures that scripts read packet by packet.
SCRIPTED_PAIRS = 100_000
START_ROUNDS = 7
EXPERIMENT = Path(__file__).parents[1] / "examples/quickstart.yaml"
#: So short that packets are forgotten all the time, and longer than any latency.
SHORT_WINDOW_NS = 100_000_000


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
        Way("tailtap, key packet", plain, by_tailtap.function("packet"), rounds),
        Way("tailtap, key signature", plain, by_tailtap.function("signature"), rounds),
        Way(
            "tailtap, key signature, many windows",
            plain,
            by_tailtap.function("signature", SHORT_WINDOW_NS),
            rounds,
        ),
        Way("NumPy", plain, by_numpy.evaluate, rounds),
        # The second of two needs the files of the first.
        Way(
            "DuckDB, making the Parquet files included",
            plain,
            by_duckdb.from_captures,
            SLOW_ROUNDS,
        ),
        Way("DuckDB, join and quantile_disc", plain, by_duckdb.from_parquet, rounds),
    ]


def scripted_ways(pair: Pair, rounds: int) -> list[Way]:
    """What people type today, and tailtap by the key that it takes of any packets, of one pair."""
    found = [
        Way("tailtap, as a program, key packet", pair, by_tailtap.program("packet"), rounds),
        Way("scapy, rdpcap and a dictionary", pair, by_scapy.evaluate, SLOW_ROUNDS),
    ]
    if shutil.which("tshark"):
        found.append(Way("tshark and a dictionary", pair, by_tshark.evaluate, SLOW_ROUNDS))
    return found


def postgresql_ways(pair: Pair, address: str) -> list[Way]:
    """The papers' way, in a database; the second needs the tables of the first."""
    database = PostgreSQL(address)
    return [
        Way("PostgreSQL, import included", pair, database.from_captures, SLOW_ROUNDS),
        Way("PostgreSQL, join and percentile_disc", pair, database.query, SLOW_ROUNDS),
    ]


def starts(small: Pair) -> Iterator[str]:
    """The lines of a table: how long the program takes where it has little to do."""
    evaluate = ("evaluate", small.ingress, small.egress, "--quiet")
    with tempfile.TemporaryDirectory(dir=small.egress.parent) as out:
        commands: dict[str, Sequence[object]] = {
            "tailtap --version": ("--version",),
            "tailtap --help": ("--help",),
            f"tailtap evaluate, {small.sent:,} pairs": evaluate,
            "the same with all tables (--out)": (*evaluate, "--out", out),
            "tailtap run EXPERIMENT --check": ("run", EXPERIMENT, "--check", "--quiet"),
        }
        taken: dict[str, list[process.Finished]] = {name: [] for name in commands}
        for _ in range(START_ROUNDS):
            for name, command in commands.items():
                taken[name].append(process.run(TAILTAP, *command, discard=True))
    yield f"{'':42}{'seconds':>9}{'fastest':>9}{'CPU':>9}{'least':>9}"
    for name, each in taken.items():
        numbers = [one.seconds for one in each], [one.cpu for one in each]
        columns = (f"{statistics.median(few):9.3f}{min(few):9.3f}" for few in numbers)
        yield f"{name:42}{''.join(columns)}"


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
        (folder / "few").mkdir()
        found += scripted_ways(traffic.plain(folder / "few", SCRIPTED_PAIRS), options.rounds)
        if binaries := postgres.programs():
            (folder / "fewer").mkdir()
            fewer = traffic.plain(folder / "fewer", int(options.postgresql_pairs * MILLION))
            address = stack.enter_context(postgres.cluster(binaries))
            found += postgresql_ways(fewer, address)
        (folder / "small").mkdir()
        small = traffic.plain(folder / "small", SMALL_PAIRS)
        os.sync()
        timing.in_turn(found)
        started = list(starts(small))
    print(f"{timing.machine()}; median of {options.rounds} rounds in turn\n")
    print("\n".join(timing.table(found, reading=found[0], ours=found[1])))
    print(f"\nmedian and minimum of {START_ROUNDS} starts in turn\n")
    print("\n".join(started))
    if not binaries:
        print("\nPostgreSQL is not installed: apt install postgresql")


if __name__ == "__main__":
    main()

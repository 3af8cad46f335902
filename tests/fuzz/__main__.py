"""Tries damaged files on each reader: `python -m tests.fuzz [READER[=NUMBER]…]`.

FUZZ_CASES says how many cases each has; FUZZ_FIRST is the number of the first. With a number, only
that case is tried, in a process of its own. The exit status is 1 when a case failed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tailtap.base.errors import MachineError
from tests.fuzz.decoders import DECODERS, Decoder
from tests.fuzz.reader import Case, Many, Reader
from tests.fuzz.readers import READERS

CASES = 10_000
HEADS = ("reader", "cases", "refused", "accepted", "failures", "cases/s")


def tried(reader: Reader | Decoder, numbers: range) -> int:
    """Try these cases, print what came of them; how many failed."""
    outcomes: Counter[str] = Counter()
    failures = 0
    many = Many()
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(reader, Reader):
            reader.build(Path(folder))
        began = time.monotonic()
        for number in numbers:
            outcome, failure = (
                many.tried(Case(reader, number), Path(folder))
                if isinstance(reader, Reader)
                else reader.tried(number)
            )
            outcomes[outcome] += 1
            if failure:
                failures += 1
                print(f"{reader.name}={number}: {failure}", file=sys.stderr, flush=True)
        took = time.monotonic() - began
    row = (reader.name, len(numbers), outcomes["refused"], outcomes["accepted"], failures,
           f"{len(numbers) / took:.0f}")  # fmt: skip
    print_row(row)
    return failures


def print_row(row: tuple[object, ...]) -> None:
    print(f"{row[0]:<24}", *(f"{cell:>9}" for cell in row[1:]), flush=True)


def main() -> None:
    first = int(os.environ.get("FUZZ_FIRST", "0"))
    cases = range(first, first + int(os.environ.get("FUZZ_CASES", CASES)))
    named = dict(word.partition("=")[::2] for word in sys.argv[1:])
    print_row(HEADS)
    failures = 0
    every: tuple[Reader | Decoder, ...] = (*READERS, *DECODERS)
    for reader in every:
        if named and reader.name not in named:
            continue
        number = named.get(reader.name)
        numbers = range(int(number), int(number) + 1) if number else cases
        try:
            failures += tried(reader, numbers)
        except MachineError as lacking:
            print(f"{reader.name}: not tried: {lacking}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

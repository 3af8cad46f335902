"""Counters of interrupts held against late packets: what ``tailtap interrupts --json`` prints.

Samples of the interrupt counters: the files of the kernel, and the CSV form of the papers.

The form is that of the artefacts of "How Low Can You Go?": separated by semicolons, lines end in
CR LF, one row a sample. `timestamp_us` counts from the recorder's first sample. Every other column
is a counter since boot, ``NUMBER_DESCRIPTION_CPUn``, with every run of blanks as one underscore:
``LOC_Local_timer_interrupts_CPU1``. Columns may stand in any order, and a cell is empty where the
kernel did not list the counter yet. Files of ours have two more columns, `OWN`.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from tailtap.base.errors import InputError
from tailtap.base.files import drafted
from tailtap.base.foreign import RECORD_BYTES, read_bytes
from tailtap.records.record import Count, Notice, Number, Record, Share, Whole, says

Answer = Literal["associated", "none", "cannot-tell"]
"""Whether any counter rises where packets are late."""
OffsetSource = Literal["clock", "clocks", "given", "suggested"]
"""How the offset of the samples' clock is known."""


class Took(Record, kw_only=True):
    """How long a sample took, in ns."""

    median: Count
    max: Count


class SamplesRow(Record, kw_only=True):
    """The samples of a run."""

    number: Count
    period_ns: Count
    windows: Count
    took_ns: Took | None


class OffsetRow(Record, kw_only=True):
    """What to add to a sample's time for the captures'."""

    ns: Whole | None
    source: OffsetSource
    best_ns: Whole | None
    low_ns: Whole | None
    high_ns: Whole | None
    p_value: Share | None
    searched_ns: list[Whole] | None


class LateRow(Record, kw_only=True):
    """The late packets."""

    packets: Count
    threshold_ns: Whole


class CounterRow(Record, kw_only=True):
    """A counter that rose."""

    name: str
    increments: Count
    late_per_s: Annotated[Number, says("Increments a second where packets are late")]
    elsewhere_per_s: Number
    p_value: Annotated[Share | None, says("Corrected for the number of counters")]
    """None where no test was possible, or where it rose in too few windows."""
    associated: bool


class SamplerRow(Record, kw_only=True):
    """Whether packets were late while the sampler sampled."""

    packets: Count
    expected: Number
    p_value: Share
    delays: bool


class InterruptsRun(Record, kw_only=True):
    """``interrupts.json`` of a run."""

    run: str
    answer: Answer
    reason: str | None
    samples: SamplesRow
    offset: OffsetRow
    late: LateRow
    counters: list[CounterRow]
    sampler: SamplerRow | None


class InterruptsRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.interrupts/1"):
    """``tailtap interrupts --json``."""

    runs: list[InterruptsRun]
    warnings: list[Notice]


FILE = "interrupts.csv"
"""The file of a run."""
TIME, CLOCK, TOOK = "timestamp_us", "monotonic_ns", "took_ns"
OWN = (CLOCK, TOOK)
"""When each sample began by CLOCK_MONOTONIC, the taps' clock, and how long it took; in ns."""
SOFTIRQ = "softirq"
"""The description of the counters of /proc/softirqs: ``NET_RX_softirq_CPU1``."""
_BLANKS = re.compile(r"\s+")

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Samples:
    """Counters at some moments."""

    times_ns: Sequence[int]
    """When each sample began, ascending; by CLOCK_MONOTONIC, or since the recorder's first."""
    took_ns: Sequence[int] | None
    """How long each took; None in files of others, which have no clock of the taps' either."""
    counters: dict[str, Sequence[int | None]]
    """Each counter's value at each sample, None where it was not listed."""


@dataclass(frozen=True)
class Listing:
    """One look at the counters, as the kernel lists them."""

    cpus: tuple[str, ...]
    lines: tuple[tuple[str, str, int], ...]
    """Each line's name and description, and how many CPUs have a value in it."""
    values: array[int]

    @property
    def labels(self) -> Labels:
        """The column of each value."""
        return _labels(self.cpus, self.lines)


def parse_interrupts(text: str) -> Listing:
    """What /proc/interrupts says; kernel/irq/proc.c and the architectures' arch_show_interrupts.

    Of a line with fewer numbers than CPUs (``ERR:``, ``MIS:``), the first CPUs have them.
    """
    head, *rows = text.splitlines()
    cpus = tuple(head.split())
    lines: list[tuple[str, str, int]] = []
    values = array("Q")
    for row in rows:
        name, _, rest = row.partition(":")
        fields = rest.split(None, len(cpus))
        numbers = 0
        for field in fields[: len(cpus)]:
            if not field.isdigit():
                break
            values.append(int(field))
            numbers += 1
        lines.append((name.strip(), " ".join(fields[numbers:]), numbers))
    return Listing(cpus, tuple(lines), values)


def parse_softirqs(text: str) -> Listing:
    """What /proc/softirqs says; fs/proc/softirqs.c. It lists every possible CPU."""
    head, *rows = text.splitlines()
    lines: list[tuple[str, str, int]] = []
    values = array("Q")
    for row in rows:
        name, _, rest = row.partition(":")
        numbers = rest.split()
        values.extend(map(int, numbers))
        lines.append((name.strip(), SOFTIRQ, len(numbers)))
    return Listing(tuple(head.split()), tuple(lines), values)


@lru_cache(maxsize=8)
def _labels(cpus: tuple[str, ...], lines: tuple[tuple[str, str, int], ...]) -> Labels:
    """Of one list for all samples: the kernel's list changes rarely."""
    return tuple(
        f"{_BLANKS.sub('_', f'{name} {description}'.strip())}_{cpu}"
        for name, description, numbers in lines
        for cpu in cpus[:numbers]
    )


DEVICE = "device"
"""The kind of all interrupts that have a number: those of devices."""
_COLUMN = re.compile(r"(.+)_CPU([0-9]{1,5})")


def kind_of(label: str) -> tuple[int, str] | None:
    """The CPU and the kind of a column: ``LOC``, ``NET_RX softirq``, or `DEVICE`.

    None for a column that is of no CPU.
    """
    match = _COLUMN.fullmatch(label)
    if match is None:
        return None
    name, cpu = match[1], int(match[2])
    if name.endswith(f"_{SOFTIRQ}"):
        return cpu, f"{name.removesuffix(f'_{SOFTIRQ}')} {SOFTIRQ}"
    kind = name.partition("_")[0]
    return cpu, DEVICE if kind.isdigit() else kind


def write_samples(
    path: Path,
    times_ns: Sequence[int],
    took_ns: Sequence[int],
    listings: Sequence[Sequence[Listing]],
) -> None:
    """Write a file of the form: `listings` are the looks of each sample. Raises `OSError`."""
    columns = dict.fromkeys(label for looks in listings for look in looks for label in look.labels)
    with (
        drafted(path) as draft,
        io.TextIOWrapper(draft, "ascii", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file, delimiter=";")
        writer.writerow([TIME, *OWN, *columns])
        for time, took, looks in zip(times_ns, took_ns, listings, strict=True):
            row: dict[str, int] = {}
            for look in looks:
                row.update(zip(look.labels, look.values, strict=True))
            since_us = (time - times_ns[0]) // 1000
            writer.writerow([since_us, time, took, *(row.get(name, "") for name in columns)])


MOST_DIGITS = 18
"""Of a count: it has room in 64 bits."""


def read_samples(path: Path) -> Samples:
    """Read a file of the form. Raises `InputError` for what is none."""
    try:
        file = path.resolve()  # a person may name a link
        text = read_bytes(file, file.parent, RECORD_BYTES).decode()
        head, *rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=";")) or [[]]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"cannot read samples of interrupts: {error}").at(path) from error
    if TIME not in head:
        raise InputError(
            f"no column {TIME}: give samples of /proc/interrupts, separated by semicolons"
        ).at(path)
    twice = {name for name in head if head.count(name) > 1}
    if twice:
        raise InputError(f"the column {min(twice)} is there twice").at(path)
    if rows and len(rows[-1]) < len(head):
        rows.pop()  # the recorder was ended while it wrote
    if len(rows) < 2:
        raise InputError(f"{len(rows)} samples; increments need two").at(path)
    columns: dict[str, list[int | None]] = {name: [] for name in head}
    for number, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise InputError(f"{len(row)} cells under {len(head)} columns").at(f"{path}:{number}")
        for name, cell in zip(head, row, strict=True):
            if cell and not (cell.isascii() and cell.isdigit() and len(cell) <= MOST_DIGITS):
                raise InputError(f"'{cell}' of {name} is no count").at(f"{path}:{number}")
            columns[name].append(int(cell) if cell else None)
    since = _all_there(path, TIME, columns.pop(TIME))
    own = [_all_there(path, name, columns.pop(name)) for name in OWN if name in columns]
    times, took = own if len(own) == len(OWN) else ([time * 1000 for time in since], None)
    for number, (before, after) in enumerate(pairwise(times), 3):
        if after <= before:
            raise InputError("this sample is not later than the one before it").at(
                f"{path}:{number}"
            )
    return Samples(times, took, dict(columns))


def _all_there(path: Path, name: str, values: Sequence[int | None]) -> list[int]:
    found = [value for value in values if value is not None]
    if len(found) < len(values):
        raise InputError(f"no {name}").at(f"{path}:{list(values).index(None) + 2}")
    return found

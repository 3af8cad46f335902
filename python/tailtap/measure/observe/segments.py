"""What taps and tracer write in pieces of a second, and a stretch of time of it as one."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tailtap.analysis.live.written import FORMS, PCAP_HEADER, SUFFIXES, Row
from tailtap.base.errors import InputError
from tailtap.base.files import drafted, write_json
from tailtap.lab.instruments.tracer import EVENTS, RECORD
from tailtap.records.record import as_json, read
from tailtap.records.trace import TraceNames, TraceRecord, UsualPasses

COUNTS_AT = 16
"""Where the counts of stamps and marks stand in their headers."""
STAMPS, MARKS = b"\x89TTSTMP\n", b"\x89TTMARK\n"
COUNTS = {STAMPS: 4, MARKS: 6}
SAMPLES_AT, SAMPLE_ROWS_AT, SAMPLE_LEN = 68, 128, 16
"""Where a file of marks has the number of its samples, and these; docs/reference/files.md."""
MOST_SAMPLES = (FORMS[MARKS][0] - SAMPLE_ROWS_AT) // SAMPLE_LEN
NAMES = ("seen", "stored", "lost", "other", "filtered", "unsampled")
_OPEN = 2**64 - 1
"""A count of a file that is not complete."""
_MAGIC_LEN = 8


def row_of(folder: Path, side: str) -> Row | None:
    """The row of a side's files in a folder; None before there is a file."""
    for suffix in SUFFIXES:
        row = Row(folder / f"{side}{suffix}")
        if row.files():
            return row
    return None


def join_captures(paths: Sequence[Path], target: Path, *, below: Path) -> dict[str, int]:
    """Write one capture of some that follow each other; its counts are those of all, by name.

    Where one is still being written nobody knows these. Raises `OSError`.
    """
    with drafted(target, below=below) as whole:
        for place, path in enumerate(paths):
            with path.open("rb") as part:
                head = part.read(_header_len(path))
                if not place:
                    whole.write(head)
                shutil.copyfileobj(part, whole)
        counts = _counts(paths)
        if counts:
            whole.seek(COUNTS_AT)
            whole.write(struct.pack(f"<{len(counts)}Q", *counts))
        if len(counts) == COUNTS[MARKS]:
            samples = _samples(paths)
            whole.seek(SAMPLES_AT)
            whole.write(struct.pack("<I", len(samples)))
            whole.seek(SAMPLE_ROWS_AT)
            whole.write(b"".join(samples))
    return {} if _OPEN in counts else dict(zip(NAMES, counts, strict=False))


def _header_len(path: Path) -> int:
    with path.open("rb") as file:
        return FORMS.get(file.read(_MAGIC_LEN), (PCAP_HEADER, 0))[0]


def _samples(paths: Sequence[Path]) -> list[bytes]:
    """From when on which sample was taken, of all files of marks; the last ones that have room."""
    found: dict[bytes, None] = {}
    for path in paths:
        with path.open("rb") as file:
            head = file.read(FORMS[MARKS][0])
        [number] = struct.unpack_from("<I", head, SAMPLES_AT)
        rows = head[SAMPLE_ROWS_AT:][: SAMPLE_LEN * number]
        found |= dict.fromkeys(rows[at : at + SAMPLE_LEN] for at in range(0, len(rows), SAMPLE_LEN))
    return sorted(found, key=lambda row: struct.unpack_from("<Q", row))[-MOST_SAMPLES:]


def _counts(paths: Sequence[Path]) -> list[int]:
    """The counts of all files together; none of pcaps."""
    total: list[int] = []
    for path in paths:
        with path.open("rb") as file:
            number = COUNTS.get(file.read(_MAGIC_LEN), 0)
            file.seek(COUNTS_AT)
            counts = list(struct.unpack(f"<{number}Q", file.read(8 * number)))
        total = [
            _OPEN if _OPEN in pair else sum(pair)
            for pair in zip(total or [0] * number, counts, strict=True)
        ]
    return total


@dataclass(frozen=True)
class TraceFile:
    """A complete file of a trace, and what it says of itself."""

    events: Path
    record: TraceRecord


class TraceRow:
    """A trace in a row of files."""

    def __init__(self, folder: Path) -> None:
        """Those in `folder`."""
        self._records = Row(folder / RECORD)
        self._known: dict[Path, TraceFile] = {}
        self.lost = 0
        """Records that found no room, in all files that were looked at."""

    def files(self) -> list[TraceFile]:
        """The complete ones, in their order."""
        return [self._file(path) for path in self._records.files()]

    def _file(self, path: Path) -> TraceFile:
        if path not in self._known:
            self._known[path] = TraceFile(
                path.with_suffix(Path(EVENTS).suffix), read(path, TraceRecord)
            )
            self.lost += sum(self._known[path].record.lost.values())
        return self._known[path]

    @property
    def until_ns(self) -> int:
        """What ended before is in the complete files."""
        files = self.files()
        return files[-1].record.ended_ns if files else 0

    def between(self, from_ns: int, until_ns: int) -> list[TraceFile]:
        """Those that tell of some of a stretch of time."""
        return [one for one in self.files()
                if one.record.started_ns < until_ns and one.record.ended_ns > from_ns]  # fmt: skip

    def drop(self, before_ns: int) -> list[TraceFile]:
        """Remove those that tell of nothing since; which they were."""
        old = [one for one in self.files() if one.record.ended_ns <= before_ns]
        for one in old:
            record = one.events.with_suffix(Path(RECORD).suffix)
            for path in (record, one.events):  # what has no record is no trace
                path.unlink(missing_ok=True)
            self._known.pop(record, None)
        return old


def join_traces(files: Sequence[TraceFile], folder: Path, *, below: Path) -> TraceRecord:
    """Write one trace of some that follow each other into a run folder.

    Raises `OSError`, and `InputError` where there is none.
    """
    if not files:
        raise InputError("nothing was traced in that time").at(folder)
    with drafted(folder / EVENTS, below=below) as whole:
        for place, one in enumerate(files):
            with one.events.open("rb") as part:
                magic = part.read(_MAGIC_LEN)
                if not place:
                    whole.write(magic)
                shutil.copyfileobj(part, whole)
    records = [one.record for one in files]
    joined = msgspec.structs.replace(
        records[-1],
        started_ns=records[0].started_ns,
        records=sum(record.records or 0 for record in records),
        lost=_sums(record.lost for record in records),
        paused_ns=sum(record.paused_ns for record in records),
        usual=_usual(records),
        names=TraceNames(
            **{
                kind: {
                    key: one
                    for record in records
                    for key, one in getattr(record.names, kind).items()
                }
                for kind in TraceNames.__struct_fields__
            }
        ),
    )
    write_json(folder / RECORD, as_json(joined), below=below)
    return joined


def _sums(several: Iterator[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in several:
        for key, count in one.items():
            total[key] = total.get(key, 0) + count
    return total


def _usual(records: Sequence[TraceRecord]) -> dict[str, UsualPasses]:
    """Passes of all; half of them took at most what that is for the latest ones."""
    passes = _sums({cpu: one.passes for cpu, one in record.usual.items()} for record in records)
    return {
        cpu: UsualPasses(passes=count, half_ns=records[-1].usual[cpu].half_ns)
        for cpu, count in passes.items()
        if cpu in records[-1].usual
    }


def bytes_in(folder: Path) -> int:
    """What the files below a folder take."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # it was just dropped
            continue
    return total

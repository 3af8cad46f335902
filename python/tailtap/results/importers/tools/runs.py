"""Result files of other tools, found in a tree and read as runs."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.evaluation.tables import from_rows
from tailtap.analysis.evaluation.values import DEFAULT, papers, percentiles_of
from tailtap.base.foreign import TABLE_BYTES, files_below, open_file, read_bytes, storable
from tailtap.base.units import exact_rate
from tailtap.records.record import Extremes, Notice
from tailtap.records.run import RunRecord
from tailtap.results.importers.importable import DAMAGED, Content, record_of
from tailtap.results.importers.published import UNREADABLE
from tailtap.results.importers.tools import TOOLS, tool_of
from tailtap.results.importers.tools.reading import OPEN, Reading, checked, widths

HEAD = 20_000
"""Bytes that say what a file is, unless it is JSON, whose parts may be in any order."""
_NUMBERED = re.compile(
    r"(?:[0-9]{3,}-)?(?P<stem>.+?)[-_.](?P<word>r|rep|run|repeat|trial)?(?P<repeat>[0-9]{1,6})"
)
"""Files that differ in such numbers alone may be repeats."""
MISSING = 0.2
"""The share of repeats that may be missing where nothing but a number calls them so."""
FEWEST = 10
"""Packets above a percentile that is supported."""
PERCENTILES = pa.schema(
    [("p", pa.float64()), *((name, pa.int64()) for name in ("value", "low", "high", "above")),
     ("supported", pa.bool_())]
)  # fmt: skip


@dataclass
class ToolRun:
    """A measurement in a result file."""

    path: Path
    place: str
    """Its folder, from the tree's root on."""
    tool: str
    digest: str | None
    reading: Reading | None
    stem: str
    """Its file's name without what tells it from its repeats."""
    repeat: int = 0
    """The number of the repeat; 0 where there are none."""
    warnings: list[Notice] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What tells it from others of the same file."""
        return self.reading.name if self.reading else ""

    @property
    def source(self) -> str:
        """Its file, and which measurement of it."""
        return f"{self.path}#{self.name}" if self.name else str(self.path)

    def read(self) -> Content:
        """Its percentiles, and its histogram where all buckets are equally wide."""
        found = self.reading
        if found is None:
            return Content()
        tables = {"percentiles": percentile_table(found)}
        width = self._width
        if width is not None and width > 1:
            tables["histogram"] = pa.table(
                {"bucket_ns": found.buckets.low, "count": found.buckets.count}
            )
        counts = {
            "matched": found.total,
            "lost": found.lost,
            "errors": found.errors,
            "errors_timed": None if found.errors is None else found.among,
            "reordered": found.reordered,
            "duplicate_egress": found.duplicates,
            "ingress": found.sent,
            "egress": found.total,
        }
        latency = Extremes(min=found.minimum, mean=found.mean, max=found.maximum)
        return Content(Partial.of(self.tool, counts, tables, latency, width))

    @property
    def _width(self) -> int | None:
        """How wide its buckets are, if all are alike."""
        wide = np.unique(widths(self.reading.buckets)) if self.reading else np.empty(0)
        return int(wide[0]) if wide.size == 1 else None

    def record(self, experiment: str) -> RunRecord:
        """Its record, from the name of its file."""
        variables = {"source": self.place, "file": self.stem, "tool": self.tool}
        if self.name:
            variables["part"] = self.name
        parameters: dict[str, Any] = {"source": self.source, "digest": self.digest}
        rate = self.reading.rate if self.reading else None
        if rate:
            variables["traffic.rate"] = exact_rate(rate)
            parameters["traffic"] = {"rate": rate}
        if self._width is not None:
            parameters["evaluation"] = {"bucket": self._width}
        parts = [self.place, self.tool, self.stem, self.name, str(self.repeat or "")]
        error = None if self.reading else UNREADABLE
        repeat = max(self.repeat, 1)
        return record_of(parts, experiment, repeat, variables, parameters, error)


def find_tool_runs(
    tree: Path, taken: Collection[Path] = (), unit: int | None = None
) -> tuple[list[ToolRun], list[Path]]:
    """The measurements in all result files of a tree, and the files of which nothing is known.

    Files that are `taken` are neither. `unit`, in ns, is that of files that do not say theirs.
    """
    root = tree.resolve()
    paths = [path for path in files_below(root) if path not in taken]
    tools = {path: tool for path in paths if (tool := _tool(path, root)) is not None}
    repeats = _repeats(tools)
    runs: list[ToolRun] = []
    for path, tool in tools.items():
        place = str(path.parent.relative_to(root))
        stem, repeat = repeats.get(path, (_stem(path), 0))
        run = ToolRun(path, "" if place == "." else place, tool, None, None, stem, repeat)
        runs += _runs(run, root, unit)
    return runs, [path for path in paths if path not in tools]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".zst").removesuffix(path.suffix)


def _repeats(tools: Mapping[Path, str]) -> dict[Path, tuple[str, int]]:
    """Which files are repeats: the name of what they repeat, and the number of each.

    Numbers that follow each other are of repeats, as 1, 2, 3; 64 and 1518 are sizes, or rates.
    """
    series: dict[tuple[Path, str, str], dict[Path, re.Match[str]]] = {}
    for path, tool in tools.items():
        if (numbered := _NUMBERED.fullmatch(_stem(path))) is not None:
            series.setdefault((path.parent, numbered["stem"], tool), {})[path] = numbered
    found = {}
    for files in series.values():
        numbers = sorted({int(one["repeat"]) for one in files.values()})
        missing = numbers[-1] - numbers[0] + 1 - len(numbers)
        follow = len(numbers) > 1 or numbers[0] <= 1
        for path, one in files.items():
            if one["word"] or (follow and missing <= MISSING * len(numbers)):
                found[path] = one["stem"], int(one["repeat"])
    return found


def _tool(path: Path, root: Path) -> str | None:
    try:
        with open_file(path, root) as file:
            head = file.read(HEAD)
            if head.lstrip()[:1] == b"{":
                head += file.read(TABLE_BYTES)
        return tool_of(head.decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None


def _runs(run: ToolRun, root: Path, unit: int | None) -> Iterator[ToolRun]:
    path, tool = run.path, run.tool
    file = path.relative_to(root)
    try:
        data = read_bytes(path, root, TABLE_BYTES)
        readings = TOOLS[tool].readings(data.decode("utf-8", "replace"), unit)
        found = [checked(one) for one in readings]
        if not found:
            raise ValueError("it holds no latencies")
    except DAMAGED as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        text = f"{file}: skipped, it cannot be read as a result of {tool}: {reason}"
        yield replace(run, warnings=[Notice("file-damaged", text)])
        return
    for one in found:
        digest = hashlib.sha256(f"{storable(path.name)}\n{one.name}\n".encode() + data).hexdigest()
        told = [Notice(note.code, f"{file}: {note.message}") for note in one.doubts]
        yield replace(run, digest=digest, reading=one, warnings=told)


def percentile_table(found: Reading) -> pa.Table:
    """Its percentiles: the upper ends of buckets, with what ranks and buckets leave open."""
    buckets, total = found.buckets, found.total
    rows: list[tuple[float, int, int | None, int | None, int | None, bool]] = []
    if buckets.count.size:
        ps = sorted({*DEFAULT, *papers()})
        upper = percentiles_of((buckets.high, buckets.count), ps)
        lower = percentiles_of((buckets.low, buckets.count), ps)
        rows += [
            (one.p, one.value, other.low, one.high, one.above, one.supported)
            for one, other in zip(upper, lower, strict=True)
            if one.value < OPEN
        ]
    for p, value in () if buckets.count.size else sorted(found.percentiles):
        above = None if total is None else total - max(math.ceil(p * total), 1)
        rows.append((p, value, None, None, above, above is not None and above >= FEWEST))
    return from_rows([dict(zip(PERCENTILES.names, row, strict=True)) for row in rows], PERCENTILES)

"""Result files of other tools, found in a tree and read as runs."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tailtap.analysis.evaluation.percentiles import DEFAULT, papers, percentiles_of
from tailtap.output.importers.importable import Content, Row
from tailtap.output.importers.tools import TOOLS, tool_of
from tailtap.output.importers.tools.reading import Reading, checked, widths
from tailtap.records.files import slugify
from tailtap.records.foreign import TABLE_BYTES, files_below, open_file, read_bytes, storable
from tailtap.records.record import Notice
from tailtap.records.units import exact_rate

SUFFIXES = frozenset((".hlog", ".json", ".txt", ".log", ".out", ".csv", ""))
HEAD = 20_000
"""Bytes that say what a file is."""
_NUMBERED = re.compile(r"(?:[0-9]{3,}-)?(?P<stem>.+?)[-_.](?:r|run|repeat)?(?P<repeat>[0-9]{1,6})")
"""Files that differ in such numbers alone are repeats."""
FEWEST = 10
"""Packets above a percentile that is supported."""
PERCENTILES = pa.schema(
    [("p", pa.float64()), *((name, pa.int64()) for name in ("value", "low", "high", "above")),
     ("supported", pa.bool_())]
)  # fmt: skip
DAMAGED = (OSError, ValueError, LookupError, TypeError, ArithmeticError, pa.ArrowException)


@dataclass
class ToolRun:
    """A measurement in a result file."""

    path: Path
    place: str
    """Its folder, from the tree's root on."""
    tool: str
    digest: str | None
    reading: Reading | None
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
        wide = np.unique(widths(found.buckets))
        if wide.size == 1 and wide[0] > 1:
            tables["histogram"] = pa.table(
                {"bucket_ns": found.buckets.low, "count": found.buckets.count}
            )
        lost = found.lost
        row = {
            "key": self.tool,
            "matched": found.total,
            "lost": lost,
            "ingress": None if lost is None or found.total is None else found.total + lost,
            "egress": found.total,
            "min_ns": found.minimum,
            "mean_ns": found.mean,
            "max_ns": found.maximum,
        }
        return Content(row, tables)

    def row(self, experiment: str) -> Row:
        """Its row, from the name of its file."""
        stem = self.path.name.removesuffix(".zst").removesuffix(self.path.suffix)
        numbered = _NUMBERED.fullmatch(stem)
        stem, repeat = (numbered["stem"], int(numbered["repeat"])) if numbered else (stem, 1)
        variables = {"source": self.place, "file": stem, "tool": self.tool}
        if self.name:
            variables["part"] = self.name
        parameters: dict[str, Any] = {"source": self.source, "digest": self.digest}
        rate = self.reading.rate if self.reading else None
        if rate:
            variables["traffic.rate"] = exact_rate(rate)
            parameters["traffic"] = {"rate": rate}
        if self.reading and (wide := np.unique(widths(self.reading.buckets))).size == 1:
            parameters["evaluation"] = {"bucket": int(wide[0])}
        parts = (self.place, self.tool, stem, self.name, str(repeat) if numbered else "")
        slug = "-".join(part for part in map(slugify, parts) if part)
        return Row(slug, experiment, max(repeat, 1), variables, parameters)


def find_tool_runs(tree: Path, taken: Collection[Path] = ()) -> Iterator[ToolRun]:
    """The measurements in all result files of a tree, less the files that are `taken`."""
    root = tree.resolve()
    for path in files_below(root):
        if path.suffix.lower() in SUFFIXES and path not in taken:
            tool = _tool(path, root)
            if tool is not None:
                yield from _runs(path, root, tool)


def _tool(path: Path, root: Path) -> str | None:
    try:
        with open_file(path, root) as file:
            return tool_of(file.read(HEAD).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None


def _runs(path: Path, root: Path, tool: str) -> Iterator[ToolRun]:
    place = str(path.parent.relative_to(root))
    run = ToolRun(path, "" if place == "." else place, tool, None, None)
    try:
        data = read_bytes(path, root, TABLE_BYTES)
        found = [checked(one) for one in TOOLS[tool].read(data.decode("utf-8", "replace"))]
        if not found:
            raise ValueError("it holds no latencies")
    except DAMAGED as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        text = f"{path}: skipped, it cannot be read as a result of {tool}: {reason}"
        yield replace(run, warnings=[Notice("file-damaged", text)])
        return
    for one in found:
        digest = hashlib.sha256(f"{storable(path.name)}\n{one.name}\n".encode() + data).hexdigest()
        told = [Notice(note.code, f"{path}: {note.message}") for note in one.doubts]
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
        ]
    for p, value in () if rows else sorted(found.percentiles):
        above = None if total is None else total - max(math.ceil(p * total), 1)
        rows.append((p, value, None, None, above, above is not None and above >= FEWEST))
    return pa.Table.from_pylist(
        [dict(zip(PERCENTILES.names, row, strict=True)) for row in rows], PERCENTILES
    )

"""The published result trees: nine CSV files for each run, and their names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tailtap.analysis.evaluation.values import require_counts
from tailtap.base.foreign import TABLE_BYTES, files_below, read_bytes, storable
from tailtap.records.record import Notice

_INT, _TEXT, _REAL = pa.int64(), pa.string(), pa.float64()
_BUCKETS = {"bucket": _INT, "count": _INT}
_SECONDS = {"ts": _INT, "count": _INT}
#: The columns of each kind of file, in their order.
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "percentiles": {"percentile": _REAL, "value": _INT, "onefraconeminuspercentile": _TEXT},
    "hist": {"latency_bucket": _INT, "count": _INT},
    "worst": {"latency": _INT, "prets": _INT, "postts": _INT, "encode": _TEXT},
    "jitterpre": _BUCKETS,
    "jitterpost": _BUCKETS,
    "packetratepre": _SECONDS,
    "packetratepost": _SECONDS,
    "stats": {
        "pre_received": _INT,
        "post_received": _INT,
        "pre_received_trimmed": _INT,
        "post_received_trimmed": _INT,
    },
    "transferrate": {
        "pre_received": _INT,
        "post_received": _INT,
        "transferrate": _TEXT,
        "pre_pkts_per_second": _TEXT,
        "post_pkts_per_second": _TEXT,
    },
}
#: The older form of a list of worst packets; its ids begin with a backslash.
_WORST_BY_ID = {
    **dict.fromkeys(("latency", "prets", "postts"), _INT),
    **dict.fromkeys(("id", "srcport", "dstport"), _TEXT),
}
#: In pkt/s: no link carries more.
MOST_RATE = 10**12
MOST_REPEATS = 10**6
#: Published files have 275. How well each is known takes up to a millisecond to find out.
MOST_PERCENTILES = 2000
#: The columns that count something.
_COUNTS = (
    "count",
    "pre_received",
    "post_received",
    "pre_received_trimmed",
    "post_received_trimmed",
)
_ONE_ROW = ("stats", "transferrate")
_NAME = re.compile(
    r"(?P<capture>latencies-pre.*?\.pcap(?:_run\d+)?(?:\.zst)?)"
    r"(?:\.bucket_size(?P<bucket>\d{1,18}))?"
    r"\.trim_ms(?P<trim>\d{1,12})"
    r"(?:\.num_worst\d+)?"
    rf"\.(?P<kind>{'|'.join(COLUMNS)})"
    r"\.csv(?:\.zst)?"
)


@dataclass
class PublishedRun:
    """One run of a result tree: which files it has."""

    #: The folder that the files lie in, and the same from the tree's root on.
    folder: Path
    place: str
    #: The folder that is imported.
    root: Path
    #: The name of the capture that the files were made from.
    capture: str
    trim_ms: int
    bucket_ns: int | None = None
    files: dict[str, Path] = field(default_factory=dict)
    warnings: list[Notice] = field(default_factory=list)
    #: SHA-256 of its name and of what is in its files, plain or compressed; None until `read`
    #: could read one of them. A run is known by it wherever its tree lies.
    digest: str | None = None

    @property
    def name(self) -> str:
        """Its capture and trim."""
        return f"{self.capture}.trim_ms{self.trim_ms}"

    @property
    def source(self) -> str:
        """Where it is: its folder, capture and trim."""
        return str(self.folder / self.name)

    @property
    def addition(self) -> str:
        """What its name has besides rate and repeat; mostly nothing."""
        stem = self.capture.removeprefix("latencies-pre").split(".pcap")[0]
        return re.sub(r"-(rate|repeat)\d+(?=-|$)", "", stem).strip("-")

    @property
    def rate(self) -> int | None:
        """The packet rate of the run's name in pkt/s; None where it says none that can be."""
        return self._number("rate", 1, MOST_RATE)

    @property
    def repeat(self) -> int:
        """The number of its repeat from 1, also without repeats. Names count from 0."""
        found = self._number("repeat", 0, MOST_REPEATS)
        return 1 if found is None else found + 1

    def _number(self, word: str, least: int, most: int) -> int | None:
        found = re.search(rf"-{word}(\d+)", self.capture)
        return int(found[1]) if found and least <= int(found[1]) <= most else None

    def _doubts(self) -> Iterator[str]:
        """What its name says that cannot be."""
        for word, number in (
            ("rate", self.rate),
            ("repeat", self._number("repeat", 0, MOST_REPEATS)),
        ):
            if number is None and (found := re.search(rf"-{word}\d+", self.capture)):
                yield f"no {word} is like {found[0][1:]!r} in its name: it counts as unknown"

    def read(self) -> dict[str, pa.Table]:
        """The tables of the files by kind; sets `digest`.

        Adds a warning for each broken file, and one that names all that are missing.
        """
        found = {}
        self.warnings += [
            Notice("name-unlikely", f"{self.source}: {doubt}") for doubt in self._doubts()
        ]
        digest = hashlib.sha256(storable(self.name).encode())
        missing = [kind for kind in COLUMNS if kind not in self.files]
        if missing:
            self.warnings.append(
                Notice("file-missing", f"{self.source}: it has no {', '.join(missing)}")
            )
        for kind in (kind for kind in COLUMNS if kind in self.files):
            path = self.files[kind]
            try:
                text = read_bytes(path, self.root, TABLE_BYTES)
                digest.update(f"\n{kind} {len(text)}\n".encode() + text)
                self.digest = digest.hexdigest()
                found[kind] = _parse(text, kind)
            except (OSError, ValueError, pa.ArrowException) as error:
                reason = (str(error).strip() or repr(error)).splitlines()[0]
                self.warnings.append(
                    Notice("file-damaged", f"{path}: skipped, it cannot be read: {reason}")
                )
        return found


def find_published(tree: Path) -> list[PublishedRun]:
    """The runs of a result tree at any depth, in the order of folder, rate, name and trim."""
    root = tree.resolve()
    runs: dict[str, PublishedRun] = {}
    for path in files_below(root):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        place = path.parent.relative_to(root).as_posix()
        run = PublishedRun(path.parent, place, root, match["capture"], int(match["trim"]))
        run = runs.setdefault(run.source, run)
        if match["kind"] in run.files:
            taken = run.files[match["kind"]].name
            run.warnings.append(
                Notice("file-twice", f"{path}: skipped, {taken} tells the same of this run")
            )
            continue
        run.files[match["kind"]] = path
        if match["bucket"] and int(match["bucket"]):
            run.bucket_ns = int(match["bucket"])
    return sorted(runs.values(), key=lambda r: (r.place, r.rate or 0, r.capture, r.trim_ms))


def read_file(path: Path, kind: str) -> pa.Table:
    """One file of a result tree, in the columns of `COLUMNS`.

    Raises `ValueError`, `OSError` or Arrow's errors when it is broken.
    """
    return _parse(read_bytes(path, path.parent, TABLE_BYTES), kind)


def _parse(text: bytes, kind: str) -> pa.Table:
    columns = COLUMNS[kind]
    if not text.endswith(b"\n"):
        raise ValueError("it is cut off within a line")
    types = {**columns, **(_WORST_BY_ID if kind == "worst" else {})}
    options = pyarrow.csv.ConvertOptions(
        column_types=types, null_values=[], strings_can_be_null=False
    )
    table = pyarrow.csv.read_csv(pa.py_buffer(text), convert_options=options)
    if kind == "worst" and table.column_names == list(_WORST_BY_ID):
        keys = pc.utf8_ltrim(table.column("id"), characters="\\")
        table = table.select(["latency", "prets", "postts"]).append_column("encode", keys)
    if table.column_names != list(columns):
        raise ValueError(f"its columns are not {','.join(columns)}")
    if kind in _ONE_ROW and len(table) != 1:
        raise ValueError(f"it has {len(table)} rows instead of one")
    if kind == "percentiles" and len(table) > MOST_PERCENTILES:
        raise ValueError(f"it has {len(table)} percentiles; {MOST_PERCENTILES} are the most")
    if not len(table):
        raise ValueError("it has no rows")
    for name in (name for name in _COUNTS if name in table.column_names):
        require_counts(table.column(name).to_numpy(), name)
    check = _CHECKS.get(kind)
    if check is not None and not check(table):
        raise ValueError("its numbers are out of order")
    return table


def _sorted(column: str) -> Callable[[pa.Table], bool]:
    def check(table: pa.Table) -> bool:
        values = table.column(column).combine_chunks()
        return bool(pc.all(pc.less_equal(values[:-1], values[1:])).as_py() is not False)

    return check


def _percentiles_rise(table: pa.Table) -> bool:
    ps: Iterable[float] = table.column("percentile").to_pylist()
    return all(0 <= p <= 1 for p in ps) and all(
        _sorted(name)(table) for name in ("percentile", "value")
    )


def _latencies_are_differences(table: pa.Table) -> bool:
    spans = pc.subtract(table.column("postts"), table.column("prets"))
    return bool(pc.all(pc.equal(spans, table.column("latency"))).as_py())


_CHECKS: Mapping[str, Callable[[pa.Table], bool]] = {
    "percentiles": _percentiles_rise,
    "worst": _latencies_are_differences,
    "hist": _sorted("latency_bucket"),
    "jitterpre": _sorted("bucket"),
    "jitterpost": _sorted("bucket"),
}

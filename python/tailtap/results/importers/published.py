"""The published result trees: for each run nine CSV files or two captures, and their names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tailtap import _core
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.evaluation.values import require_counts
from tailtap.base.foreign import TABLE_BYTES, files_below, read_bytes, storable
from tailtap.base.units import exact_rate, format_count, format_share, format_time
from tailtap.records.record import Extremes, Notice
from tailtap.records.run import RunRecord
from tailtap.results.importers.importable import Content, evaluated, record_of, sampled

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
#: More packets after the device without a match than this share are a warning.
UNMATCHED_LIMIT = 0.001
MILLISECOND_NS = 1_000_000
SIDES = {"ingress": "pre", "egress": "post"}
UNREADABLE = "imported, but none of its files could be read"
CAPTURE = re.compile(r"(?P<before>.*-)pre(?P<behind>.*\.(pcap|pcapng|mscap)(_run\d+)?(\.zst)?)")
"""A capture before the device; that behind it has `post` in place of `pre`."""
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
    trim_ms: int = 0
    bucket_ns: int | None = None
    #: Both captures, where they are there, and samples of the device's interrupts.
    captures: tuple[Path, Path] | None = None
    samples: Path | None = None
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

    @property
    def all_files(self) -> Sequence[Path]:
        """Those that it is made of."""
        samples = () if self.samples is None else (self.samples,)
        return (*self.files.values(), *(self.captures or ()), *samples)

    @property
    def settings(self) -> dict[str, int | None]:
        """How it was evaluated, by the names of its files; times in ns."""
        return {"trim": self.trim_ms * MILLISECOND_NS, "bucket": self.bucket_ns}

    def read(self) -> Content:
        """What its captures say or, without these, its files."""
        digest = hashlib.sha256(storable(self.name).encode())
        samples = sampled(self.samples, self.root, self.warnings)
        self.warnings += [
            Notice("name-unlikely", f"{self.source}: {doubt}") for doubt in self._doubts()
        ]
        if self.captures is not None:
            settings = {
                "trim_ns": self.trim_ms * MILLISECOND_NS,
                "bucket_ns": self.bucket_ns or 100,
            }
            found = evaluated(self.captures, self.root, self.warnings, digest, **settings)
            if found is not None:
                self.digest = digest.hexdigest()
                return Content(found, self.captures, samples)
        read = self.tables(digest) if self.files else {}
        if not read:
            return Content(samples=samples)
        counts = _counts(read)
        warning = self._unmatched(counts)
        if warning is not None:
            self.warnings.append(warning)
        tables = _tables(read, counts.get("matched"))
        partial = Partial.of("signature", counts, tables, _extremes(read), self.bucket_ns)
        return Content(partial, samples=samples)

    def record(self, experiment: str) -> RunRecord:
        """Its record, from the names of its files."""
        name = self.capture.removeprefix("latencies-pre").split(".")[0]
        parts = [self.place, name, *([f"trim{self.trim_ms}ms"] if self.trim_ms else [])]
        variables: dict[str, Any] = {"source": self.place}
        parameters: dict[str, Any] = {
            "source": self.source,
            "digest": self.digest,
            "evaluation": self.settings,
        }
        if self.rate is not None:
            variables["traffic.rate"] = exact_rate(self.rate)
            parameters["traffic"] = {"rate": self.rate}
        if self.addition:
            variables["capture"] = self.addition
        if self.trim_ms:
            variables["evaluation.trim"] = format_time(self.trim_ms * MILLISECOND_NS)
        error = None if self.digest else UNREADABLE
        return record_of(parts, experiment, self.repeat, variables, parameters, error)

    def tables(self, digest: Any = None) -> dict[str, pa.Table]:
        """The tables of the files by kind; with a hash of its name, sets `digest`.

        Adds a warning for each broken file, and one that names all that are missing.
        """
        found = {}
        missing = [kind for kind in COLUMNS if kind not in self.files]
        if missing:
            self.warnings.append(
                Notice("file-missing", f"{self.source}: it has no {', '.join(missing)}")
            )
        for kind in (kind for kind in COLUMNS if kind in self.files):
            path = self.files[kind]
            try:
                text = read_bytes(path, self.root, TABLE_BYTES)
                if digest is not None:
                    digest.update(f"\n{kind} {len(text)}\n".encode() + text)
                    self.digest = digest.hexdigest()
                found[kind] = _parse(text, kind)
            except (OSError, ValueError, pa.ArrowException) as error:
                reason = (str(error).strip() or repr(error)).splitlines()[0]
                self.warnings.append(
                    Notice("file-damaged", f"{path}: skipped, it cannot be read: {reason}")
                )
        return found

    def _unmatched(self, counts: Mapping[str, int | None]) -> Notice | None:
        """A warning where too many packets after the device are in no statistic."""
        matched, unmatched = counts.get("matched"), counts.get("unmatched_egress")
        if matched is None or not unmatched:
            return None
        share = unmatched / (matched + unmatched)
        if share <= UNMATCHED_LIMIT:
            return None
        return Notice(
            "unmatched-egress",
            f"{self.source}: no packet before the device matches "
            f"{format_count(unmatched, 'packet')} ({format_share(share)}) after it, of which no "
            "latency is known",
        )


def find_published(tree: Path) -> list[PublishedRun]:
    """The runs of a result tree at any depth, in the order of folder, rate, name and trim.

    Those of which there are result files, captures of both sides, or both.
    """
    root = tree.resolve()
    runs: dict[str, PublishedRun] = {}
    captures: list[tuple[Path, Path]] = []
    paths = files_below(root)
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match is None:
            if (before := CAPTURE.fullmatch(path.name)) is not None:
                behind = path.with_name(f"{before['before']}post{before['behind']}")
                captures.append((path, behind))
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
    for pair in captures:
        first = pair[0]
        same = [one for one in runs.values() if one.folder / one.capture == first]
        if not same and (pair[1].exists() or first.name.startswith("latencies-pre")):
            place = first.parent.relative_to(root).as_posix()
            same = [PublishedRun(first.parent, place, root, first.name)]
            runs[same[0].source] = same[0]
        for run in same:
            run.captures = pair
    for run in runs.values():
        run.samples = _samples_beside(run.folder, run.capture, paths)
    return sorted(runs.values(), key=lambda r: (r.place, r.rate or 0, r.capture, r.trim_ms))


def _samples_beside(folder: Path, capture: str, paths: Sequence[Path]) -> Path | None:
    """The samples of the interrupt recorder that are called as a capture is: ``irq-…csv``."""
    end = capture.removeprefix("latencies-pre").replace(".zst", "").replace(".pcap", "")
    wanted = re.compile(rf"irq[a-z]*{re.escape(end)}\.csv(\.zst)?")
    return next((one for one in paths if one.parent == folder and wanted.fullmatch(one.name)), None)


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


def _counts(read: Mapping[str, pa.Table]) -> dict[str, int | None]:
    """The counts of an evaluation from a run's files; what they do not contain is None.

    Empty without any file that counts packets. `lost` is, as in the published files, the packets
    before the device minus those after it. `unmatched_egress` are all packets after the device
    without a latency, whatever the reason.
    """
    counts: dict[str, int] = {}
    if "stats" in read:
        counts = read["stats"].to_pylist()[0]
    elif "transferrate" in read:
        row = read["transferrate"].to_pylist()[0]
        counts = {f"{name}_trimmed": row[name] for name in ("pre_received", "post_received")}
    pre, post = counts.get("pre_received"), counts.get("post_received")
    kept = counts.get("pre_received_trimmed"), counts.get("post_received_trimmed")
    matched = int(pc.sum(read["hist"]["count"]).as_py()) if "hist" in read else None
    if not counts and matched is None:
        return {}
    before, after = kept
    return {
        "ingress": before if pre is None else pre,
        "egress": after if post is None else post,
        "matched": matched,
        "lost": None if before is None or after is None else max(before - after, 0),
        "unmatched_egress": None if after is None or matched is None else max(after - matched, 0),
        "trimmed_ingress": None if pre is None or before is None else pre - before,
        "trimmed_egress": None if post is None or after is None else post - after,
    }


def _extremes(read: Mapping[str, pa.Table]) -> Extremes:
    values = read["percentiles"]["value"].to_pylist() if "percentiles" in read else []
    first = read["percentiles"]["percentile"][0].as_py() if values else None
    return Extremes(
        min=values[0] if first == 0 else None,
        max=int(pc.max(read["worst"]["latency"]).as_py()) if "worst" in read else None,
    )


def _tables(read: Mapping[str, pa.Table], matched: int | None) -> dict[str, pa.Table]:
    """The tables of an evaluation from a run's files."""
    found: dict[str, pa.Table] = {}
    if "percentiles" in read:
        found["percentiles"] = _percentiles(read["percentiles"], matched)
    if "hist" in read:
        found["histogram"] = read["hist"].rename_columns(["bucket_ns", "count"])
    if "worst" in read:
        names = ["latency_ns", "ingress_ns", "egress_ns", "key"]
        found["worst"] = read["worst"].rename_columns(names)
    for name, kind, columns in (
        ("gaps", "jitter", ["bucket_ns", "count"]),
        ("rates", "packetrate", ["start_ns", "packets"]),
    ):
        sides = [
            read[kind + end]
            .rename_columns(columns)
            .add_column(0, "side", pa.repeat(side, len(read[kind + end])))
            for side, end in SIDES.items()
            if kind + end in read
        ]
        if sides:
            found[name] = pa.concat_tables(sides)
    return found


def _percentiles(read: pa.Table, matched: int | None) -> pa.Table:
    """Published percentiles with what follows from their rank; the files have no interval."""
    count = len(read)
    above = pa.nulls(count, pa.int64())
    supported = pa.repeat(False, count)
    if matched:
        # Ranks follow from the number of packets alone.
        one, packets = np.zeros(1, np.int64), np.array([matched], np.int64)
        ranks = _core.percentiles(one, packets, read["percentile"].to_pylist())
        above, supported = (
            pa.array([row[4] for row in ranks], pa.int64()),
            pa.array([row[5] for row in ranks], pa.bool_()),
        )
    unknown = pa.nulls(count, pa.int64())
    return pa.table(
        {
            "p": read["percentile"],
            "value": read["value"],
            "low": unknown,
            "high": unknown,
            "above": above,
            "supported": supported,
        }
    )

"""Whether captures, evaluated again, give what was published, number by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pyarrow as pa

from tailtap.analysis.evaluation.executors import Threads
from tailtap.analysis.evaluation.many import CHUNK_BYTES
from tailtap.analysis.evaluation.tables import read_any
from tailtap.analysis.runs.again import OPTIONS, Runs, evaluate_again
from tailtap.analysis.runs.folder import CAPTURES, EVALUATION, RunFolder
from tailtap.base.errors import InputError, TailtapError
from tailtap.base.files import copy, make_folder, make_link
from tailtap.base.foreign import sha256
from tailtap.base.units import format_size
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.record import read
from tailtap.records.site import Finding, RepeatedStep, SiteCapture, SiteRecord
from tailtap.show.reproduce.fetching import fetch_file
from tailtap.show.reproduce.steps import contradicted, not_shown, step

SIDES = ("ingress", "egress")


def evaluate_captures(
    site: Path,
    record: SiteRecord,
    captures: Path | None,
    progress: Callable[[str], None] = lambda _: None,
    *,
    most: int = 0,
) -> RepeatedStep:
    """Evaluate the captures of each run again that are in the site, or in the folder `captures`.

    There they are at the paths of the site, or lie beside each other in folders called as the runs.
    Others are fetched from where the site says that they are, up to `most` bytes together, and kept
    as long as their run is evaluated. A run without its captures is not shown.
    """
    findings: list[Finding] = []
    runs = [run for run in record.runs if run.status == "done"]
    left = most
    with TemporaryDirectory() as folder:
        for run in runs:
            progress(f"evaluating {run.slug} again")
            own = {
                PurePosixPath(one.path).name: one
                for one in record.captures
                if PurePosixPath(one.path).parent == PurePosixPath(run.folder)
                and any(PurePosixPath(one.path).match(kind) for kind in CAPTURES)
            }
            with TemporaryDirectory(dir=folder) as fetched:
                found, problem = _found(own, site, captures, Path(fetched), left)
                left -= sum(path.stat().st_size for path in Path(fetched).iterdir())
                if problem is None:
                    problem = _again(run.slug, site / run.folder, found, Path(fetched))
            if problem is not None:
                findings.append(problem)
    return step("captures", "captures evaluated again", len(runs), findings)


def _found(
    own: Mapping[str, SiteCapture], site: Path, captures: Path | None, fetched: Path, left: int
) -> tuple[dict[str, Path], Finding | None]:
    """Where the captures of a run are, or why they are not as published.

    What is fetched, up to `left` bytes, goes into `fetched`.
    """
    found: dict[str, Path] = {}
    for name, one in own.items():
        tops = [site, *([captures] if captures is not None else [])]
        paths = [(top / one.path, top) for top in tops]
        if captures is not None:
            paths.append((captures / PurePosixPath(one.path).parent.name / name, captures))
        path, top = next((row for row in paths if row[0].is_file()), (None, site))
        if path is None and one.url and 0 < one.bytes <= left:
            path, top = fetched / name, fetched
            try:
                fetch_file(one.url, path, fetched, one.bytes)
            except InputError as error:
                return found, not_shown(one.path, f"this capture is not here, and {error}")
            left -= one.bytes
        if path is None:
            size = format_size(one.bytes)
            where = f": {one.url} has it ({size}; --fetch SIZE)" if one.url else ""
            return found, not_shown(one.path, f"this capture is not here{where}; --captures DIR")
        try:
            same = sha256(path, top)[1] == one.sha256
        except (OSError, ValueError) as error:
            return found, contradicted(one.path, f"it cannot be read: {error}")
        if not same:
            return found, contradicted(one.path, "this capture is another: its checksum differs")
        found[name] = path
    return found, None


def _again(slug: str, published: Path, captures: Mapping[str, Path], top: Path) -> Finding | None:
    """Evaluate one run in a folder of its own; what differs, or None."""
    if not all(any(name.startswith(side) for name in captures) for side in SIDES):
        return not_shown(slug, "no captures of it were published")
    run = RunFolder(top / "again", top)
    make_folder(run.path, below=top)
    for name, path in captures.items():
        make_link(run.path / name, path.resolve(), below=top)
    try:
        copy(published / "run.json", run.record, root=published, below=top)
        stored = read(published / "evaluation" / EVALUATION, EvaluationRecord)
        changes = {name: getattr(stored.options, name) for name in OPTIONS}
        with Threads() as executor:
            outcome = evaluate_again(
                Runs(top, [run], None), executor, changes, chunk_bytes=CHUNK_BYTES,
                percentiles=(), print_line=lambda _: None, replace=True,
            )  # fmt: skip
        error = next(iter(outcome.errors.values()), None)
        if error is not None:
            return contradicted(slug, f"it cannot be evaluated again: {error}")
        different = list(_differing(published / "evaluation", run.evaluation))
    except TailtapError as error:
        return contradicted(slug, f"it cannot be evaluated again: {error}")
    if different:
        return contradicted(slug, f"evaluated again, it has another {', '.join(different)}")
    return None


def _differing(published: Path, again: Path) -> Iterator[str]:
    """What of two evaluations is not the same. Text is not compared: addresses in it may have been
    replaced.
    """
    one, other = (read(folder / EVALUATION, EvaluationRecord) for folder in (published, again))
    if one.counts != other.counts:
        yield "number of packets"
    if one.latency_ns.min != other.latency_ns.min or one.latency_ns.max != other.latency_ns.max:
        yield "latency"
    names = {path.name for folder in (published, again) for path in folder.glob("*.parquet")}
    for name in sorted(names):
        tables = [table_of(folder / name, folder) for folder in (published, again)]
        if not same_numbers(*tables):
            yield name.removesuffix(".parquet")


def table_of(path: Path, root: Path) -> pa.Table:
    """A Parquet file in the folder `root` or below; an empty table of one that cannot be read."""
    try:
        return read_any(path, root)
    except (OSError, ValueError, pa.ArrowException):
        return pa.table({})


def same_numbers(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same columns and, but for text, the same values in them.

    Versions of libraries differ in how wide they make a column of whole numbers.
    """
    if one.column_names != other.column_names or one.num_rows != other.num_rows:
        return False
    return bool(one.column_names) and all(
        pa.types.is_string(column.type) or _wide(column).equals(_wide(other[name]))
        for name, column in zip(one.column_names, one.columns, strict=True)
    )


def _wide(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_signed_integer(column.type) else column

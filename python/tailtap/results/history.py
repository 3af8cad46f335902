"""Measurements of many commits in one DuckDB file: two tables, runs and their percentiles."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailtap.analysis.compare.configurations import ASKED, load_of
from tailtap.analysis.compare.history import Measured
from tailtap.analysis.evaluation.values import DEFAULT
from tailtap.analysis.runs.groups import label_parts
from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.duck import (
    connect,
    locked_by,
    log_of,
    refused_by,
    require_file,
    require_tables,
)
from tailtap.base.errors import InputError, OfAnotherKind
from tailtap.base.files import opened, sync
from tailtap.base.foreign import open_file, parse_json, storable
from tailtap.base.units import format_rate
from tailtap.records.causes import NOISE, NoiseRecord
from tailtap.records.compare import AddedRecord
from tailtap.records.machine import Environment
from tailtap.records.record import mark, read

if TYPE_CHECKING:
    import duckdb

TABLES = ("history_runs", "history_percentiles")
SCHEMA = """
CREATE TABLE IF NOT EXISTS history_runs (
    id VARCHAR PRIMARY KEY, "commit" VARCHAR NOT NULL, date VARCHAR NOT NULL,
    experiment VARCHAR NOT NULL, configuration VARCHAR NOT NULL, load VARCHAR NOT NULL,
    traffic VARCHAR NOT NULL, wire BOOLEAN NOT NULL, slug VARCHAR NOT NULL, started VARCHAR,
    packets BIGINT, lost BIGINT, machine VARCHAR NOT NULL, noise DOUBLE
);
CREATE TABLE IF NOT EXISTS history_percentiles (
    id VARCHAR NOT NULL, p DOUBLE NOT NULL, value BIGINT NOT NULL, low BIGINT, high BIGINT,
    supported BOOLEAN NOT NULL
);
"""
SHORT_SHA = 7
"""Letters of a commit by which git abbreviates it."""
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, RecursionError)


def add(history: Path, source: Path, commit: str, date: str = "") -> AddedRecord:
    """Put the good runs at `source` into the file `history`, as measurements of `commit`.

    `source` is whatever `read_runs` takes. `date` (ISO 8601) puts the commit in order; without one,
    the first run's does. What was put in before is replaced. Raises `InputError` when no run is
    good or nothing tells a date, `MachineError` when the file cannot be written.
    """
    runs, noise = read_runs(source).runs, _noise(source)
    good = [run for run in runs if not run.excluded]
    if not good:
        told = "; ".join(f"{run.slug}: {run.excluded}" for run in runs[:3])
        raise InputError(f"no run of it can be kept ({told})").at(source)
    date = date or min((run.started for run in good if run.started), default="")
    if not date:
        raise InputError("nothing says when its runs were made: give --date").at(source)
    try:  # one form for all, as they are in the order of their letters
        date = datetime.fromisoformat(date).astimezone(UTC).isoformat(timespec="seconds")
    except ValueError:
        raise InputError(f"{date!r} is no date: give one as 2026-11-26T10:00:00") from None
    replaced = 0
    with changed(history) as connection:
        connection.begin()
        connection.execute('UPDATE history_runs SET date = ? WHERE "commit" = ?', [date, commit])
        for run in good:
            row = {**_row(run, commit, date), "noise": noise}
            known = connection.execute("DELETE FROM history_runs WHERE id = ?", [row["id"]])
            replaced += int((known.fetchone() or (0,))[0])
            connection.execute("DELETE FROM history_percentiles WHERE id = ?", [row["id"]])
            connection.execute(
                f"INSERT INTO history_runs VALUES ({', '.join('?' * len(row))})",
                storable(list(row.values())),
            )
            connection.executemany(
                "INSERT INTO history_percentiles VALUES (?, ?, ?, ?, ?, ?)",
                [[row["id"], *values] for values in _percentiles(run)],
            )
        connection.commit()
    left = [f"{run.slug}: {run.excluded}" for run in runs if run.excluded]
    return AddedRecord(
        history=str(history), commit=commit, date=date, runs=len(good), replaced=replaced,
        left_out=left,
    )  # fmt: skip


@contextlib.contextmanager
def changed(history: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The history to be written: a copy takes its place at the end, with all that is done or, after
    an error, not.

    Where another program only reads it, too. Raises `MachineError` for whatever DuckDB cannot do,
    and `InputError` for links.
    """
    import duckdb

    try:
        with _writable(history) as connection:
            require_tables(connection, history, TABLES)
            connection.execute(SCHEMA)
            yield connection
    except (duckdb.Error, OSError) as error:
        raise refused_by(history, error, "it is as it was") from error


@contextlib.contextmanager
def _writable(history: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    require_file(history)
    there = history.is_file()
    if log_of(history).exists() or (there and locked_by(history) == fcntl.F_WRLCK):
        with connect(history) as connection:
            yield connection
        return
    with opened(history.parent) as folder:
        draft, file = folder.draft(0o600)
        place = history.with_name(draft)
        try:
            with file:
                if there:
                    with open_file(history) as source:
                        shutil.copyfileobj(source, file)
            if not there:
                place.unlink()  # no database is empty: DuckDB makes it
            with connect(place) as connection:
                yield connection
                connection.execute("CHECKPOINT")
            if not there and history.exists():
                raise FileExistsError(errno.EEXIST, "another program made it meanwhile")
            if there:
                place.chmod(stat.S_IMODE(history.stat().st_mode))
                with contextlib.suppress(PermissionError):
                    os.chown(place, history.stat().st_uid, history.stat().st_gid)
            sync(place)
            folder.rename(draft, history.name)
            folder.sync()
        finally:
            folder.remove(draft)
            folder.remove(log_of(place).name)


def load(history: Path) -> list[Measured]:
    """All runs of a history. Raises `InputError` when it cannot be read."""
    import duckdb

    if not history.is_file():
        raise InputError("no such file: `tailtap history add` makes it").at(history)
    try:
        with connect(history, read_only=True) as connection:
            require_tables(connection, history, TABLES)
            return _loaded(connection)
    except (duckdb.Error, *DAMAGED) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise OfAnotherKind("history of tailtap", reason).at(history) from error


def _row(run: Run, commit: str, date: str) -> dict[str, Any]:
    traffic = load_of(run)
    rate = traffic.pop("rate", None)
    text = "unknown rate" if not rate else format_rate(float(f"{rate:.2g}"))
    if isinstance(rate, int):
        text = format_rate(rate)
    parts = [_unnamed(part, commit) for part in label_parts(run, ASKED)]
    configuration = " · ".join(filter(None, parts)) or "the device"
    return {
        "id": mark(commit, run.experiment, configuration, text, run.slug, run.started or None),
        "commit": commit,
        "date": date,
        "experiment": _unnamed(run.experiment, commit) or "results",
        "configuration": configuration,
        "load": text,
        "traffic": json.dumps(traffic, sort_keys=True, default=str),
        "wire": run.traits is not None and not run.traits.has_dut,
        "slug": run.slug,
        "started": run.started or None,
        "packets": run.packets,
        "lost": run.lost,
        "machine": json.dumps(facts(run.environment)),
    }


def _unnamed(name: str, commit: str) -> str:
    """A name without the commit by which a folder is named: it is another one in each commit."""
    whole = re.sub(rf"(?<!\w){re.escape(commit)}(?!\w)", "", name)
    kept = (
        "" if len(part) >= SHORT_SHA and commit.startswith(part) else part
        for part in re.split(r"([\W_]+)", whole)
    )
    return "".join(kept).strip(" -_/.·")


def _noise(source: Path) -> float | None:
    """How much of the noisiest core's time something took, by what lies beside the runs."""
    path = source / NOISE
    if not path.is_file():
        return None
    cpus = read(path, NoiseRecord).cpus
    return max((cpu.gap_ns / cpu.elapsed_ns for cpu in cpus if cpu.elapsed_ns), default=None)


def facts(found: Environment) -> dict[str, str]:
    """What of a machine changes latencies, and is not changed by who measures."""
    cpu = found.cpu
    told: Mapping[str, Any] = {
        "host": found.hostname,
        "processor": cpu.model,
        "microcode": cpu.microcode,
        "kernel": found.kernel.release,
        "command line": found.kernel.command_line,
        "online CPUs": cpu.online,
        "SMT": cpu.smt,
        "governors": _joined((cpu.governors or {}).values()),
        "mitigations": _joined(f"{k} {v}" for k, v in (cpu.mitigations or {}).items()),
        "clock source": found.clocksource,
        "network cards": _joined(f"{n.driver} {n.firmware or ''}" for n in found.nics if n.driver),
        "tailtap": found.versions.get("tailtap"),
    }
    return {name: str(value) for name, value in told.items() if value}


def _joined(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value).strip() for value in values if value}))


def _percentiles(run: Run) -> Iterator[tuple[float, int, int | None, int | None, bool]]:
    for p in (*DEFAULT, 1.0):
        row = run.percentile(p)
        lost = run.gone > 1 - p and p < 1
        if row is not None and not lost:
            yield p, row.value, row.low, row.high, bool(row.supported)


def _loaded(connection: duckdb.DuckDBPyConnection) -> list[Measured]:
    values: dict[str, dict[float, tuple[int, int | None, int | None, bool]]] = {}
    for key, p, *rest in connection.execute(
        "SELECT id, p, value, low, high, supported FROM history_percentiles"
    ).fetchall():
        values.setdefault(key, {})[p] = tuple(rest)
    columns: Sequence[str] = (
        "id", '"commit"', "date", "experiment", "configuration", "load", "traffic", "wire",
        "machine", "noise",
    )  # fmt: skip
    rows = connection.execute(
        f'SELECT {", ".join(columns)} FROM history_runs ORDER BY date, "commit", started, slug'
    ).fetchall()
    found = []
    for row in rows:
        key, commit, date, experiment, configuration, load, traffic, wire, machine, noise = row
        known = msgspec.convert(parse_json(machine), dict[str, str])
        told = values.get(key, {})
        found.append(
            Measured(
                commit, date, experiment, configuration, load, traffic, wire, told, known, noise
            )
        )
    return found

"""Results in the formats of other programs: one file a format, one row in `EXPORTERS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.registry import Registry
from tailtap.records.printed import ExportRecord
from tailtap.results.exporters.base import Exporter

__all__ = ["EXPORTERS", "Exporter", "export"]


def _built_in() -> Mapping[str, Exporter]:
    from tailtap.results.exporters.papers import Papers
    from tailtap.results.exporters.perfetto import Perfetto
    from tailtap.results.exporters.pos import Pos
    from tailtap.results.exporters.postgresql import PostgreSQL
    from tailtap.results.exporters.tables import Csv, Parquet
    from tailtap.results.exporters.texts import Benchmark, Hgrm, Hlog

    return {
        "parquet": Parquet(),
        "csv": Csv(),
        "hgrm": Hgrm(),
        "hlog": Hlog(),
        "github-action-benchmark": Benchmark(),
        "papers": Papers(),
        "pos": Pos(),
        "perfetto": Perfetto(),
        "postgresql": PostgreSQL(),
    }


EXPORTERS: Registry[Exporter] = Registry("exporter", "tailtap.exporters", Exporter, _built_in)
"""Every format by its name."""


def export(
    source: Path, to: str, out: Path | None = None, *, packets: bool = False
) -> ExportRecord:
    """Write the finished runs of `source` in the format `to`.

    `source` is an experiment folder, a run folder or a folder with an evaluation; `to` is a key of
    `EXPORTERS` or the address of a PostgreSQL database (``postgresql://…``). Files go into the
    folder `out`, or ``source/export/<format>``; files of the same names are replaced. With
    `packets`, the captures of each run are matched again and every packet is written.

    Imported runs are written where there are none of one's own, in formats that need no stamps.

    Raises `InputError` when there is nothing to export, when captures were of two clocks, or when
    `to` is unknown, and `MachineError` when the destination cannot be written.
    """
    scheme, separator, _ = to.partition("://")
    kind = "postgresql" if scheme == "postgres" else scheme
    exporter = EXPORTERS.get(kind)
    if exporter is None or exporter.address != bool(separator):
        raise InputError(f"unknown format; give {_formats()}").at(f"--to {scheme}")
    if exporter.address and out is not None:
        raise InputError("--out is for files; with an address, --to says where the tables go")
    if packets and not exporter.holds_packets:
        others = [name for name, one in EXPORTERS.working() if one.holds_packets]
        raise InputError(f"{kind} has no place for them; {' and '.join(others)} have").at(
            "--packets"
        )
    finished = finished_runs(source)
    runs = [run for run in finished if run.origin is None] or finished
    _refuse_two_clocks(runs)
    destination = to if exporter.address else str(out or source / "export" / kind)
    written = exporter.export(runs, destination, packets=packets)
    invalid = [run.slug for run in runs if run.valid is False]
    return ExportRecord(to=kind, runs=len(runs), written=written, invalid=invalid)


def _refuse_two_clocks(runs: Sequence[Run]) -> None:
    """Raise `InputError` for latencies that other programs would take for more than they are."""
    for run in runs:
        clocks = run.evaluation.clocks if run.evaluation else None
        if clocks is not None and clocks.within_ns:
            raise InputError(
                "no other format has a place for what its latencies may be off by, "
                f"{Within(clocks.within_ns).text}; its tables are Parquet files already"
            ).at(run.folder)


def _formats() -> str:
    """What `--to` can be, in words."""
    names = [
        f"an address {name}://USER@HOST/DATABASE" if one.address else name
        for name, one in EXPORTERS.working()
    ]
    return f"{', '.join(names[:-1])} or {names[-1]}"

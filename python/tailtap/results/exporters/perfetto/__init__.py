"""Runs with a trace as files of Perfetto, for ui.perfetto.dev: cores, late packets, and flows."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tailtap.analysis.causes.stored import causes_of
from tailtap.analysis.causes.trace import has_trace, with_trace
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError, PackageMissing
from tailtap.results.exporters.base import Common, whole


class Perfetto(Common):
    """One file for each run, in windows around its worst packets or whole."""

    summary = "Traces for ui.perfetto.dev: what each core did, and late packets with their causes."
    documentation = (
        "Of each run with a trace, the surroundings of its worst packets or, with "
        "`--packets`, the whole run and every packet. docs/howto/why-late.md "
        "describes the tracks. Needs `pip install perfetto`."
    )
    name = package = install = "perfetto"
    holds_packets = True

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write a file for each run that has a trace into the folder `destination`."""
        if find_spec("perfetto") is None:
            raise PackageMissing("perfetto's files need", "perfetto")
        from tailtap.results.exporters.perfetto.drawing import write

        traced = [run for run in runs if has_trace(run)]
        if not traced:
            where = runs[0].own_folder or runs[0].slug
            raise InputError(f"--to perfetto: {where}: no trace: {with_trace()}")
        written = []
        for run in traced:
            folder, name = Path(destination), f"{run.slug}.pftrace"
            causes = causes_of(run)
            with whole(folder, name) as file:
                write(causes, file, packets=packets)
            written.append(str(folder / name))
        return written

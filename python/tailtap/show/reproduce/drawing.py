"""Whether figures and tables, made again from the published runs, are those that were published.

No command of a site is run: what figures and tables show is gathered as `tailtap publish` did it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.runs.run import Experiment
from tailtap.base.errors import TailtapError
from tailtap.records.site import Finding, RepeatedStep, SiteRecord
from tailtap.results.exporters.tables import Parquet
from tailtap.show.publish.figures import numbers
from tailtap.show.report import gather
from tailtap.show.report.requested import as_csv, data_of, requested_figures
from tailtap.show.reproduce.captures import same_numbers, table_of
from tailtap.show.reproduce.steps import contradicted, not_shown, step

NEAR = 1e-9
"""How far, as a share, another version of a library may put a mark from where it was drawn."""


def draw_again(
    site: Path,
    record: SiteRecord,
    progress: Callable[[str], None] = lambda _: None,
) -> RepeatedStep:
    """Make figures and tables again, and hold what is drawn against the published numbers."""
    what = "figures and tables made again"
    try:
        findings = [*_figures(site, record, progress), *differing_tables(site, record)]
    except TailtapError as error:
        wrong = contradicted("report", f"it cannot be made again: {error}")
        return step("figures", what, 1, [wrong])
    return step("figures", what, len(record.figures) + len(record.tables), findings)


def _figures(site: Path, record: SiteRecord, progress: Callable[[str], None]) -> list[Finding]:
    material = gather(site, progress=progress)
    drawn = {figure.name: numbers(figure) for figure in material.figures}
    drawn |= _requested(material.experiment)
    findings = []
    for figure in record.figures:
        data = next((name for name in figure.data if name.endswith(".parquet")), None)
        if figure.name not in drawn:
            findings.append(contradicted(figure.name, "the runs give no such figure"))
        elif data is None:
            findings.append(not_shown(figure.name, "its numbers were not published"))
        elif not same_marks(_ours(table_of(site / data, site)), _ours(drawn[figure.name])):
            findings.append(contradicted(figure.name, f"drawn again, it is not as {data} says"))
    return findings


def _requested(experiment: Experiment) -> dict[str, pa.Table]:
    """What is drawn of the figures that the experiment's own file asks for."""
    return {
        one.name: pyarrow.csv.read_csv(io.BytesIO(as_csv(data_of(one.drawn))))
        for one in requested_figures(experiment, None)
        if one.drawn is not None and one.drawn.panels
    }


def differing_tables(site: Path, record: SiteRecord) -> list[Finding]:
    """The published tables that are not those of the published runs."""
    own = (run for run in read_runs(site).own if run.record is not None)
    finished = [run for run in own if run.evaluation is not None]
    findings = []
    with TemporaryDirectory() as folder:
        made = {Path(path).name: Path(path) for path in Parquet().export(finished, folder)}
        for name in record.tables:
            again = made.get(PurePosixPath(name).name)
            if again is None:
                findings.append(contradicted(name, "the runs give no such table"))
            elif not same_numbers(table_of(site / name, site), table_of(again, again.parent)):
                findings.append(contradicted(name, "made again, it has other rows"))
    return findings


def _ours(table: pa.Table) -> pa.Table:
    """A table without what others published: that need not be in the site."""
    if "role" not in table.column_names:
        return table
    return table.filter(pc.not_equal(table["role"], "published"))


def same_marks(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same marks, which may be `NEAR` where they were."""
    if one.schema != other.schema or one.num_rows != other.num_rows:
        return False
    return all(
        column.equals(other[name])
        or (pa.types.is_floating(column.type) and _near(column, other[name]))
        for name, column in zip(one.column_names, one.columns, strict=True)
    )


def _near(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    left, right = (np.asarray(column.to_numpy(), float) for column in (one, other))
    return bool(np.allclose(left, right, rtol=NEAR, atol=0.0, equal_nan=True))

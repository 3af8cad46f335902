"""Folders of runs: whoever shows a number shows the true one, and damage costs one run."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from tailtap.analysis.evaluation.executors import Threads
from tailtap.analysis.evaluation.values import DEFAULT
from tailtap.analysis.runs.again import evaluate_again, find
from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment, read_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.experiment import RunRow
from tailtap.results.database import refresh
from tailtap.show.report import write_report
from tailtap.show.sections import Table
from tailtap.show.sections.latency import runs_table
from tailtap.show.sections.renderers import in_markdown
from tests.simulation.draw import Draw
from tests.simulation.folders import LISTED, Made, everything, experiment, ranked
from tests.simulation.trial import Trial

FOLLOWING = ("percentiles.parquet", "histogram.parquet")
"""Files that say in short what others hold, for other programs: none of ours reads them."""
TIMES = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def run(draw: Draw, folder: Path) -> None:
    """What is read of runs, beside one that is damaged, and once that is evaluated anew."""
    made = experiment(draw, folder)
    as_true(made, read_runs(folder).runs)
    before = everything(folder)
    broken = None
    if draw.has("damage", 0.7) and (damaged := damage(draw, folder, made)):
        there = everything(folder)
        found = read_runs(folder).runs
        as_true([one for one in made if one is not damaged], found)
        [broken] = [one for one in found if one.slug == damaged.slug]
        assert broken.evaluation is None and "\n" not in broken.failure, broken
        assert damaged.slug in broken.failure, broken.failure
        assert everything(folder) == there
    if any(one.done for one in made) and (broken is None or broken.status != "damaged"):
        shown_on_a_terminal(made, again(folder, draw.choice("bytes of a piece", (1 << 30, 40_000))))
        assert everything(folder) == before


def again(folder: Path, chunk_bytes: int) -> Sequence[RunRow]:
    """All runs evaluated anew."""
    with Threads(1) as executor:
        outcome = evaluate_again(
            find(folder), executor, {}, chunk_bytes=chunk_bytes, percentiles=DEFAULT,
            print_line=lambda _: None, replace=True,
        )  # fmt: skip
    return outcome.summary().runs


def as_true(made: Sequence[Made], found: Sequence[Run]) -> None:
    """What is read of runs is true."""
    by_slug = {one.slug: one for one in found}
    for true in made:
        one = by_slug[true.slug]
        assert (one.number, one.repeat, one.status) == (true.number, true.repeat, true.status)
        assert one.variables == true.variables
        assert {(w.code, w.message) for w in one.all_warnings} >= set(true.warnings)
        if not true.done:
            assert one.evaluation is None and one.failure and "\n" not in one.failure
            continue
        evaluation, latency = one.evaluation, true.latency
        assert evaluation is not None, one.failure
        sent = true.packets.sent.size
        assert (one.packets, one.lost, evaluation.offered) == (latency.size, true.lost, sent)
        assert one.loss == true.lost / sent
        assert one.maximum == latency[-1]
        assert evaluation.mean is not None
        assert latency[0] <= evaluation.mean <= latency[-1]
        assert abs(evaluation.mean - latency.mean()) <= 1e-9 * latency[-1]
        assert np.array_equal(np.repeat(*evaluation.distribution), latency)
        rows = [one.percentile(p) for p in LISTED]
        assert [tuple(vars_of(row)) for row in rows] == ranked(latency, LISTED)
        values = [latency[0], *(row.value for row in rows if row), latency[-1]]
        assert values == sorted(values)
        assert bool(one.excluded) == (not true.valid)


def vars_of(row: object) -> Iterator[object]:
    return (getattr(row, name) for name in ("p", "value", "low", "high", "above", "supported"))


def damage(draw: Draw, folder: Path, made: Sequence[Made]) -> Made | None:
    """Cut, empty, blank or remove a file of a finished run; None where there is none."""
    done = [one for one in made if one.done]
    if not done:
        return None
    one = draw.choice("damaged run", done)
    files = sorted((one.folder / "evaluation").iterdir())
    names = [f"evaluation/{path.name}" for path in files if path.name not in FOLLOWING]
    names.append("run.json")
    path = one.folder / draw.choice("damaged file", names)
    whole = path.read_bytes()
    length = draw.between("cut", 0, len(whole) - 2)
    match draw.choice("damage done", ("cut", "empty", "blank", "removed")):
        case "cut":
            path.write_bytes(whole[:length])
        case "empty":
            path.write_bytes(b"")
        case "blank":  # as after a power cut
            path.write_bytes(whole[:length] + bytes(len(whole) - length))
        case "removed" if path.name != "run.json":  # without one it is no run
            path.unlink()
        case "removed":
            path.write_bytes(b"{}")
    return one


def shown(text: str, true: float) -> bool:
    """Whether a time as people read it is the true one in ns, in all of its digits."""
    found = re.fullmatch(r"\(?([\d,\u202f]+)(\.\d+)?[*)]?(?:[ \u00a0](ns|us|µs|ms|s))?\)?", text)
    assert found, text
    unit = TIMES[found[3] or "us"]
    number = float(re.sub(r"[,\u202f]", "", found[1]) + (found[2] or ""))
    digits = len(found[2] or ".") - 1
    return abs(number * unit - true) <= 0.500001 * unit * 10.0**-digits


def cells(found: Table) -> list[list[str]]:
    """What a table says on a terminal, which Markdown says as well."""
    plain = [
        [cell.plain(column.kind) for cell, column in zip(row.cells, found.columns, strict=True)]
        for row in found.rows
    ]
    lines = [line.replace("\\", "") for line in list(in_markdown(found))[2:]]
    assert lines == [f"| {' | '.join(row)} |" for row in plain]
    return plain


def shown_on_a_terminal(made: Sequence[Made], rows: Sequence[RunRow]) -> None:
    """The table of `tailtap run` and `evaluate`, and its JSON."""
    assert [(row.slug, row.status) for row in rows] == [(one.slug, one.status) for one in made]
    for true, row, (name, *cell) in zip(made, rows, cells(runs_table(rows, LISTED)), strict=True):
        if not true.done:
            assert cell[0] == true.status and row.evaluation is None
            continue
        assert row.evaluation is not None
        assert name == true.slug
        assert [int(cell[at].replace(",", "")) for at in (0, -2)] == [true.latency.size, true.lost]
        truth = [one.value for one in ranked(true.latency, LISTED)]
        assert [one.value for one in row.evaluation.latency_ns.percentiles] == truth
        assert all(map(shown, cell[1:-2], [*truth, true.latency[-1]])), (cell, truth)
        assert ("invalid" in cell[-1]) == (not true.valid)


def page(draw: Draw, folder: Path) -> None:
    """The page and the database say the same, and no invalid run leads."""
    made = experiment(draw, folder)
    done = [one for one in made if one.done]
    refresh(folder)
    in_the_database(made, folder / "results.duckdb")
    if not done:
        try:
            load_experiment(folder)
        except InputError as error:
            assert "\n" not in str(error)
            return
        raise AssertionError("there is nothing to report")
    text = write_report(folder, folder / "report", figures=False).page.read_text("utf-8")
    groups = configurations(load_experiment(folder))
    assert [(m.run.slug) for g in groups for m in g.leading] == [
        one.slug for one in done if one.valid
    ]
    truth = {one.slug: one for one in done}
    order = [truth[member.run.slug] for group in groups for member in group.members]
    on_page = [row for row in rows_of(text, "summary") if not row[0].startswith("floor")]
    for row, one in zip(on_page, order, strict=True):
        assert re.sub("[,\u202f]", "", row[1]) == str(one.latency.size), row
        values = [rank.value for rank in ranked(one.latency, LISTED)]
        assert all(map(shown, row[3:], [*values, one.latency[-1]])), (row, values)


def rows_of(text: str, section: str) -> list[list[str]]:
    """The cells of the table of a section of the page."""
    [body] = re.findall(rf'<section aria-labelledby="{section}">(.*?)</section>', text, re.S)
    rows = re.findall(r"<tr[^>]*>(<th scope=\"row\".*?)</tr>", body, re.S)
    return [
        [html.unescape(re.sub(r"<[^>]*>", "", one)).strip()
         for one in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]
        for row in rows
    ]  # fmt: skip


def in_the_database(made: Sequence[Made], database: Path) -> None:
    """What SQL says of runs."""
    with duckdb.connect(str(database), read_only=True) as connection:

        def ask(query: str, *values: object) -> list[tuple[Any, ...]]:
            return connection.execute(query, list(values)).fetchall()

        assert ask("SELECT run, slug, status, repeat, valid FROM runs ORDER BY run") == [
            (one.number, one.slug, one.status, one.repeat, one.valid) for one in made
        ]
        for one in made:
            told = ask("SELECT code, message FROM warnings WHERE run = ?", one.number)
            assert set(told) >= set(one.warnings)
            query = "SELECT matched, lost, ingress, min_ns, max_ns FROM evaluations WHERE run = ?"
            found = ask(query, one.number)
            latency, sent = one.latency, one.packets.sent.size
            if not one.done:
                assert found == []
                continue
            assert found == [(latency.size, one.lost, sent, latency[0], latency[-1])]
            columns = "p, value, low, high, above, supported"
            query = f"SELECT {columns} FROM percentiles WHERE run = ? ORDER BY p"
            rows = ask(query, one.number)
            wanted = [row[0] for row in rows]
            assert set(LISTED) <= set(wanted)
            true = ranked(latency, wanted)
            # Where a percentile is a rank but for its last digit, both neighbours are right.
            sharp = [p in LISTED or abs(p * latency.size % 1 - 0.5) < 0.499999 for p in wanted]
            assert [*compress(rows, sharp)] == [*compress(true, sharp)]
            query = "SELECT latency_ns, count FROM distribution WHERE run = ? ORDER BY 1"
            values, counts = np.unique(latency, return_counts=True)
            assert ask(query, one.number) == list(
                zip(values.tolist(), counts.tolist(), strict=True)
            )


TRIAL = Trial("folders", run, every=4)
PAGE = Trial("pages", page, every=10)

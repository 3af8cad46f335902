"""A real PostgreSQL: what arrives there, its own percentiles, and the papers' views."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from experiment_folders import write_experiment
from msgspec.structs import astuple
from postgres import cluster, programs
from published import POST, PRE, needs_captures, reference

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.values import DEFAULT, papers
from tailtap.base.errors import InputError, MachineError
from tailtap.results.exporters import export
from tailtap.results.exporters.papers import divide, files
from tailtap.results.exporters.tables import COLUMNS


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    with cluster(binaries) as found:
        yield found


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("pg") / "experiment", packets=6_000)


@pytest.fixture
def database(address: str, experiment: Path) -> Iterator[psycopg.Connection[Any]]:
    export(experiment, address)
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


def _row(connection: psycopg.Connection[Any], query: str, *values: Any) -> tuple[Any, ...]:
    """The first row that a query gives."""
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return tuple(row)


def _counts(connection: psycopg.Connection[Any]) -> dict[str, int]:
    return {table: _row(connection, f"SELECT count(*) FROM {table}")[0] for table in COLUMNS}


def _evaluations(
    connection: psycopg.Connection[Any], experiment: Path
) -> Iterator[tuple[int, Evaluation]]:
    for number, slug in connection.execute("SELECT run, slug FROM runs").fetchall():
        yield number, Evaluation.load(experiment / "runs" / slug / "evaluation")


def test_its_percentile_disc_is_ours(database: psycopg.Connection[Any], experiment: Path) -> None:
    ps = sorted({*papers(), *DEFAULT})
    compared = 0
    for number, stored in _evaluations(database, experiment):
        [found] = _row(
            database,
            "SELECT percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY latency_ns) "
            "FROM distribution, generate_series(1, count) WHERE run = %s",
            ps,
            number,
        )
        assert found == [percentile.value for percentile in stored.percentiles(ps)]
        compared += 1
    assert compared == 10


def test_lost_packets_arrive(database: psycopg.Connection[Any], experiment: Path) -> None:
    lost = 0
    for number, stored in _evaluations(database, experiment):
        rows = database.execute(
            "SELECT ingress_ns, position, length, burst, flow, key FROM losses WHERE run = %s "
            "ORDER BY position",
            [number],
        ).fetchall()
        assert rows == [astuple(one) for one in stored.losses()]
        lost += len(rows)
    assert lost == 6 * 12


def test_a_second_export_of_a_run_replaces_its_rows(
    database: psycopg.Connection[Any], address: str, experiment: Path, tmp_path: Path
) -> None:
    before = _counts(database)
    assert before["runs"] == before["evaluations"] == 10
    numbers = dict(database.execute("SELECT slug, run FROM runs").fetchall())
    slug = sorted(numbers)[0]
    export(experiment, address)
    database.execute("UPDATE percentiles SET value = 1 WHERE run = %s", [numbers[slug]])
    database.execute("DELETE FROM worst WHERE run = %s", [numbers[slug]])
    export(experiment / "runs" / slug, address)
    assert _counts(database) == before
    assert dict(database.execute("SELECT slug, run FROM runs").fetchall()) == numbers
    assert _row(database, "SELECT min(value) FROM percentiles")[0] > 1


def test_the_views_answer_the_papers_queries(
    database: psycopg.Connection[Any], experiment: Path
) -> None:
    for number, stored in _evaluations(database, experiment):
        texts = files(stored)
        rows = database.execute(
            "SELECT pre_received, post_received, transferrate, pre_pkts_per_second, "
            "post_pkts_per_second FROM papers_transferrate WHERE run = %s",
            [number],
        ).fetchall()
        lines = [",".join(str(value) for value in row) for row in rows]
        assert lines == texts["trim_ms0.transferrate"].splitlines()[1:]
        listed = {
            line.split(",")[0]: line for line in texts["trim_ms0.percentiles"].splitlines()[1:]
        }
        ours = database.execute(
            "SELECT percentile, value, onefraconeminuspercentile FROM papers_percentiles "
            "WHERE run = %s",
            [number],
        ).fetchall()
        # The made-up folders list other percentiles than the papers: those in common.
        common = {str(p): f"{p},{value},{q}" for p, value, q in ours if str(p) in listed}
        assert common and all(listed[p].split(",")[1:] == common[p].split(",")[1:] for p in common)
        row = _row(
            database,
            "SELECT latency, prets, postts, encode, second FROM papers_worst_over_time "
            "WHERE run = %s ORDER BY latency DESC, prets LIMIT 1",
            number,
        )
        assert row[:4] == tuple(stored.worst(1)[0])
        assert row[4] == Decimal(row[1] - int(stored.rate_counts["ingress"][0][0])) / 10**9


def test_digits_of_quotients_are_postgresqls(database: psycopg.Connection[Any]) -> None:
    source = random.Random(7)
    for _ in range(2_000):
        parts = []
        for _ in range(2):
            digits = source.randrange(1, 10 ** source.randrange(1, 20))
            parts.append(Decimal(digits).scaleb(-source.randrange(0, 21)))
        texts = (format(part, "f") for part in parts)
        [quotient] = _row(database, "SELECT (%s::numeric / %s::numeric)::text", *texts)
        assert quotient == divide(*parts), parts


@needs_captures
def test_every_packet_of_a_real_run(
    database: psycopg.Connection[Any], address: str, tmp_path: Path
) -> None:
    folder = tmp_path / "hardware"
    found = evaluate(PRE, POST, key="signature", trim_ns=1_000_000_000)
    found.write(folder)
    export(folder, address, packets=True)
    run = "run = (SELECT run FROM runs WHERE experiment = 'hardware')"
    ps = list(papers())
    row = _row(
        database,
        "SELECT count(*), bool_and(egress_ns - ingress_ns = latency_ns), count(DISTINCT key), "
        "percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY latency_ns) "
        f"FROM packets WHERE {run}",
        ps,
    )
    assert row[:3] == (289_992, True, 289_992)
    assert row[3] == [percentile.value for percentile in found.percentiles(ps)]
    lines = database.execute(
        "SELECT concat_ws(',', percentile, value, onefraconeminuspercentile) "
        f"FROM papers_percentiles WHERE {run} AND percentile = ANY(%s) ORDER BY percentile",
        [ps],
    ).fetchall()
    # The first line is of p = 0, which the papers wrote as 0.0.
    wanted = reference("percentiles", 1000).decode().splitlines()[2:]
    assert [line for (line,) in lines[1:]] == wanted
    export(folder, address)
    assert database.execute("SELECT count(*) FROM packets").fetchone() == (0,)
    database.execute(f"DELETE FROM runs WHERE {run}")


def test_an_evaluation_without_a_run_and_objects(
    database: psycopg.Connection[Any], address: str, experiment: Path
) -> None:
    slug = sorted(path.name for path in (experiment / "runs").iterdir())[0]
    export(experiment / "runs" / slug / "evaluation", address)
    export(experiment / "runs" / slug / "evaluation", address)
    where = "WHERE experiment = 'evaluation'"
    assert database.execute(f"SELECT count(*) FROM runs {where}").fetchone() == (1,)
    database.execute(f"DELETE FROM runs {where}")
    record = json.loads((experiment / "runs" / slug / "run.json").read_text())
    query = "SELECT variables->>'dut.platform', parameters FROM runs WHERE slug = %s"
    assert _row(database, query, slug) == ("wire", record["parameters"])


def test_a_foreign_table_of_the_same_name_is_one_line(address: str, experiment: Path) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE taken")
    taken = address.replace("/postgres?", "/taken?")
    with psycopg.connect(taken, autocommit=True) as connection:
        connection.execute("CREATE TABLE percentiles (run text)")
    with pytest.raises(MachineError, match="cannot be written") as error:
        export(experiment, taken)
    assert "\n" not in str(error.value)
    with psycopg.connect(taken) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert found.fetchone() == (1,)


@pytest.mark.parametrize("table", ["runs", "percentiles"])
def test_a_view_in_place_of_a_table_is_named(address: str, experiment: Path, table: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE viewed_{table}")
    viewed = address.replace("/postgres?", f"/viewed_{table}?")
    with psycopg.connect(viewed, autocommit=True) as connection:
        connection.execute(f"CREATE VIEW {table} AS SELECT 1 AS run")
    with pytest.raises(InputError, match=f"something else than a table called '{table}'"):
        export(experiment, viewed)


def test_a_database_that_is_not_there_is_one_line(experiment: Path, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be reached") as error:
        export(experiment, f"postgresql:///postgres?host={tmp_path}")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="--out is for files"):
        export(experiment, "postgresql://localhost/x", tmp_path)
    with pytest.raises(InputError, match="unknown format") as unknown:
        export(experiment, "mysql://user:secret@localhost/x")
    assert "secret" not in str(unknown.value)

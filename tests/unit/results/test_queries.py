"""docs/reference/queries.md has the tables of the database; its queries give what numpy gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from experiment_folders import traffic, write_experiment
from experiment_folders import write_run as write_counted
from made_records import rewrite
from runs import write_line_run
from traced import HOG, KWORKER, write_run
from traced import traffic as traced

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.results.database import refresh
from tailtap.results.tables import TABLES, in_duckdb
from tests.simulation.machine import Integers
from tests.simulation.traffic import Packets

PAGE = Path(__file__).parents[3] / "docs/reference/queries.md"
VIEWS = Path(__file__).parents[3] / "python/tailtap/results/database.sql"
PACKETS = 20_000
SECOND = 10**9
FAILED = 11
INVALID = 9
"""The slowest run of all: the generator did not send the requested load."""

OF_CAUSES = ("What made packets late, over the repeats", "The stalls behind the worst packets")

OF_HOPS = "Which hop made packets late"
OF_COUNTERS = "What a packet takes of the processors"

Rows = list[dict[str, Any]]


def sections() -> dict[str, str]:
    """The parts of the page under headings of the third level."""
    parts = re.split(r"^### (.*)\n", PAGE.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


QUERIES = {
    title: found[1]
    for title, text in sections().items()
    if (found := re.search(r"^```sql\n(.*?)^```", text, re.S | re.M))
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten finished runs over two platforms and two rates, one of them invalid, one failed run, and
    their database.
    """
    folder = write_experiment(tmp_path_factory.mktemp("experiment"), PACKETS)
    [path] = folder.glob(f"runs/{INVALID:03}-*/run.json")
    rewrite(path, valid=False)
    return folder


def opened(folder: Path) -> duckdb.DuckDBPyConnection:
    refresh(folder)
    return duckdb.connect(str(folder / "results.duckdb"), read_only=True)


@pytest.fixture(scope="module")
def database(folder: Path) -> duckdb.DuckDBPyConnection:
    return opened(folder)


@pytest.fixture(scope="module")
def traced_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Explained]:
    """Two repeats in which a task takes the core, explained."""
    folder = tmp_path_factory.mktemp("traced")
    runs = []
    for number in (1, 2):
        kinds = (HOG, 6, (300_000, 900_000)), (KWORKER, 4, (100_000, 200_000))
        runs.append(write_run(folder / f"00{number}-traced", traced(number, 1.0, *kinds)))
        rewrite(runs[-1] / "run.json", number=number, repeat=number,
                variables={"traffic.rate": "20 kpkt/s"})  # fmt: skip
    return explain_runs(runs, late="20 us")


@pytest.fixture(scope="module")
def explained(traced_runs: list[Explained]) -> duckdb.DuckDBPyConnection:
    folder = traced_runs[0].run.own_folder
    assert folder is not None
    return opened(folder.parent)


@pytest.fixture(scope="module")
def measured(folder: Path) -> dict[int, Packets]:
    """What each run was made of, as numpy made it up."""
    records = [json.loads(path.read_text()) for path in folder.glob("runs/*/run.json")]
    return {
        record["number"]: traffic(
            record["variables"]["dut.platform"],
            record["parameters"]["traffic"]["rate"],
            PACKETS,
            record["number"],
        )
        for record in records
        if record["status"] == "done"
    }


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """Two runs of lines that were stamped between their nodes."""
    folder = tmp_path_factory.mktemp("lines")
    runs = [write_line_run(folder, nodes=3), write_line_run(folder, 4, number=2)]
    for nodes, run in zip((3, 4), runs, strict=True):
        rewrite(run / "run.json", variables={"dut.line": nodes})
    return opened(folder)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """Two repeats on each of two platforms, with what was counted of 40 packets."""
    folder = tmp_path_factory.mktemp("counted")
    for number in range(1, 5):
        platform = {"dut.platform": "container" if number > 2 else "bare-metal"}
        events = {"instructions": 40_000 * number, "branches": None}
        least = {"elapsed_ns": SECOND, "estimated": [], "by_cpu": {"1": events}}
        window = {"scope": "dut.cpus", "cpus": [1], "events": events, "kinds": {"LOC": 20}}
        whole = {"scope": "machine", "cpus": [1], "events": {"instructions": 1}}
        counters = {"run": {**least, **window}, "lifetime": {**least, **whole}}
        changes = {"taps": {"ingress": {"seen": 30, "other": 10}}, "counters": counters}
        write_counted(folder, number, platform, repeat=2 - number % 2, packets=400, changes=changes)
    return opened(folder)


def ask(database: duckdb.DuckDBPyConnection, title: str) -> Rows:
    found = database.execute(QUERIES[title])
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def latencies(data: Packets) -> Integers:
    return (data.left - data.sent)[data.arrived]


def nearest_rank(values: Integers, p: float) -> int:
    return int(np.sort(values)[int(np.ceil(round(p * values.size, 6))) - 1])


def test_every_table_and_column_is_documented() -> None:
    text = sections()
    assert [title for title in text if title in TABLES] == list(TABLES)
    for name, columns in TABLES.items():
        named = set(re.findall(r"`(\w+)`", text[name]))
        assert set(columns) <= named, (name, set(columns) - named)
        rows = " ".join(re.findall(r"^\| (`.*?) \|", text[name], re.M))
        assert set(re.findall(r"\w+", rows)) <= set(columns), name


def test_every_view_is_documented() -> None:
    [text] = re.findall(r"^## Views\n(.*?)^## ", PAGE.read_text(), re.S | re.M)
    views = re.findall(r"CREATE OR REPLACE VIEW (\w+)", VIEWS.read_text())
    connection = duckdb.connect()
    connection.execute(in_duckdb() + VIEWS.read_text())
    assert len(views) == 3
    for view in views:
        assert f"`{view}`" in text
        table = view.removeprefix("run_")
        columns, of_table = (
            {column for column, *_ in connection.execute(f"DESCRIBE {name}").fetchall()}
            for name in (view, table)
        )
        assert of_table < columns
        assert all(f"`{column}`" in text for column in columns - of_table), columns - of_table


@pytest.mark.parametrize("title", QUERIES)
def test_every_query_gives_rows(request: pytest.FixtureRequest, title: str) -> None:
    others = {OF_HOPS: "lines", OF_COUNTERS: "counted"}
    fixture = {**dict.fromkeys(OF_CAUSES, "explained"), **others}.get(title, "database")
    rows = ask(request.getfixturevalue(fixture), title)
    assert rows
    assert all(any(row[column] is not None for row in rows) for column in rows[0])


@pytest.mark.usefixtures("database")
def test_the_python_block_of_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    [block] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    exec(compile(block, str(PAGE), "exec"), {})
    assert "failed" in capsys.readouterr().out


def test_the_tail_by_what_was_varied(
    database: duckdb.DuckDBPyConnection, measured: dict[int, Packets]
) -> None:
    rows = ask(database, "The tail by what was varied")
    asked = [r for r in rows if (r["platform"], r["rate"]) == ("bare-metal", "50 kpkt/s")]
    repeats = [latencies(measured[number]) for number in (8, 10)]
    assert [(r["p"], r["value_ns"], r["repeats"]) for r in asked] == [
        (p, max(nearest_rank(repeat, p) for repeat in repeats), 2) for p in (0.5, 0.99, 0.999)
    ]
    invalid = latencies(measured[INVALID])
    assert nearest_rank(invalid, 0.999) > max(nearest_rank(repeat, 0.999) for repeat in repeats)


def test_the_worst_repeat_is_that_of_the_report(
    database: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    rows = ask(database, "The worst repeat, with all repeats visible")
    assert len(rows) == 10
    groups = configurations(load_experiment(folder))
    reported = {group.worst.run.number for group in groups if group.worst}
    assert {row["run"] for row in rows if row["worst"]} == reported
    assert len(reported) == len(groups) and INVALID not in reported
    assert [row["run"] for row in rows if not row["valid"]] == [INVALID]
    assert {row["p"] for row in rows} == {0.999}


def test_the_floor_beside_the_result(
    database: duckdb.DuckDBPyConnection, measured: dict[int, Packets]
) -> None:
    rows = ask(database, "Results compared with the floor")
    assert len(rows) == 2 * 3
    [row] = [r for r in rows if "10 kpkt/s" in r["configuration"] and r["p"] == 0.99]
    value = max(nearest_rank(latencies(measured[number]), 0.99) for number in (5, 6, 7))
    floor = max(nearest_rank(latencies(measured[number]), 0.99) for number in (1, 2))
    assert (row["value_ns"], row["floor_ns"]) == (value, floor)
    assert row["above_floor_ns"] == value - floor


def test_the_distribution_function(
    database: duckdb.DuckDBPyConnection, measured: dict[int, Packets]
) -> None:
    rows = ask(database, "The exact distribution function")
    data = latencies(measured[5])
    asked = [row for row in rows if row["run"] == 5]
    values = np.unique(data)
    assert [row["latency_ns"] for row in asked] == values.tolist()
    within = np.searchsorted(np.sort(data), values, side="right")
    assert [row["within"] for row in asked] == within.tolist()
    assert [row["share"] for row in asked] == pytest.approx(within / data.size)
    for p in (0.3, 0.98765, 0.9999):
        rank = int(np.ceil(p * data.size))
        found = next(row["latency_ns"] for row in asked if row["within"] >= rank)
        assert found == nearest_rank(data, p)


def test_missed_deadlines(
    database: duckdb.DuckDBPyConnection, measured: dict[int, Packets]
) -> None:
    for row in ask(database, "Packets that missed a deadline"):
        data = measured[row["run"]]
        late, lost = int((latencies(data) > 100_000).sum()), PACKETS - data.arrived.size
        assert (row["late"], row["lost"]) == (late, lost)
        assert row["missed"] == pytest.approx((late + lost) / PACKETS)


def test_what_made_packets_late(
    explained: duckdb.DuckDBPyConnection, traced_runs: list[Explained]
) -> None:
    rows = ask(explained, OF_CAUSES[0])
    claimed = [row for found in traced_runs for row in found.labels.rows if row.is_cause]
    late = sum(found.joined.state.size for found in traced_runs)
    assert {row["cause"] for row in rows} == {row.cause for row in claimed}
    for row in rows:
        of_cause = [c for c in claimed if (c.cause, c.detail) == (row["cause"], row["detail"])]
        assert row["runs"] == len(of_cause)
        assert row["packets"] == sum(c.packets for c in of_cause)
        assert row["share"] == pytest.approx(row["packets"] / late)
        assert row["stalls"] == sum(c.stalls for c in of_cause)
        assert row["worst_ns"] == max(c.worst_ns for c in of_cause)
    assert rows[0]["cause"] == "task" and rows[0]["runs"] == 2


def test_stalls_behind_the_worst_packets(
    explained: duckdb.DuckDBPyConnection, traced_runs: list[Explained]
) -> None:
    rows = ask(explained, OF_CAUSES[1])
    for number, found in enumerate(traced_runs, 1):
        joined = found.joined
        latency = joined.late.packets.latency_ns
        worst = [
            (int(latency[joined.stall == stall].max()), stall)
            for stall in range(joined.stall_cpu.size)
            if (joined.stall == stall).any()
        ]
        worst.sort(key=lambda one: (-one[0], one[1]))
        asked = [row for row in rows if row["run"] == number]
        assert [(row["worst_ns"], row["stall"] - 1) for row in asked] == worst[:10]
        for row in asked:
            stall = row["stall"] - 1
            assert row["packets"] == int((joined.stall == stall).sum())
            assert row["stall_ns"] == joined.stall_end[stall] - joined.stall_start[stall]
            assert (row["cause"], row["detail"]) == joined.laid.rows.names[joined.stall_row[stall]]


def test_what_a_packet_takes(counted: duckdb.DuckDBPyConnection) -> None:
    """Events first, then interrupts; what could not be counted is not there."""
    rows = ask(counted, OF_COUNTERS)
    assert [(row["counter"], row["repeats"], row["per_packet"]) for row in rows] == [
        ("instructions", 2, 1500), ("instructions", 2, 3500), ("LOC", 2, 0.5), ("LOC", 2, 0.5),
    ]  # fmt: skip
    assert [row["deviation"] for row in rows] == [pytest.approx(500 * 2**0.5)] * 2 + [0, 0]
    uncounted = "SELECT DISTINCT counter, during, cpu FROM counts WHERE count IS NULL ORDER BY cpu"
    found = counted.execute(uncounted).fetchall()
    assert set(found) == {
        ("branches", "run", None), ("branches", "run", 1), ("branches", "lifetime", 1),
    }  # fmt: skip


def test_which_hop_made_packets_late(lines: duckdb.DuckDBPyConnection) -> None:
    rows = ask(lines, OF_HOPS)
    for number, nodes in ((1, 3), (2, 4)):
        own = [row for row in rows if row["slug"].startswith(f"00{number}-")]
        assert [(row["hop"], row["node"]) for row in own] == [
            (hop, f"dut{hop}") for hop in range(1, nodes + 1)
        ]
        packets = lines.execute(
            "SELECT list(hop_ns ORDER BY hop), any_value(latency_ns) FROM hop_worst WHERE run = ? "
            "GROUP BY key ORDER BY 2 DESC, key LIMIT 100",
            [number],
        ).fetchall()
        parts = np.array([hops for hops, _ in packets])
        assert parts.sum(axis=1).tolist() == [whole for _, whole in packets]
        if packets[-2][1] != packets[-1][1]:  # no tie for the last place
            slowest = np.bincount(parts.argmax(axis=1), minlength=nodes)
            assert [row["slowest_of"] for row in own] == slowest.tolist()
            assert [row["worst_ns"] for row in own] == parts.max(axis=0).tolist()
        assert sum(row["share"] for row in own) == pytest.approx(1)

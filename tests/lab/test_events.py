"""Events in a run: outages of known length are found as long as they were, and told everywhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from labtools import ran, record, was_made

MILLISECOND_NS = 1_000_000
PACKET_NS = 100_000
EXPERIMENT = """\
name: events
dut: {{platform: {platform}, forwarder: {forwarder}, cpus: [1]}}
traffic: {{rate: 10 kpkt/s, duration: {duration}, warm_up: 200 ms, cpu: 0, slip_limit: 500 ms}}
events:
{events}
require: {require}
"""


def made(
    folder: Path, events: str, require: str = "[]", platform: str = "bare-metal",
    forwarder: str = "tc-mirred", duration: str = "3 s",
) -> tuple[Path, str]:  # fmt: skip
    """The folder of an experiment of one run that was made, and what was printed."""
    if "OUTAGE" in events:
        source = Path(__file__).parents[1] / "support/outage.c"
        subprocess.run(["gcc", "-O2", "-o", folder / "outage", source], check=True)
        events = events.replace("OUTAGE", f"{folder}/outage")
    text = EXPERIMENT.format(
        platform=platform, forwarder=forwarder, events=events, require=require, duration=duration
    )
    found = ran(folder, text)
    assert was_made(found.done) or require != "[]", found.done.stderr
    assert found.record["status"] == "done", found.done.stderr
    return found.out, found.done.stdout + found.done.stderr


def told_by(out: Path) -> dict[str, Any]:
    [run] = (out / "runs").iterdir()
    return record(run)


@pytest.mark.apart
@pytest.mark.parametrize(
    ("forwarder", "event"),
    [
        ("tc-mirred", "OUTAGE link {egress}"),
        pytest.param("fault", "OUTAGE pid {pid}", marks=pytest.mark.slow),
    ],
)
def test_an_outage_of_known_length_is_found(tmp_path: Path, forwarder: str, event: str) -> None:
    where = "host" if "pid" in event else "dut"
    out, printed = made(
        tmp_path,
        f"- {{at: 800 ms, name: outage, run: '{event}', where: {where}, window: 400 ms}}",
        "['blocked(outage) < 20 ms', 'blocked(event) < 10 s', 'blocked(other) < 1 s']",
        forwarder=forwarder,
        duration="8 s",  # a command waits for its turn beside a generator on the only other CPU
    )
    told = told_by(out)
    [found] = told["events"]
    assert (found["name"], found["where"], found["status"]) == ("outage", where, 0)
    assert found["at_ns"] == 800 * MILLISECOND_NS <= found["after_ns"] + PACKET_NS
    began, gone, back, whole = map(int, found["output"].split())
    assert found["begin_ns"] <= began < whole <= found["end_ns"]
    blocked = found["blocked"]
    around, other = found["around"], told["beside_events"]
    # Packets bound the outage from both sides, and tell of it as exactly as they come; the device
    # needs its core before something comes out again.
    assert blocked["least_ns"] <= whole - began + other["max_ns"]
    assert blocked["most_ns"] >= back - gone
    assert blocked["least_ns"] <= blocked["ns"] <= blocked["most_ns"]
    assert blocked["least_ns"] > 45 * MILLISECOND_NS
    assert around["packets"] + other["packets"] == 80_000
    lost = json.loads(next(out.glob("runs/*/evaluation/evaluation.json")).read_text())["counts"]
    assert around["lost"] + other["lost"] == lost["lost"]
    if forwarder == "tc-mirred":
        assert around["lost"] > 400
        assert "heavy-loss" not in {row["code"] for row in told["warnings"]} or other["lost"] > 10
    else:
        assert around["max_ns"] > 45 * MILLISECOND_NS
    assert "blocked(outage) < 20 ms" in printed
    lines = [line for line in printed.splitlines() if "blocked(" in line]
    assert [line.split("ms", 1)[-1].split()[0] for line in lines[:1]] == ["violated"]
    assert "holds" in lines[1]
    assert "no event other happened: known: outage" in lines[2]
    with duckdb.connect(str(out / "results.duckdb"), read_only=True) as database:
        rows = database.execute(
            "SELECT event, name, blocked_ns, packets, lost FROM events ORDER BY event"
        ).fetchall()
    assert rows == [
        (0, None, None, other["packets"], other["lost"]),
        (1, "outage", blocked["ns"], around["packets"], around["lost"]),
    ]


def test_rules_are_reloaded_and_a_forwarder_moves(tmp_path: Path) -> None:
    rules = tmp_path / "rules.nft"
    rules.write_text(
        "table netdev tailtap-test\ndelete table netdev tailtap-test\n"
        "table netdev tailtap-test { }\n"
    )
    moved = "taskset --all-tasks --cpu-list --pid 0 {pid}"
    out, _ = made(
        tmp_path,
        f"- {{at: 300 ms, every: 400 ms, run: [nft, -f, {rules}], window: 100 ms}}\n"
        f"- {{at: 2500 ms, name: move, run: '{moved}', where: host}}\n",
        forwarder="fault",
    )
    told = told_by(out)
    names = [event["name"] for event in told["events"]]
    failed = [row["message"] for row in told["warnings"] if row["code"] == "event-failed"]
    if failed:  # a busy machine comes to the last one too late, and says so
        assert failed == ["the event nft at 2.7 s was not begun: packets had ended"]
        names.append("nft")
    assert names == [*["nft"] * 6, "move", "nft"]
    assert {event["status"] for event in told["events"]} == {0}, told["events"]
    parts = [event["around"]["packets"] for event in told["events"]]
    assert sum(parts) + told["beside_events"]["packets"] == 30_000
    # One ends where the next begins.
    begins = [event["begin_ns"] for event in told["events"]]
    for event, following in zip(told["events"], begins[1:], strict=False):
        assert event["around"]["time_ns"] <= following - event["begin_ns"]


def test_what_fails_or_does_not_end_is_told(tmp_path: Path) -> None:
    out, printed = made(
        tmp_path,
        "- {at: 100 ms, name: wrong, run: [sh, -c, 'echo no such rule; exit 3']}\n"
        "- {at: 200 ms, name: long, run: sleep 600, where: generator}\n"
        "- {at: 300 ms, name: none, run: tt-no-such-program}\n",
        "['blocked(event) < 10 s']",
    )
    told = told_by(out)
    messages = [row["message"] for row in told["warnings"] if row["code"] == "event-failed"]
    assert messages[0] == "the event wrong at 100 ms ended with status 3: no such rule"
    assert messages[1] == "the event long at 200 ms did not end"
    assert messages[2].startswith("the event none at 300 ms ended with status 127")
    assert "did not succeed" in printed
    [wrong, long, _] = told["events"]
    assert (wrong["output"], long["end_ns"]) == ("no such rule", None)


def test_what_is_in_a_container_has_its_ports(tmp_path: Path) -> None:
    out, _ = made(tmp_path, "- {at: 100 ms, run: 'ip -o link show {ingress}'}", platform="crun")
    [event] = told_by(out)["events"]
    assert event["status"] == 0, event
    assert "tt-in" in event["output"]

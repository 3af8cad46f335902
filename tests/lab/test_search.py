"""The search finds the highest rate of a device whose limit is known."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from forms import fits
from labtools import Machine, was_made, write_experiment

LIMIT = 10_000
QUEUE = 200
TRIAL_SECONDS = 0.5
PRECISION = 0.25
PATIENCE_SECONDS = 280

EXPERIMENT = f"""\
name: known
dut: {{forwarder: fault, cpus: [1], options: {{limit: {{rate: {LIMIT} pkt/s, queue: {QUEUE}}}}}}}
# Another program's work on a CPU of ours delays the generator; that is no matter here.
traffic: {{warm_up: 100 ms, duration: 200 ms, cpu: 0, slip_limit: 10 s}}
"""
OPTIONS = (
    "--from", "7 kpkt/s", "--to", "20 kpkt/s", "--precision", f"{100 * PRECISION:g}%",
    "--trial", f"{TRIAL_SECONDS:g} s", "--short", "200 ms", "--loss", "0", "--loss", "30%",
)  # fmt: skip


def holds(loss: float) -> float:
    """The highest rate with at most so much loss: what waits at the end of a trial is not lost."""
    return (LIMIT + QUEUE / TRIAL_SECONDS) / (1 - loss)


@pytest.mark.apart
def test_a_known_limit_is_found_and_latency_measured_there(
    machine: Machine, tmp_path: Path
) -> None:
    path, out = write_experiment(tmp_path, EXPERIMENT), tmp_path / "out"
    search = machine.start("search", str(path), "--out", str(out), "--json", *OPTIONS)
    printed, said = search.communicate(timeout=PATIENCE_SECONDS)
    assert machine.namespaces() == []
    assert was_made(search, said), said
    found = json.loads(printed)
    fits(found)
    assert found["schema"] == "tailtap.searched/1"
    assert found["status"] == "done"
    stored = json.loads((out / "search.json").read_text())
    fits(stored)
    assert stored["answers"] == found["answers"]
    for answer, loss in zip(found["answers"], (0, 0.3), strict=True):
        assert answer["loss"] == loss
        # A stall of this machine can fill the queue early, so that a trial loses more than by the
        # device's limit alone; never less.
        assert answer["rate"] <= holds(loss) * 1.02
        assert answer["rate"] >= holds(loss) * (1 - PRECISION) * 0.9
        assert answer["reason"] == "loss"
        assert answer["width"] <= PRECISION
        assert answer["at_rate"]["trials"] >= 2
        assert answer["at_rate"]["duration_ns"] == answer["at_rate"]["trials"] * TRIAL_SECONDS * 1e9
    # Every trial is a run.
    folders = sorted((out / "trials" / "runs").iterdir())
    assert [folder.name for folder in folders] == [row["slug"] for row in found["trials"]]
    for folder, row in zip(folders, found["trials"], strict=True):
        record = json.loads((folder / "run.json").read_text())
        assert record["status"] == "done"
        assert record["parameters"]["traffic"]["rate"] == row["rate"]
        assert not (folder / "ingress.stamps").exists()
    # Latency at 100, 90, 50 and 10 % of what was found; in the queue only where there is one.
    shares = [share for answer in found["answers"] for share in latencies(answer["rate"])]
    runs = found["latency"]["runs"]
    assert [run["parameters"]["traffic"]["rate"] for run in runs] == list(dict.fromkeys(shares))
    assert all(run["status"] == "done" for run in runs)


def latencies(rate: int) -> list[int]:
    return [round(rate * share) for share in (1.0, 0.9, 0.5, 0.1)]


@pytest.mark.slow
@pytest.mark.timed  # on a busy machine a trial is over before its loss is seen
def test_a_trial_is_given_up_and_an_interrupted_search_goes_on(
    machine: Machine, tmp_path: Path
) -> None:
    path, out = write_experiment(tmp_path, EXPERIMENT), tmp_path / "out"
    options = ["--from", "20 kpkt/s", "--to", "30 kpkt/s", "--precision", "20%"]
    options += ["--trial", "3 s", "--method", "binary", "--out", str(out), "--no-latency"]
    record = out / "search.json"
    with machine.held(tmp_path, "search", str(path), *options, number=2) as search:
        search.process.send_signal(signal.SIGINT)
        status, said = search.ended()
    assert status == 4, said
    assert "interrupted: 1 trials are kept" in said
    assert "--resume" in said
    [first] = trials(record)
    made = (out / "trials" / "runs" / first["slug"] / "run.json").stat().st_mtime_ns
    done = machine.tailtap("search", str(path), *options, "--resume", "--json")
    assert machine.namespaces() == []
    other = machine.tailtap("search", str(path), *options, "--resume", "--trials", "7")
    # Even the lowest rate is too much: the answer is no.
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["trials"][0] == first
    assert (out / "trials" / "runs" / first["slug"] / "run.json").stat().st_mtime_ns == made
    assert found["answers"][0]["rate"] is None
    assert found["answers"][0]["reason"] == "loss"
    assert [row["code"] for row in found["answers"][0]["warnings"]] == ["none-holds"]
    assert all(row["given_up"] for row in found["trials"])
    lengths = [
        json.loads((out / "trials" / "runs" / row["slug"] / "run.json").read_text())
        for row in found["trials"]
    ]
    assert all(run["generator"]["interrupted"] for run in lengths)
    assert all(
        run["generator"]["sent"] < 3 * run["parameters"]["traffic"]["rate"] for run in lengths
    )
    assert other.returncode == 2
    assert "trials" in other.stderr


def trials(record: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(record.read_text())["trials"]
    return rows

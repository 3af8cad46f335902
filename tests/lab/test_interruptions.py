"""Ctrl-C, kill -9, vanishing interfaces: what is kept, what is cleaned, what can be resumed."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import duckdb
import pytest
from holding import RATE, holding
from labtools import (
    PATIENCE_SECONDS,
    Machine,
    own_machine,
    record,
    small_disk,
    statuses,
    wait_for,
    was_made,
    write_experiment,
)
from marks import read_marks
from program import one_line_error
from published_trees import write_rates

from tailtap.results.importers.importer import import_tree

EXPERIMENT = """\
name: interrupted
dut: {cpus: [1]}
traffic: {rate: 5 kpkt/s, duration: 500 ms, warm_up: 100 ms, cpu: 0}
repeat: 2
"""
LONGER = ("--set", "traffic.duration=1500 ms")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_keeps_finished_runs_and_resume_makes_the_rest(
    machine: Machine, tmp_path: Path, number: signal.Signals
) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    out = tmp_path / "out"
    with machine.held(tmp_path, "run", str(path), "--out", str(out), number=2) as running:
        # nsenter has become tailtap: only the runner gets the signal.
        running.process.send_signal(number)
        stdout, stderr = running.process.communicate(timeout=PATIENCE_SECONDS)
    assert running.process.returncode == 4, stderr
    assert stdout == ""
    assert stderr.splitlines()[-1] == (
        f"tailtap: interrupted: 1 of 2 runs are kept; "
        f"`tailtap run {path} --out {out} --resume` makes the rest"
    )
    assert machine.namespaces() == []
    assert statuses(out) == ["done", "interrupted"]
    first = (out / "runs/001-interrupted-r1/run.json").read_bytes()
    resumed = machine.tailtap("run", str(path), "--out", str(out), "--resume", "--json")
    assert was_made(resumed), resumed.stderr
    assert len(json.loads(resumed.stdout)["runs"]) == 2
    assert statuses(out) == ["done", "done"]
    assert (out / "runs/001-interrupted-r1/run.json").read_bytes() == first
    with duckdb.connect(str(out / "results.duckdb"), read_only=True) as database:
        rows = database.execute("SELECT run, matched FROM evaluations ORDER BY run").fetchall()
    assert rows == [(1, 2500), (2, 2500)]


def test_kill_nine_then_clean_then_resume(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    out = tmp_path / "out"
    machine.run("ip", "netns", "add", "another")
    with machine.held(tmp_path, "run", str(path), "--out", str(out), number=2) as running:
        in_use = json.loads(machine.tailtap("clean", "--json").stdout)
        assert in_use["removed"] == []
        assert {item["pid"] for item in in_use["kept"]} == {running.process.pid}
        running.kill()
    assert statuses(out) == ["done", "running"]
    left = [name for name in machine.namespaces() if name.startswith("tt-")]
    assert len(left) == 3
    shown = json.loads(machine.tailtap("clean", "--dry-run", "--json").stdout)
    assert {row["name"] for row in shown["removed"] if row["kind"] == "namespace"} == set(left)
    assert len(machine.namespaces()) == 4
    cleaned = machine.tailtap("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert all(f"removing namespace {name}" in cleaned.stdout for name in left)
    assert machine.namespaces() == ["another"]
    assert machine.tailtap("clean").stdout == "nothing to remove\n"
    import_tree(write_rates(tmp_path, [10_000]), out)
    resumed = machine.tailtap("run", str(path), "--out", str(out), "--resume")
    assert was_made(resumed), resumed.stderr
    assert machine.namespaces() == ["another"]
    machine.run("ip", "netns", "delete", "another")
    assert statuses(out) == ["done", "done", "imported"]
    with duckdb.connect(str(out / "results.duckdb"), read_only=True) as database:
        rows = database.execute(
            "SELECT status, count(*) FROM runs GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert rows == [("done", 2), ("imported", 1)]


def test_clean_finds_what_no_journal_names_and_leaves_what_others_made() -> None:
    ours = [("namespace", "tt-0a1b2c-gen"), ("link", "tt-0a1b2c-left")]
    foreign_namespaces = ["tt-foo", "tt-test-1-0", "tt-0a1b2c", "tt-0A1B2C-gen", "my-tt-0a1b2c-gen"]
    foreign_links = ["tt-left", "tt-in", "mine0"]
    with own_machine() as machine, ExitStack() as stack:
        for name in (ours[0][1], *foreign_namespaces):
            assert machine.run("ip", "netns", "add", name).returncode == 0
        for number, name in enumerate((ours[1][1], *foreign_links)):
            pair = f"link add {name} type veth peer name other{number}"
            assert machine.run("ip", *pair.split()).returncode == 0
        names = ("tt-foo", ours[0][1])
        left_alone, ended = (
            stack.enter_context(machine.beside(name, "sleep", "infinity")) for name in names
        )
        for name in names:
            wait_for(partial(machine.pids, name), f"the process in {name}")
        assert machine.cleaned() == ours
        assert ended.wait() == -signal.SIGKILL
        assert left_alone.poll() is None
        assert machine.pids("tt-foo") == [left_alone.pid]
        assert sorted(machine.namespaces()) == sorted(foreign_namespaces)
        links = machine.run("ip", "-br", "link").stdout
        assert all(f"{name}@" in links for name in foreign_links)
        assert ours[1][1] not in links


def test_all_also_removes_what_is_in_use(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    out = tmp_path / "out"
    options = ("--out", str(out), "--set", "repeat=1")
    with machine.held(tmp_path, "run", str(path), *options) as running:
        cleaned = machine.tailtap("clean", "--all")
        assert cleaned.returncode == 0, cleaned.stderr
        assert f"in use by process {running.process.pid}" in cleaned.stdout
        running.go_on()
        status, stderr = running.ended()
    assert status == 3, stderr
    assert "Traceback" not in stderr
    assert machine.namespaces() == []
    assert statuses(out) == ["failed"]


def test_an_interface_that_vanishes_fails_its_run_only(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    out = tmp_path / "out"
    options = ("--out", str(out))
    with machine.held(tmp_path, "run", str(path), *options) as running:
        [dut] = [name for name in machine.namespaces() if name.endswith("-dut")]
        assert machine.run("ip", "-n", dut, "link", "delete", "tt-in").returncode == 0
        running.go_on()
        status, stderr = running.ended()
    assert status == 3, stderr
    assert machine.namespaces() == []
    last = stderr.splitlines()[-1]
    assert last.startswith("tailtap: 1 of 2 runs failed, 001-interrupted-r1 first: interface tt-")
    assert last.endswith("vanished during the run")
    assert statuses(out) == ["failed", "done"]
    assert "vanished" in record(out / "runs/001-interrupted-r1")["error"]
    assert list((out / "runs/002-interrupted-r2/evaluation").iterdir())


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    with small_disk(tmp_path, 512 << 10) as disk, own_machine() as machine:
        words = ("run", str(path), "--out", str(disk / "out"), "--set", "repeat=1", *LONGER)
        assert one_line_error(machine.tailtap(*words, "--set", "traffic.rate=50 kpkt/s"), 3) == (
            f"tailtap: {disk}/out: the stamps of all runs to come need 2.4 MB and the disk "
            "has 0.5 MB: make room or choose another --out"
        )
        with machine.held(tmp_path, *words) as running:
            machine.run("dd", "if=/dev/zero", f"of={disk}/ballast", "bs=4k")
            running.go_on()
            status, stderr = running.ended()
        assert machine.namespaces() == []
    assert status == 3, stderr
    assert "No space left on device" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_an_observation_ends_and_the_device_goes_on(tmp_path: Path) -> None:
    """What was stamped until then is whole, and says what it lacks."""
    with small_disk(tmp_path, 256 << 10) as disk, own_machine() as machine, holding(machine):
        out = disk / "out"
        words = ("device/in@arrival", "sink/eth0@arrival", "--key", "packet", "--trace", "none")
        run = machine.tailtap("observe", *words, "--for", "60 s", "--out", str(out), "--quiet")
        message = one_line_error(run, 3)
        assert "No space left on device" in message and str(out) in message
        passed = machine.received("sink", "eth0")
        wait_for(lambda: machine.received("sink", "eth0") > passed + RATE, "packets")
        for side in ("ingress", "egress"):
            marks = read_marks(out / f"runs/001-observed/{side}.marks")
            assert len(marks.records) == marks.stored > RATE

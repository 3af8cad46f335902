"""Folders of experiments: one writer at a time, nothing lost in a power cut."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from captures import write_many
from holding import RATE, holding
from labtools import (
    Machine,
    own_machine,
    small_disk,
    statuses,
    wait_for,
    was_made,
    write_experiment,
)
from marks import read_marks
from program import one_line_error, tailtap

from tailtap.analysis.runs.folder import locked

EXPERIMENT = """\
name: kept
dut: {cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 500 ms, warm_up: 100 ms, cpu: 0, bidirectional: true}
"""
RUNS = ["001-kept", "002-kept-reverse"]

WATCHED = """
import json, os, sys

log = open(sys.argv.pop(1), "w")

def told(what, path):
    state = os.stat(path)
    row = [what, str(path), state.st_ino, state.st_size, state.st_mtime_ns]
    print(json.dumps(row), file=log, flush=True)

fsync, replace = os.fsync, os.replace

def watched_fsync(opened):
    fsync(opened)
    told("synchronised", os.readlink(f"/proc/self/fd/{opened}"))

def watched_replace(old, new, **options):
    replace(old, new, **options)
    if (folder := options.get("dst_dir_fd")) is not None:
        new = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), new)
    told("replaced", new)
    if str(new).endswith("run.json"):
        told(json.load(open(new))["status"], new)

os.fsync, os.replace = watched_fsync, watched_replace

from tailtap.cli import main
main()
"""
"""`tailtap`, writing down what it synchronises, and what it puts in place, in which state."""


def test_a_run_is_done_when_all_of_it_is_on_the_disk(machine: Machine, tmp_path: Path) -> None:
    path, out, log = write_experiment(tmp_path, EXPERIMENT), tmp_path / "out", tmp_path / "log"
    done = machine.run(sys.executable, "-c", WATCHED, str(log), "run", str(path), "--out", str(out))
    assert was_made(done), done.stderr
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for name in RUNS:
        folder = out / "runs" / name
        [end] = [place for place, event in enumerate(events)
                 if event[:2] == ["done", str(folder / "run.json")]]  # fmt: skip
        before = [event[1:] for event in events[:end] if event[0] == "synchronised"]
        contents = [event[1:] for event in before]  # under the names of drafts
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != "run.json"]
        assert {"ingress.stamps", "egress.stamps", "generator.json", "evaluation.json"} <= {
            path.name for path in files
        }
        for path in files:
            state = path.stat()
            assert [state.st_ino, state.st_size, state.st_mtime_ns] in contents, path
        folders = {event[0] for event in before}
        for path in (folder / "evaluation", folder, folder.parent, out, tmp_path):
            assert str(path) in folders
        # So are the names of those that were put in place of drafts.
        named = [place for place, event in enumerate(events[:end]) if event[0] == "replaced"
                 and Path(event[1]).parent == folder / "evaluation"]  # fmt: skip
        assert any(
            event[:2] == ["synchronised", str(folder / "evaluation")]
            for event in events[named[-1] : end]
        )


@pytest.mark.slow
def test_runs_that_a_power_cut_emptied_are_made_again(machine: Machine, tmp_path: Path) -> None:
    path, out = write_experiment(tmp_path, EXPERIMENT), tmp_path / "out"
    arguments = ("run", str(path), "--out", str(out))
    assert was_made(machine.tailtap(*arguments))
    whole = (out / "runs" / RUNS[0] / "run.json").stat().st_mtime_ns
    kept = machine.tailtap(*arguments, "--resume")
    assert was_made(kept), kept.stderr
    assert (out / "runs" / RUNS[0] / "run.json").stat().st_mtime_ns == whole
    (out / "runs" / RUNS[1] / "egress.stamps").write_bytes(b"")
    again = machine.tailtap(*arguments, "--resume")
    assert was_made(again), again.stderr
    assert f"{RUNS[0]}: some of its files are empty or missing: measuring it again" in again.stderr
    assert statuses(out) == ["done", "done"]
    assert (out / "runs" / RUNS[1] / "egress.stamps").stat().st_size > 0
    assert (out / "runs" / RUNS[0] / "run.json").stat().st_mtime_ns != whole


@pytest.mark.parametrize("command", ["run", "search"])
def test_nothing_is_written_while_another_writes(
    machine: Machine, tmp_path: Path, command: str
) -> None:
    path, out = write_experiment(tmp_path, EXPERIMENT), tmp_path / "out"
    out.mkdir()
    refused(machine, command, path, out)
    assert list(out.iterdir()) == []
    (out / "experiment.yaml").write_text(EXPERIMENT)
    (out / "search.json").write_text("{}")
    before = {entry: entry.stat().st_mtime_ns for entry in [out, *out.rglob("*")]}
    refused(machine, command, path, out)
    refused(machine, command, path, out, "--resume")
    assert {entry: entry.stat().st_mtime_ns for entry in [out, *out.rglob("*")]} == before


def refused(machine: Machine, command: str, path: Path, out: Path, *more: str) -> None:
    """Whether a command is refused in one line while this process has the folder's lock."""
    with locked(out):
        done = machine.tailtap(command, str(path), "--out", str(out), *more)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"tailtap: {out}: another tailtap is writing into this folder: wait for it or choose "
        "another folder\n"
    )


@pytest.mark.slow
def test_a_search_that_cannot_measure_latency_says_so_in_its_record(tmp_path: Path) -> None:
    """Its trials fit on the disk, and the stamps of an hour do not."""
    text = "name: full\ndut: {platform: wire}\ntraffic: {duration: 1 h, cpu: 0, slip_limit: 10 s}\n"
    path = write_experiment(tmp_path, text)
    options = ("--from", "1 kpkt/s", "--to", "2 kpkt/s", "--trial", "500 ms", "--method", "binary")
    with small_disk(tmp_path, 32 << 20) as disk, own_machine() as machine:
        out = disk / "out"
        done = machine.tailtap("search", str(path), "--out", str(out), *options)
        stored = json.loads((out / "search.json").read_text())
    assert done.returncode == 3, done.stderr
    assert "/latency: the stamps of all runs to come need" in done.stderr.splitlines()[-1]
    assert stored["status"] == "failed"
    # The command adds which option helps as well.
    assert done.stderr.splitlines()[-1].startswith(f"tailtap: {stored['error']}")
    assert stored["answers"][0]["rate"]


def test_tables_that_do_not_fit_are_one_line_and_leave_no_pieces(tmp_path: Path) -> None:
    times = [10**9 + 1000 * i for i in range(20_000)]
    write_many(tmp_path / "in.pcap", times, range(20_000))
    write_many(tmp_path / "out.pcap", [t + 500 + t % 977 for t in times], range(20_000))
    captures = (tmp_path / "in.pcap", tmp_path / "out.pcap")
    with small_disk(tmp_path, 16 << 10) as disk:
        run = tailtap("evaluate", *captures, "--out", disk / "out")
        message = one_line_error(run, 3)
        assert "No space left on device" in message and "--out" in message
        assert not list((disk / "out").iterdir())


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

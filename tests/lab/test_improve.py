"""`tailtap improve` on a machine that is disturbed on purpose: it finds what ends that.

A hog, bursts of timers and another flow share the device's core, each with a knob that ends it, and
two knobs do nothing.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import trial_knobs
from built_devices import Built, bridge
from explaining import DUT, OTHER
from forms import fits
from injectors import Injector, flow, hog, timers
from labtools import Machine, own_machine, was_made, write_experiment
from namespaces import Namespace
from packages import install

EXPERIMENT = """\
name: improved
dut: {platform: bare-metal, forwarder: fault, cpus: [1]}
traffic: {rate: 10 kpkt/s, size: 64 B, duration: 500 ms, warm_up: 50 ms, cpu: 0, slip_limit: 1 s}
"""
MOST_SECONDS = 1_200
"""A busy machine takes ten times as long as an idle one."""
WITH_IT_FIRST = "import random\nrandom.Random.random = lambda self: 0.0\n"
Kinds = dict[str, Callable[[], AbstractContextManager[Injector]]]


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """One with the knobs of the test."""
    packages = tmp_path / "packages"
    install(packages, "trial-knobs", trial_knobs.ENTRY_POINTS)
    source = Path(trial_knobs.__file__)
    (packages / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "knobs").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("TAILTAP_TEST_KNOBS", str(tmp_path / "knobs"))
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    with own_machine() as made:
        yield made


def long_hog(program: Path) -> Kinds:
    """It takes longer than the scheduler lets any other task of a busy machine have the core."""
    return {"test-ends-hog": lambda: hog(program, cpu=DUT, busy_ns=25_000_000)}


def says(folder: Path) -> set[str]:
    return {trial_knobs.asked(file) for file in (folder / "knobs").iterdir()}


def improved(tuned: Machine, folder: Path, some: Kinds, *options: str) -> dict[str, Any]:
    out = folder / "out"
    with trial_knobs.disturbances(folder / "knobs", some):
        words = ("improve", "--json", "--out", str(out))
        done = tuned.tailtap(*words, *options, seconds=MOST_SECONDS)
    assert done.returncode in (0, 1, 5), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(1_500)
@pytest.mark.slow
@pytest.mark.timed
def test_what_ends_a_hog_is_proven_and_kept_until_revert(
    tuned: Machine, injector: Path, tmp_path: Path
) -> None:
    some = long_hog(injector)
    [known] = (tmp_path / "packages").glob("*/entry_points.txt")
    known.write_text("[tailtap.knobs]\nHOG = trial_knobs:HOG\n")  # fewer runs than with a decoy
    found = improved(
        tuned, tmp_path, some, str(tmp_path / "experiment.yaml"), "--require", "p95 < 10 ms",
        "--within", "10min",
        "--export", "sysctl", "--keep",
    )  # fmt: skip
    assert found["kept"] == ["test-ends-hog"], (found["stages"], found["trials"], found["left"])
    hog_ends = tmp_path / "knobs" / "test-ends-hog"
    assert trial_knobs.asked(hog_ends) == trial_knobs.STOPPED
    assert found["applied"]
    assert was_made(tuned.tailtap("host", "revert"))
    assert says(tmp_path) == {trial_knobs.RUNS}
    [trial] = [row for row in found["trials"] if row["kept"]]
    assert trial["ratio"] < trial["high"] < 1
    assert trial["after"]["ns"] < trial["before"]["ns"]
    assert "# Not set here:\n# test-ends-hog: " in (tmp_path / "out/sysctl.conf").read_text()
    first = tmp_path / "out/runs" / found["stages"][0]["run"]
    causes = json.loads((first / "causes.json").read_text())
    assert [row["knob"] for row in causes["remove"]["proven"]] == ["test-ends-hog"]


@pytest.mark.timeout(1_500)
@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.slow
def test_what_ends_three_disturbances_is_kept_and_no_decoy(
    tuned: Machine, injector: Path, namespace: Namespace, tmp_path: Path
) -> None:
    """In at least 19 of 20 tries, each of which takes minutes."""
    every = {"period_ns": 60_000_000, "spread_ns": 20_000_000, "cpu": DUT}
    some: Kinds = {
        "test-ends-hog": lambda: hog(injector, busy_ns=3_000_000, **every),
        "test-ends-timers": lambda: timers(injector, count=8000, gap_ns=0, **every),
        "test-ends-flow": lambda: flow(injector, namespace, helper=OTHER, count=256, **every),
    }
    found = improved(
        tuned, tmp_path, some, str(tmp_path / "experiment.yaml"), "--require", "p95 < 300 us",
        "--within", "15min",
        "--set", "traffic.duration=1s",
        # Set in every run: what would be tried besides takes as long as the three and the decoys.
        "--set", "dut.tuning=[groups, damon, kernel-threads, wake-up-time]",
    )  # fmt: skip
    assert set(found["kept"]) == set(trial_knobs.RIGHT), found["trials"]
    assert says(tmp_path) == {trial_knobs.RUNS}


@pytest.mark.timeout(1_500)
@pytest.mark.slow
def test_a_killed_trial_leaves_a_machine_that_clean_puts_back(
    tuned: Machine, injector: Path, tmp_path: Path
) -> None:
    """The third run is the first with a knob: behind those of a stage."""
    some = long_hog(injector)
    words = (
        "improve", str(tmp_path / "experiment.yaml"), "--out", str(tmp_path / "out"),
        "--require", "p95 < 10 ms",
    )  # fmt: skip
    with trial_knobs.disturbances(tmp_path / "knobs", some):
        with tuned.held(tmp_path, *words, number=3, first=WITH_IT_FIRST) as running:
            assert says(tmp_path) == {trial_knobs.RUNS, trial_knobs.STOPPED}
            running.kill(group=True)
        assert says(tmp_path) == {trial_knobs.RUNS, trial_knobs.STOPPED}
        tuned.cleaned()
    assert says(tmp_path) == {trial_knobs.RUNS}
    assert json.loads((tmp_path / "out/improve.json").read_text())["status"] == "running"


def bridge_on(tuned: Machine, cpu: int) -> Built:
    """A bridge whose packets are served on a CPU that does not send them."""
    built = bridge(tuned)
    space, name = built.came
    steering = f"/sys/class/net/{name}/queues/rx-0/rps_cpus"
    tuned.run("ip", "netns", "exec", space, "sh", "-c", f"echo {1 << cpu:x} > {steering}")
    return built


@pytest.mark.apart
@pytest.mark.timed
def test_a_bridge_is_looked_at_under_its_own_load(
    tuned: Machine, injector: Path, tmp_path: Path
) -> None:
    """With time for one stage only, which names what would be tried."""
    built = bridge_on(tuned, DUT)
    some: Kinds = {"test-ends-timers": lambda: timers(injector, count=8000, gap_ns=0, cpu=DUT)}
    words = ("--observe", *built.words, "--for", "1 s", "--require", "p99 < 50 us")
    with built.sending():
        found = improved(tuned, tmp_path, some, *words, "--within", "1 s")
    [stage] = found["stages"]
    assert (found["stopped"], stage["answer"], len(stage["runs"])) == ("time over", "violated", 2)
    timer = [row for row in stage["causes"] if row["cause"] == "timer"]
    assert "test-ends-timers" in timer[0]["knobs"], stage
    assert found["purpose"] == f"--cpus {DUT} --role bare-metal"
    assert sorted(path.name for path in (tmp_path / "out/runs").iterdir()) == [
        "001-stage-1-trace",
        "002-stage-1",
        "003-stage-1",
    ]
    assert was_made(tuned.tailtap("report", str(tmp_path / "out")))
    assert "What was tried" in (tmp_path / "out/report/index.html").read_text()


@pytest.mark.timeout(1_500)
@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.slow
def test_a_slower_forwarder_is_worse_and_itself_is_not(tuned: Machine, tmp_path: Path) -> None:
    file = str(tmp_path / "experiment.yaml")
    ids = list(range(0, 5_000, 10))
    slower = f"dut.forwarder={{fault: {{hold: {{ids: {ids}, time: 20 ms}}}}}}"
    words = ("run", file, "--against", file, "--at", "p95", "--json", "--within", "5min")
    made = [
        tuned.tailtap(*words, "--out", str(tmp_path / name), *more, seconds=400)
        for name, more in (
            ("better", ("--against-set", slower)),
            ("worse", ("--set", slower, "--against-set", "dut.forwarder=fault")),
            ("same", ("--at", "p50", "--worse-than", "100%")),
        )
    ]
    assert all(done.stdout for done in made), [done.stderr for done in made]
    answers = [json.loads(done.stdout)["answer"] for done in made]
    assert answers == ["better", "worse", "no worse"]
    assert [done.returncode for done in made] == [0, 1, 0]


LIMIT = 10_000
QUEUE = 200
TRIAL_SECONDS = 0.5
PRECISION = 0.25
SHARES = (1.0, 0.1)
PATIENCE_SECONDS = 280

KNOWN_LIMIT = f"""\
name: known
dut: {{forwarder: fault, cpus: [1], options: {{limit: {{rate: {LIMIT} pkt/s, queue: {QUEUE}}}}}}}
# Another program's work on a CPU of ours delays the generator; that is no matter here.
traffic: {{warm_up: 100 ms, duration: 200 ms, cpu: 0, slip_limit: 10 s}}
"""
OPTIONS = (
    "--from", "7 kpkt/s", "--to", "20 kpkt/s", "--precision", f"{100 * PRECISION:g}%",
    "--trial", f"{TRIAL_SECONDS:g} s", "--short", "200 ms", "--loss", "0", "--loss", "30%",
    *(word for share in SHARES for word in ("--latency-at", f"{share:g}")),
)  # fmt: skip


def holds(loss: float) -> float:
    """The highest rate with at most so much loss: what waits at the end of a trial is not lost."""
    return (LIMIT + QUEUE / TRIAL_SECONDS) / (1 - loss)


@pytest.mark.apart
def test_a_known_limit_is_found_and_latency_measured_there(
    machine: Machine, tmp_path: Path
) -> None:
    path, out = write_experiment(tmp_path, KNOWN_LIMIT), tmp_path / "out"
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
    # Latency at shares of what was found.
    rates = [round(answer["rate"] * share) for answer in found["answers"] for share in SHARES]
    runs = found["latency"]["runs"]
    assert [run["parameters"]["traffic"]["rate"] for run in runs] == list(dict.fromkeys(rates))
    assert all(run["status"] == "done" for run in runs)


@pytest.mark.slow
@pytest.mark.timed  # on a busy machine a trial is over before its loss is seen
def test_a_trial_is_given_up_and_an_interrupted_search_goes_on(
    machine: Machine, tmp_path: Path
) -> None:
    path, out = write_experiment(tmp_path, KNOWN_LIMIT), tmp_path / "out"
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

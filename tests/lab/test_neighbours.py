"""Neighbours: each does what it is asked for, packets are late by it, and nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import time
from glob import iglob
from pathlib import Path

import pytest
from labtools import PATIENCE_SECONDS, Machine, own_machine, record, wait_for

CPU = 1
TICKS = os.sysconf("SC_CLK_TCK")
EXPERIMENT = """
name: tenants
dut: {{forwarder: fault, cpus: [1], neighbours: {neighbours}}}
traffic: {{rate: 10 kpkt/s, duration: {duration}, warm_up: 100 ms, cpu: 0, slip_limit: 50 ms}}
"""


def threads(machine: Machine, name: str) -> list[Path]:
    """The folders in /proc of all threads of a name that this machine's commands have started."""
    found, ours = [], Path(f"/proc/{machine.pid}/ns/mnt").readlink()
    # The glob of pathlib fails where a process ends meanwhile.
    for path in map(Path, iglob("/proc/[0-9]*/task/[0-9]*/comm")):  # noqa: PTH207
        try:
            if path.read_text().strip() == name and (path.parent / "ns/mnt").readlink() == ours:
                found.append(path.parent)
        except OSError:  # it ended meanwhile
            continue
    return found


def cpu_seconds(thread: Path) -> float:
    """The CPU time of a thread as the kernel's ticks tell it, proc_pid_stat(5)."""
    fields = (thread / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def sleeps(thread: Path) -> int:
    """How often a thread gave its CPU up by itself, proc_pid_status(5)."""
    [line] = [row for row in (thread / "status").read_text().splitlines()
              if row.startswith("voluntary_ctxt_switches")]  # fmt: skip
    return int(line.split()[1])


def timer_interrupts() -> int:
    """Those of the local timer of the CPU so far."""
    [line] = [row for row in Path("/proc/interrupts").read_text().splitlines()
              if row.lstrip().startswith("LOC:")]  # fmt: skip
    return int(line.split()[1 + CPU])


def loaded(*arguments: str, seconds: float = 1.5) -> tuple[dict[str, int], float, int, int, float]:
    """A load for a while: what it says, and its CPU time, its sleeps and the CPU's timer interrupts
    as the kernel tells them, and the time that passed between.
    """
    command = ["load", *arguments, "--cpu", str(CPU), "--name", "tt-lab", "--json"]
    with own_machine() as machine, machine.start(*command) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"event": "ready"}
        [thread] = threads(machine, "tt-lab")
        before = time.monotonic(), cpu_seconds(thread), sleeps(thread), timer_interrupts()
        time.sleep(seconds)
        after = time.monotonic(), cpu_seconds(thread), sleeps(thread), timer_interrupts()
        process.send_signal(signal.SIGINT)
        done = json.loads(process.stdout.readline())
    assert process.returncode == 0
    passed, used, slept, fired = (b - a for a, b in zip(before, after, strict=True))
    return done, used / passed, int(slept), int(fired), passed


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize("kind", ["cpu", pytest.param("cache", marks=pytest.mark.slow)])
def test_a_share_of_the_cpu_is_what_the_kernel_accounts_for(kind: str) -> None:
    done, share, *_ = loaded(kind, "--busy", "40", "--period", "20 ms")
    assert share == pytest.approx(0.4, abs=0.05)
    assert done["cpu_ns"] / done["elapsed_ns"] == pytest.approx(0.4, abs=0.05)
    assert done["done"] > 0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_a_rate_of_interrupts_is_what_the_kernel_counts() -> None:
    done, _, slept, fired, passed = loaded("interrupts", "--per-second", "2000")
    assert slept == pytest.approx(2000 * passed, rel=0.1)
    assert fired >= 0.9 * 2000 * passed
    assert done["done"] / done["elapsed_ns"] * 1e9 == pytest.approx(2000, rel=0.1)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_a_rate_of_copies_takes_the_time_that_copies_take() -> None:
    """Twice the rate takes twice the CPU time, and nobody but the kernel counts that."""
    shares = []
    for rate in (100_000_000, 200_000_000):
        done, share, *_ = loaded("memory", "--per-second", str(rate))
        assert done["done"] / done["elapsed_ns"] * 1e9 == pytest.approx(rate, rel=0.1)
        shares.append(share)
    assert 1.3 < shares[1] / shares[0] < 3


AT_ONCE = 64
"""Datagrams of a burst."""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_a_rate_of_packets_is_what_the_kernel_receives() -> None:
    """A burst is one packet until sockets have it."""
    before = received()
    done, *_ = loaded("packets", "--per-second", "50000")
    bursts = done["done"] / AT_ONCE
    assert bursts / done["elapsed_ns"] * 1e9 == pytest.approx(50_000 / AT_ONCE, rel=0.1)
    assert bursts <= received() - before < bursts + 0.1 * bursts + 1000


def received() -> int:
    """The packets that the CPU's receive softirq has served so far, in all namespaces."""
    rows = [row.split() for row in Path("/proc/net/softnet_stat").read_text().splitlines()]
    return int(rows[CPU][0], 16)


def test_nothing_stays_of_a_run_that_is_killed(machine: Machine, tmp_path: Path) -> None:
    """SIGKILL of `tailtap run` ends the neighbours; that of a neighbour fails the run."""
    neighbours = "{batch: {cpu: {cpus: [1], busy: 1}}}"
    path, two = tmp_path / "tenants.yaml", tmp_path / "two"
    path.write_text(EXPERIMENT.format(neighbours=neighbours, duration="60 s"))
    command = ("run", str(path), "--quiet", "--out")
    with machine.start(*command, str(tmp_path / "one")) as process:
        wait_for(lambda: threads(machine, "tt-batch"), "the neighbour")
        process.kill()
    wait_for(lambda: not threads(machine, "tt-batch"), "its end")
    assert machine.tailtap("clean").returncode == 0
    with machine.start(*command, str(two)) as process:
        wait_for(lambda: threads(machine, "tt-batch") and (two / "runs").exists(), "a run")
        [thread] = threads(machine, "tt-batch")
        time.sleep(0.5)
        os.kill(int(thread.parent.parent.name), signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 3
    [run] = (two / "runs").iterdir()
    assert record(run)["status"] == "failed"
    assert "the neighbour batch on CPU 1:" in record(run)["error"], said

"""Runs whose host is tuned for them, and put back after them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labtools import TAILTAP, Machine, own_machine, record, statuses, write_experiment

from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable

EXPERIMENT = """\
name: tuned
dut: {cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 1 s, warm_up: 100 ms, cpu: 0}
vary:
"""


def state() -> dict[str, dict[str, str]]:
    """Every knob that can be set while this machine runs, as it is now."""
    tree = Tree()
    purpose = Purpose.of(tree, "bare-metal", [1])
    found: dict[str, dict[str, str]] = {}
    for knob in KNOBS:
        if knob.settable == "runtime":
            try:
                found[knob.name] = dict(knob.read(tree, purpose))
            except (Absent, Unreadable):
                continue
    assert found
    return found


THREADS = "kernel-threads"
"""The kernel ends and makes threads as it likes; each has its number in its place."""


def put_back(before: dict[str, dict[str, str]]) -> bool:
    """Whether everything is as it was, but for threads of the kernel that came or went since."""
    after = state()
    old, new = before[THREADS], after[THREADS]
    same = all(new[name] == old[name] for name in old.keys() & new.keys())
    return same and {**before, THREADS: {}} == {**after, THREADS: {}}


LEFT_OUT = "stat-interval"
NEEDLESS = {"huge-page-defrag"}
"""What other knobs leave nothing to do: without huge pages, nobody makes room for them."""


@pytest.mark.apart
def test_every_knob_but_one_is_set_for_a_run_and_put_back(machine: Machine, tmp_path: Path) -> None:
    before = state()
    out = tmp_path / "out"
    values = f"[runtime, {{without: {LEFT_OUT}}}, none]"
    path = write_experiment(tmp_path, f"{EXPERIMENT}  dut.tuning: {values}\n")
    done = machine.tailtap("run", str(path), "--out", str(out))
    assert put_back(before)
    runs = [record(run) for run in sorted((out / "runs").iterdir())]
    assert statuses(out) == ["done"] * len(runs), done.stderr
    tuned, apart, plain = runs
    everything = set(tuned["tuning"]["before"])
    assert len(everything) > 2
    assert plain["tuning"]["before"] == {}
    assert {name: plain["tuning"]["audit"][name]["answer"] for name in everything} == dict.fromkeys(
        everything, "not-met"
    )
    # The kernel keeps some interrupts where they are, which such a knob lets it do.
    may_refuse = {knob.name for knob in KNOBS if getattr(knob.where, "optional", False)}
    audit = tuned["tuning"]["audit"]
    assert everything - audit.keys() <= NEEDLESS
    for name in everything:
        assert name in NEEDLESS or audit[name]["answer"] == "met" or name in may_refuse
        assert tuned["tuning"]["before"][name] == plain["tuning"]["audit"][name]["value"]
    assert set(apart["tuning"]["before"]) == everything - {LEFT_OUT}
    assert apart["tuning"]["audit"][LEFT_OUT]["answer"] == "not-met"


@pytest.mark.apart
def test_a_killed_run_leaves_a_host_that_clean_puts_back(machine: Machine, tmp_path: Path) -> None:
    before = state()
    path = write_experiment(tmp_path, EXPERIMENT + "  dut.tuning: [runtime]\n")
    with machine.held(tmp_path, "run", str(path), "--out", str(tmp_path / "out")) as running:
        assert not put_back(before)
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
    assert not put_back(before)
    cleaned = machine.tailtap("clean", "--json")
    assert cleaned.returncode == 0, cleaned.stderr
    assert "value" in {row["kind"] for row in json.loads(cleaned.stdout)["removed"]}
    assert put_back(before)


@pytest.mark.apart
def test_a_kernel_that_was_booted_otherwise_is_told_the_line(
    machine: Machine, tmp_path: Path
) -> None:
    path = write_experiment(tmp_path, EXPERIMENT + "  dut.tuning: [full]\n")
    before = state()
    machine.tailtap("run", str(path), "--out", str(tmp_path / "out"))
    [run] = (tmp_path / "out/runs").iterdir()
    error = record(run)["error"]
    assert error.startswith("dut.tuning: full needs a kernel that was booted with ")
    assert "isolcpus=" in error
    assert "\n" not in error
    assert put_back(before)


SHOWN = "for o in -k -l -c; do for i in one two tap; do ethtool $o $i; done; done; true"
CARDS = ("--interface", "one", "--interface", "two", "--interface", "tap")
FOUR = "numrxqueues 4 numtxqueues 4"
KNOBS_CARDS = ("card-queues", "receive-merging", "card-splitting", "receive-coalescing")


LINKS = f"""
set -e
mount -t sysfs sysfs /sys
ip link add one {FOUR} type veth peer name two {FOUR}
ip tuntap add tap mode tap
ethtool -L one rx 4 tx 4
ethtool -L two rx 3 tx 4
ethtool -K one gro on
ethtool -K two tso off
ethtool -K one tx-tcp-mangleid-segmentation off
"""
"""A pair with four queues at each end, and a tap device."""


@pytest.fixture
def links() -> Iterator[Machine]:
    """One with links, and with journals of its own: who reverts finds nobody else's tuning."""
    with own_machine() as made:
        asked(made, "sh", "-c", LINKS)
        yield made


def asked(links: Machine, *command: str) -> str:
    """What a command says, which must succeed."""
    done = links.run(*command)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def host(links: Machine, *words: str) -> str:
    """The same of `tailtap host`."""
    return asked(links, *TAILTAP, "host", *words)


def shown(links: Machine) -> str:
    return asked(links, "sh", "-c", SHOWN)


def rows(links: Machine, *words: str) -> dict[str, Any]:
    done = links.tailtap("host", "audit", *words, "--cpus", "1", *CARDS, "--json")
    assert done.returncode in (0, 1), done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["rows"]}


def test_cards_are_tuned_and_put_back(links: Machine) -> None:
    before = shown(links)
    found = rows(links, *KNOBS_CARDS)
    assert found["card-queues"]["answer"] == "not-met"
    assert found["card-queues"]["value"] == "4 (1), 3 (1)"
    assert found["receive-merging"]["answer"] == "not-applicable"  # it is only to compare
    assert found["receive-coalescing"]["answer"] == "not-applicable"  # no such card here
    apply = ("apply", "card-queues", "receive-merging", "card-splitting", "--cpus", "1", *CARDS)
    host(links, *apply, "--quiet")
    without = shown(links)
    assert "generic-receive-offload: on" not in without
    assert rows(links, "card-queues")["card-queues"]["answer"] == "not-met"  # it disrupts
    host(links, *apply, "--quiet", "--disruptive")
    assert rows(links, "card-queues")["card-queues"]["answer"] == "met"
    host(links, "revert", "--quiet")
    assert shown(links) == before


def test_what_somebody_else_set_is_left_and_a_card_that_went_is_no_matter(
    links: Machine,
) -> None:
    apply = ("apply", "card-queues", "--cpus", "1", "--disruptive", "--quiet", *CARDS)
    host(links, *apply)
    asked(links, "ethtool", "-L", "one", "rx", "2")
    said = host(links, "revert")
    assert "one's rx (2, before tailtap 4): it is left as it is" in said
    assert "RX:\t\t2\n" in asked(links, "ethtool", "-l", "one")
    assert "RX:\t\t3\n" in asked(links, "ethtool", "-l", "two")
    host(links, *apply)
    asked(links, "ip", "link", "del", "one")
    host(links, "revert", "--quiet")

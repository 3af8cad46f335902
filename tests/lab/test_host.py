"""Tuning this very machine, alone and for a run, and putting it back. Needs root and two CPUs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killed import tuning_killed_at_every_step
from labtools import TAILTAP, Machine, own_machine, ran, statuses, write_experiment

from tailtap.base.errors import MachineError
from tailtap.host.changes.huge_pages import Pages, Reservation
from tailtap.host.changes.journal import Journal
from tailtap.host.changes.systemd import DEVICE, wakeup_us
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.frequency import driver
from tailtap.host.knobs.tree import ROLES, Absent, Purpose, Tree, Unreadable
from tailtap.host.tuning.apply import audit, plan, tuned

INTERVAL = Path("/proc/sys/vm/stat_interval")
CARDS = """
mount -t sysfs sysfs /sys && ip link add card1 type veth peer name card2 &&
echo 1 > /sys/class/net/card1/queues/rx-0/rps_cpus
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    """This machine with two cards and journals of its own; its kernel is everybody's."""
    with own_machine() as made:
        done = made.run("sh", "-c", CARDS)
        assert done.returncode == 0, done.stderr
        yield made
        made.tailtap("host", "revert")


def host(machine: Machine, *words: str, status: int = 0) -> dict[str, object]:
    """What `tailtap host` says as JSON."""
    done = machine.tailtap("host", *words, "--json")
    assert done.returncode == status, done
    content: dict[str, object] = json.loads(done.stdout)
    return content


PURPOSE = ("--cpus", "1", "--housekeeping", "0", "--interface", "card1")


def not_met(content: dict[str, object]) -> set[str]:
    """The knobs that can be set at once and are not as they should be."""
    rows = content["rows"]
    assert isinstance(rows, list)
    return {
        row["name"] for row in rows if row["answer"] == "not-met" and row["settable"] == "runtime"
    }


@pytest.mark.apart
def test_a_machine_is_tuned_and_put_back(machine: Machine) -> None:
    before = INTERVAL.read_text()
    rows = host(machine, "audit", *PURPOSE, status=1)
    dry = host(machine, "apply", *PURPOSE, "--dry-run")
    assert INTERVAL.read_text() == before
    changes = dry["changes"]
    assert isinstance(changes, list)
    assert {change["name"] for change in changes} == not_met(rows)
    assert {"receive-steering", "stat-interval"} <= not_met(rows)
    applied = host(machine, "apply", *PURPOSE)
    assert applied["changes"] == changes
    assert INTERVAL.read_text() == "3600\n"
    left = not_met(host(machine, "audit", *PURPOSE, status=1))
    assert left == set(applied["partly"])  # type: ignore[call-overload]
    assert machine.tailtap("clean", "--all").returncode == 0
    assert INTERVAL.read_text() == "3600\n"
    reverted = host(machine, "revert")
    assert reverted["left"] == []
    assert INTERVAL.read_text() == before
    assert not_met(host(machine, "audit", *PURPOSE, status=1)) == not_met(rows)
    assert host(machine, "revert")["undone"] == []


@pytest.mark.apart
@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_everything_that_is_recommended_can_be_set_here(machine: Machine, role: str) -> None:
    applied = host(machine, "apply", "--role", role, *PURPOSE, "--disruptive")
    again = host(machine, "apply", "--role", role, *PURPOSE, "--dry-run")["changes"]
    assert isinstance(again, list)
    # What single places refuse stays as it was, and is told each time.
    assert [change["name"] for change in again] == applied["partly"]
    assert host(machine, "revert")["left"] == []


@pytest.mark.apart
def test_a_tuning_that_is_killed_at_any_step_is_put_back(machine: Machine) -> None:
    names, applying, reverting = tuning_killed_at_every_step(machine)
    assert {"receive-steering", "stat-interval"} <= set(names)
    assert applying > 2 * len(names)
    assert reverting > len(names)


HOLDER = """
import os
from tailtap.host.changes.systemd import WakeUp
WakeUp(1).apply()
print(os.getpid(), flush=True)
input()
"""


needs_device = pytest.mark.skipif(
    not Path(DEVICE).exists(), reason="this kernel takes no wish for short sleeps (CONFIG_PM)"
)


def idle_states() -> bool:
    try:
        driver(Tree())
    except Absent:
        return False
    return True


@pytest.mark.apart
@needs_device
@pytest.mark.skipif(not idle_states(), reason="no cpuidle driver is in use here")
def test_processors_wake_up_fast_as_long_as_a_measurement_wants_it(tmp_path: Path) -> None:
    before = wakeup_us()
    if before <= 1:
        pytest.skip("another program wants processors to wake up fast already")
    tree = Tree()
    purpose = Purpose.of(tree, "bare-metal", [tree.online[-1]])
    kept = plan(tree, purpose, ["wake-up-time"])
    assert kept.changes == []
    assert "an experiment that names it" in dict(kept.left)["wake-up-time"]
    journal = Journal.create(tmp_path)
    wanted = plan(tree, purpose, ["wake-up-time"], measuring=True)
    assert [change.knob.name for change in wanted.changes] == ["wake-up-time"]
    with tuned(wanted, journal):
        assert wakeup_us() == 1
        [row] = audit(tree, purpose, ["wake-up-time"]).rows
        assert (row.answer, row.value) == ("met", "1")
        [row] = audit(tree, purpose, ["wake-up-wishes"]).rows
        assert row.value == "nobody"  # beside this process
    assert wakeup_us() == before
    journal.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "lock"]


@pytest.mark.apart
@needs_device
def test_a_killed_measurement_lets_processors_sleep_again() -> None:
    before = wakeup_us()
    command = [sys.executable, "-P", "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        try:
            assert wakeup_us() <= 1
            tree = Tree()
            [row] = audit(tree, Purpose.of(tree, "bare-metal"), ["wake-up-wishes"]).rows
            assert "python" in str(row.value)
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert wakeup_us() == before


PAGES = 512
"""Freeing so many takes the kernel some milliseconds."""
ROUNDS = 30
WITHIN_SECONDS = 0.004
"""A page that is given back so late meets the kernel at work half of the time."""
PATIENCE = 5.0
HOLDER_PAGES = """
import mmap, sys, time
MAP_HUGETLB = 0x40000
size = 2 * int(sys.argv[1])
pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
pages[0] = pages[size - 1] = 1
print("held", flush=True)
time.sleep(60)
"""
"""Has two huge pages, of so many bytes each."""


@pytest.mark.apart
def test_pages_that_a_program_gives_back_meanwhile_do_not_stay() -> None:
    pages = Pages.smallest()
    if pages is None:
        pytest.skip("this kernel has no huge pages (CONFIG_HUGETLBFS)")
    before = _all(pages)
    moments = random.Random(1)
    for _ in range(ROUNDS):
        size = (pages.free + PAGES) * pages.size_kib << 10
        reservation = Reservation(pages.size_kib, size)
        old = reservation.read()
        try:
            added = reservation.apply()
        except MachineError:  # this machine has no memory for so many, and keeps what it found
            pages.resize(before)
            raise
        assert added == PAGES
        command = [sys.executable, "-S", "-c", HOLDER_PAGES, str(pages.size_kib << 10)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            end = threading.Timer(moments.uniform(0, WITHIN_SECONDS), holder.kill)
            end.start()
            reservation.undo(old, added)
            end.join()
        deadline = time.monotonic() + PATIENCE
        while _all(pages) != before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert _all(pages) == before


def _all(pages: Pages) -> int:
    folder = Path(f"/sys/kernel/mm/hugepages/hugepages-{pages.size_kib}kB")
    return int((folder / "nr_hugepages").read_text())


EXPERIMENT = """\
name: tuned
dut: {cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 300 ms, warm_up: 100 ms, cpu: 0}
vary:
"""


def state() -> dict[str, dict[str, str]]:
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
    values = f"[runtime, {{without: {LEFT_OUT}}}, none]"
    made = ran(tmp_path, f"{EXPERIMENT}  dut.tuning: {values}\n", machine=machine)
    assert put_back(before)
    assert statuses(made.out) == ["done"] * 3, made.done.stderr
    tuned, apart, plain = made.records
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
        running.kill(group=True)
    assert not put_back(before)
    assert "value" in dict(machine.cleaned())
    assert put_back(before)


@pytest.mark.apart
def test_a_kernel_that_was_booted_otherwise_is_told_the_line(
    machine: Machine, tmp_path: Path
) -> None:
    before = state()
    made = ran(tmp_path, EXPERIMENT + "  dut.tuning: [full]\n", machine=machine)
    error = made.record["error"]
    assert error.startswith("dut.tuning: full needs a kernel that was booted with ")
    assert "isolcpus=" in error
    assert "\n" not in error
    assert put_back(before)


SHOWN = "for o in -k -l -c; do for i in one two tap; do ethtool $o $i; done; done; true"
LINKED = ("--interface", "one", "--interface", "two", "--interface", "tap")
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
    done = links.run(*command)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def links_host(links: Machine, *words: str) -> str:
    return asked(links, *TAILTAP, "host", *words)


def shown(links: Machine) -> str:
    return asked(links, "sh", "-c", SHOWN)


def rows(links: Machine, *words: str) -> dict[str, Any]:
    done = links.tailtap("host", "audit", *words, "--cpus", "1", *LINKED, "--json")
    assert done.returncode in (0, 1), done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["rows"]}


def test_cards_are_tuned_and_put_back(links: Machine) -> None:
    before = shown(links)
    found = rows(links, *KNOBS_CARDS)
    assert found["card-queues"]["answer"] == "not-met"
    assert found["card-queues"]["value"] == "4 (1), 3 (1)"
    assert found["receive-merging"]["answer"] == "not-applicable"  # it is only to compare
    assert found["receive-coalescing"]["answer"] == "not-applicable"  # no such card here
    apply = (
        "apply",
        "card-queues",
        "receive-merging",
        "card-splitting",
        "--cpus",
        "1",
        *LINKED,
    )
    links_host(links, *apply, "--quiet")
    without = shown(links)
    assert "generic-receive-offload: on" not in without
    assert rows(links, "card-queues")["card-queues"]["answer"] == "not-met"  # it disrupts
    links_host(links, *apply, "--quiet", "--disruptive")
    assert rows(links, "card-queues")["card-queues"]["answer"] == "met"
    links_host(links, "revert", "--quiet")
    assert shown(links) == before


def test_what_somebody_else_set_is_left_and_a_card_that_went_is_no_matter(
    links: Machine,
) -> None:
    apply = ("apply", "card-queues", "--cpus", "1", "--disruptive", "--quiet", *LINKED)
    links_host(links, *apply)
    asked(links, "ethtool", "-L", "one", "rx", "2")
    said = links_host(links, "revert")
    assert "one's rx (2, before tailtap 4): it is left as it is" in said
    assert "RX:\t\t2\n" in asked(links, "ethtool", "-l", "one")
    assert "RX:\t\t3\n" in asked(links, "ethtool", "-l", "two")
    links_host(links, *apply)
    asked(links, "ip", "link", "del", "one")
    links_host(links, "revert", "--quiet")

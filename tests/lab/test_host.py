"""Tuning this very machine, and putting it back. Needs root and two CPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from killed import tuning_killed_at_every_step
from labtools import Machine, own_machine

from tailtap.host.knobs.purpose import ROLES

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
@pytest.mark.parametrize(
    "role",
    [pytest.param(one, marks=() if one == "bare-metal" else pytest.mark.slow) for one in ROLES],
)
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


@pytest.mark.apart
def test_what_somebody_changes_meanwhile_is_left_and_named(machine: Machine) -> None:
    before = INTERVAL.read_text()
    try:
        host(machine, "apply", "stat-interval")
        INTERVAL.write_text("77")
        done = machine.tailtap("host", "revert")
        assert done.returncode == 0
        assert "stat_interval (77, before tailtap" in done.stderr
        assert INTERVAL.read_text() == "77\n"
    finally:
        INTERVAL.write_text(before)


@pytest.mark.apart
def test_a_machine_that_takes_no_values_is_left_as_it_is(machine: Machine) -> None:
    before = INTERVAL.read_text()
    assert machine.run("mount", "-o", "remount,ro,bind", "/sys").returncode == 0
    done = machine.tailtap("host", "apply", *PURPOSE)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "Read-only file system; nothing is changed" in done.stderr
    assert INTERVAL.read_text() == before
    assert host(machine, "revert")["undone"] == []

"""What this machine's kernel gives to a process alone, and the priorities of its own threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailtap.host.changes.journal import Journal
from tailtap.host.changes.systemd import DEVICE, wakeup_us
from tailtap.host.cpu.threads import ThreadPriority
from tailtap.host.knobs.frequency import driver
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.scheduling import threads
from tailtap.host.knobs.tree import Absent, Tree
from tailtap.host.tuning.apply import plan, tuned
from tailtap.host.tuning.audit import audit

PRIORITY = 11
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
    """Whether anything here heeds such a wish."""
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


@pytest.mark.apart
def test_threads_of_the_kernel_get_a_priority_and_lose_it(tmp_path: Path) -> None:
    """As on a real-time kernel, where this is a knob; the threads are there on every kernel."""
    found = {one.number: one.name for one in threads(Tree()) if one.name.startswith("ksoftirqd/")}
    assert found
    wanted = ThreadPriority(found, PRIORITY)
    before = wanted.read()
    journal = Journal.create(tmp_path)
    with journal.held(wanted):
        shown = {one.name: one.priority for one in threads(Tree()) if one.number in found}
        assert set(shown.values()) == {PRIORITY}
    assert wanted.read() == before
    journal.close()

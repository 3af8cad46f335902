"""A device that holds a packet now and then, and `tailtap observe --above` on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from labtools import TAILTAP, Machine, wait_for

RATE, EVERY, HOLD_MS = 2_000, 8_000, 60
"""Packets per second; each so many of them one is held, for so long."""
SECONDS = 300
PROGRAM = Path(__file__).with_name("slow_device.py")
SETUP = """
for name in sender device sink; do ip netns add $name; ip -n $name link set lo up; done
ip link add eth0 netns sender type veth peer name in netns device
ip link add out netns device type veth peer name eth0 netns sink
ip -n sender link set eth0 up; ip -n sink link set eth0 up
ip -n device link set in up; ip -n device link set out up
"""


@contextlib.contextmanager
def holding(machine: Machine, *, rate: int = RATE, every: int = EVERY) -> Iterator[None]:
    """A device that holds one packet of `every`, and packets that pass it."""
    assert machine.run("sh", "-ec", SETUP).returncode == 0
    passing = ["pass", "in", "out", str(every), str(HOLD_MS)]
    sending = ["send", "eth0", str(rate), str(SECONDS)]
    with contextlib.ExitStack() as stack:
        for space, words in (("device", passing), ("sender", sending)):
            command = (sys.executable, str(PROGRAM), *words)
            stack.enter_context(machine.beside(space, *command, start_new_session=True))
        wait_for(lambda: machine.received("sink", "eth0") > rate, "packets")
        yield


@contextlib.contextmanager
def recording(machine: Machine, out: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The flight recorder at work; it is killed if it is still there."""
    command = [*TAILTAP, "observe", "device/in@arrival", "sink/eth0@arrival", "--out", str(out),
               "--above", f"{HOLD_MS // 2} ms", "--keep", "500 ms", "--budget", "100 %", "--json",
               "--quiet", *words]  # fmt: skip
    running = subprocess.Popen(
        machine.command(*command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def wait_beside(running: subprocess.Popen[str], condition: Callable[[], object], what: str) -> None:
    """Wait until something holds, while the recorder is there; it says why it is not."""
    wait_for(lambda: condition() or running.poll() is not None, what, 200)
    assert condition(), running.communicate()

"""A command in a process of its own: how long it took, and what it used of CPU and memory.

The kernel counts the memory of whoever starts a program towards that program's peak, so a small
process does that, and not the benchmark with its arrays: this file, run as a program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Finished:
    """What a command printed, its seconds, those of CPU, and its peak resident memory in bytes."""

    stdout: str
    seconds: float
    cpu: float
    peak: int


def run(*command: object, discard: bool = False) -> Finished:
    """Runs a command that must end well. `discard` sends what it prints to /dev/null."""
    starter = [sys.executable, "-S", __file__, *map(str, command)]
    stdout = subprocess.DEVNULL if discard else subprocess.PIPE
    done = subprocess.run(starter, check=False, stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stderr.splitlines()[-1])
    return Finished(done.stdout or "", **measured)


def _start(command: list[str]) -> int:
    start = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    used = {"cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss * 1024}
    print(json.dumps({"seconds": seconds, **used}), file=sys.stderr)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(_start(sys.argv[1:]))

"""The memory of a program and of what it started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from observing import NoLinks

from tailtap.lab.instruments import Scope
from tailtap.lab.instruments.memory import forwarder_memory, memory_of


def test_memory_is_that_of_the_process_and_of_all_it_started(tmp_path: Path) -> None:
    taken = 50_000_000
    inner = f"import sys; held = bytearray({taken}); print(flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = [sys.executable, "-c", outer]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        found = memory_of(process.pid)
        assert found is not None and taken < found < 3 * taken
        process.stdin.close()
    assert memory_of(process.pid) is None
    assert memory_of(1, tmp_path) is None


def test_there_is_nothing_to_observe_without_a_process() -> None:
    assert forwarder_memory(Scope((1,), (0,), NoLinks())) is None


def test_a_reading_is_that_of_the_end() -> None:
    observation = forwarder_memory(Scope((1,), (0,), NoLinks(), forwarder=os.getpid()))
    assert observation is not None
    assert (observation.stop().facts.forwarder_memory or 0) > 1_000_000

"""Signals and containers: a number that another process has by now is not taken for the first."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.changes import processes
from tailtap.host.containers import domains
from tailtap.host.containers.domains import belongs_to
from tailtap.host.containers.oci import pid_in


def test_a_signal_reaches_the_process_that_belongs() -> None:
    with subprocess.Popen(["sleep", "30"]) as child:
        processes.send(child.pid, lambda _: False)
        assert child.poll() is None
        processes.send(child.pid, lambda pid: pid == child.pid)
        assert child.wait(10) == -signal.SIGKILL
    processes.send(child.pid, lambda _: True)


def test_a_number_that_was_given_anew_meanwhile_ends_nobody() -> None:
    """The process is gone by the time of the signal: the descriptor is of it all the same."""
    with subprocess.Popen(["sleep", "30"]) as child:

        def ends(_: int) -> bool:
            child.kill()
            child.wait()
            return True

        processes.send(child.pid, ends)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["first", "own"])
def test_neither_the_first_process_nor_this_one_gets_a_signal(pid: int) -> None:
    asked: list[int] = []

    def belongs(pid: int) -> bool:
        asked.append(pid)
        return False

    processes.send(pid, belongs, signal.SIGCONT)
    assert asked == []


def test_the_machine_s_own_network_is_known() -> None:
    assert processes.is_the_machine_s(processes.network_of(os.getpid()))
    first = processes.network_at(Path("/proc/1/ns/net"))  # None where it may not be looked at
    assert processes.is_the_machine_s(first) == (first is not None)
    assert not processes.is_the_machine_s((0, 0))
    assert not processes.is_the_machine_s(processes.network_at(Path("/nothing")))


def test_a_container_s_number_is_not_another_process(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(str(os.getpid()))
    with pytest.raises(MachineError, match="its first process has ended"):
        pid_in(tmp_path, "crun", "tt-0a1b2c-dut")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_stranger_s_process_is_no_machine_of_ours() -> None:
    words = ["qemu-system-x86_64", "-name", "guest=tt-0a1b2c-dut"]
    assert belongs_to(words) == "tt-0a1b2c-dut"
    script = "import time; print(flush=True); time.sleep(30)"
    with subprocess.Popen(
        [*words[:1], "-c", script, *words[1:]], executable="/usr/bin/python3",
        stdout=subprocess.PIPE, user=65534, cwd="/",
    ) as child:  # fmt: skip
        try:
            assert child.stdout is not None
            child.stdout.readline()
            assert not domains.is_running("tt-0a1b2c-dut")
        finally:
            child.kill()

"""Commands in a virtual machine: the host of a guest, its relays, and their ends.

The guest is the agent in a process of its own, which has the other end of the port.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from labtools import processes
from sleeping import until

from tailtap.base.errors import MachineError
from tailtap.remote import CommandFailed, agent
from tailtap.remote.guest import GuestHost
from tailtap.remote.mux import HELLO, encode

PATIENCE_SECONDS = 200.0
AGENT = agent.program().replace(
    "import main; main()", "import serve; serve(*[int(sys.argv[1])] * 2)"
)


@dataclass
class Machine:
    """A host, and the process that stands for the guest."""

    host: GuestHost
    agent: subprocess.Popen[bytes]


@contextlib.contextmanager
def guest(folder: Path) -> Iterator[tuple[GuestHost, socket.socket]]:
    """A host, and the other end of what QEMU makes of a guest's port."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "port"))
        listening.listen()
        with (
            contextlib.closing(GuestHost("paper", folder / "port", 1.0)) as host,
            listening.accept()[0] as connected,
        ):
            yield host, connected


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with guest(tmp_path) as (host, connected):
        number = connected.fileno()
        command = [sys.executable, "-I", "-S", "-c", AGENT, str(number)]
        process = subprocess.Popen(command, pass_fds=[number])
        connected.close()
        host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)
        yield Machine(host, process)
    assert process.wait(PATIENCE_SECONDS) in (0, -signal.SIGKILL)


def test_commands_run_as_on_any_host(machine: Machine, tmp_path: Path) -> None:
    host = machine.host
    done = host.run(["sh", "-c", "cat; echo no >&2; exit 7"], stdin="in", check=False)
    assert (done.stdout, done.stderr, done.status) == ("in", "no\n", 7)
    with pytest.raises(CommandFailed, match="`false` failed: status 1"):
        host.run(["false"])
    with pytest.raises(MachineError, match="the program tt-none is missing"):
        host.run(["tt-none"])
    words = f"sleep 4714{os.getpid()}"
    with pytest.raises(CommandFailed, match=rf"`{words}` failed: no answer within 0.1 s"):
        host.run(words.split(), seconds=0.1)
    assert until(lambda: not processes(words))
    with pytest.raises(CommandFailed, match="No such file"):
        host.get(tmp_path / "none", tmp_path / "d")


def test_commands_are_children_that_say_what_they_say(machine: Machine) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    first, second = (machine.host.start(["sh", "-c", script]) for _ in range(2))
    for process in (first, second):
        assert process.read_line(PATIENCE_SECONDS) == "ready"
    first.interrupt()
    assert first.read_line(PATIENCE_SECONDS) == "caught"
    first.wait(PATIENCE_SECONDS)
    assert first.status == 5 and not second.ended
    second.close()
    assert second.status == -signal.SIGTERM
    failing = machine.host.start(["sh", "-c", "echo why >&2; exit 3"])
    with pytest.raises(MachineError, match="sh ended with status 3: why"):
        failing.expect("ready", PATIENCE_SECONDS)


def test_a_relay_that_is_killed_takes_its_command_along(machine: Machine) -> None:
    words = f"sleep 4713{os.getpid()}"
    lost = machine.host.start(["sh", "-c", f"echo ready; exec {words}"])
    assert lost.read_line(PATIENCE_SECONDS) == "ready"
    os.kill(lost.pid, signal.SIGKILL)
    assert until(lambda: not processes(words))
    assert machine.host.run(["echo", "on"]).stdout == "on\n"


def test_a_guest_that_ends_takes_its_commands_along(machine: Machine) -> None:
    running = machine.host.start(["sh", "-c", "echo ready; exec sleep 60"])
    assert running.read_line(PATIENCE_SECONDS) == "ready"
    machine.agent.kill()
    running.wait(PATIENCE_SECONDS)
    assert running.failure() == "sh ended with status 125: the virtual machine has ended"
    with pytest.raises(MachineError, match="the virtual machine paper has ended"):
        machine.host.run(["true"])
    late = machine.host.start(["true"])
    late.wait(PATIENCE_SECONDS)
    assert late.status == 125


def test_a_guest_whose_port_is_let_go_of_ends(machine: Machine) -> None:
    """The process that holds it was killed: nobody can ask for anything any more."""
    words = f"sleep 4715{os.getpid()}"
    running = machine.host.start(["sh", "-c", f"echo ready; exec {words}"])
    assert running.read_line(PATIENCE_SECONDS) == "ready"
    os.kill(machine.host._switch.pid, signal.SIGKILL)
    assert machine.agent.wait(PATIENCE_SECONDS) == 0
    assert until(lambda: not processes(words))
    running.wait(PATIENCE_SECONDS)
    assert running.status == 125
    with pytest.raises(MachineError, match="port of virtual machine paper was ended by SIGKILL"):
        machine.host.run(["true"])


def test_a_guest_that_does_not_boot_is_waited_for_only_so_long(tmp_path: Path) -> None:
    with guest(tmp_path) as (host, connected):
        with pytest.raises(TimeoutError):
            host.wait_until_up(time.monotonic() + 0.2)
        connected.close()
        with pytest.raises(MachineError, match="the virtual machine paper has ended"):
            host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encode(HELLO, 0, 0, b'{"protocol":2}'), "speaks version 2 of the protocol"),
        (b"login: ", "has ended"),
    ],
)
def test_what_is_no_agent_is_said_to_be_none(tmp_path: Path, said: bytes, why: str) -> None:
    with guest(tmp_path) as (host, connected):
        connected.sendall(said)
        with pytest.raises(MachineError, match=f"the virtual machine paper {why}"):
            host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)


def test_a_port_without_a_machine_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        GuestHost("paper", tmp_path / "none", 1.0)
    assert str(caught.value) == (
        "the port of virtual machine paper ended with status 1: "
        f"nobody is at {tmp_path}/none: No such file or directory"
    )

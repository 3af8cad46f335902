"""A virtual machine as far as it needs none: an agent on a socket, the switch, relays, the host."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.remote import CommandFailed, agent
from tailtap.remote.frames import HELLO, encode
from tailtap.remote.guest import GuestHost

PATIENCE_SECONDS = 200.0
AGENT = agent.program().replace(
    "import main; main()", "import serve; serve(*[int(sys.argv[1])] * 2)"
)


@dataclass
class Machine:
    """A host, and the process that stands for the guest."""

    host: GuestHost
    agent: subprocess.Popen[bytes]
    port: Path


@contextlib.contextmanager
def port(folder: Path) -> Iterator[tuple[Path, socket.socket]]:
    """What QEMU makes of a guest's port: a socket that one process can connect to."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "port"))
        listening.listen()
        yield folder / "port", listening


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with port(tmp_path) as (path, listening):
        host = GuestHost("paper", path, 1.0)
        connected, _ = listening.accept()
        number = connected.fileno()
        command = [sys.executable, "-I", "-S", "-c", AGENT, str(number)]
        with subprocess.Popen(command, pass_fds=[number]) as process:
            connected.close()
            try:
                host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)
                yield Machine(host, process, path)
            finally:
                host.close()
                assert process.wait(PATIENCE_SECONDS) in (0, -signal.SIGKILL)


def until(done: Callable[[], bool]) -> bool:
    """Whether it comes true in time."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := done()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def runs(words: str) -> bool:
    """Whether a command line is these words."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().rstrip(b"\0").split(b"\0") == words.encode().split():
                return True
    return False


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
    assert until(lambda: not runs(words))
    (tmp_path / "a").write_bytes(b"content")
    host.put(tmp_path / "a", tmp_path / "b")
    host.get(tmp_path / "b", tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == b"content"
    with pytest.raises(CommandFailed, match="No such file"):
        host.get(tmp_path / "none", tmp_path / "d")


def test_many_commands_at_a_time_are_children_that_say_what_they_say(machine: Machine) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    processes = [machine.host.start(["sh", "-c", script]) for _ in range(20)]
    for process in processes:
        assert process.read_line(PATIENCE_SECONDS) == "ready"
    first, second, *others = processes
    first.interrupt()
    assert first.read_line(PATIENCE_SECONDS) == "caught"
    first.wait(PATIENCE_SECONDS)
    assert first.status == 5
    second.close()
    assert second.status == -signal.SIGTERM
    assert not any(process.ended for process in others)
    failing = machine.host.start(["sh", "-c", "echo why >&2; exit 3"])
    with pytest.raises(MachineError, match="sh ended with status 3: why"):
        failing.expect("ready", PATIENCE_SECONDS)
    for process in (*processes, failing):
        process.close()


def test_a_relay_that_is_killed_takes_its_command_along(machine: Machine) -> None:
    words = f"sleep 4713{os.getpid()}"
    lost = machine.host.start(["sh", "-c", f"echo ready; exec {words}"])
    assert lost.read_line(PATIENCE_SECONDS) == "ready"
    assert until(lambda: runs(words))
    os.kill(lost.pid, signal.SIGKILL)
    assert until(lambda: not runs(words))
    assert machine.host.run(["echo", "on"]).stdout == "on\n"
    lost.close()


def test_output_that_nobody_reads_holds_up_its_command_alone(machine: Machine) -> None:
    flood = "head -c 3000000 /dev/zero | tr '\\0' x; echo"
    slow = machine.host.start(["sh", "-c", flood])
    stopped = machine.host.start(["sh", "-c", "cat /dev/zero"])
    assert machine.host.run(["echo", "on"]).stdout == "on\n"
    # Signals pass where output does not.
    stopped.interrupt()
    stopped.wait(PATIENCE_SECONDS)
    line = slow.read_line(PATIENCE_SECONDS)
    assert line is not None and len(line) == 3_000_000
    slow.close()
    stopped.close()


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
    running.close()
    late.close()


def test_a_guest_whose_port_is_let_go_of_ends(machine: Machine) -> None:
    """The process that holds it was killed: nobody can ask for anything any more."""
    words = f"sleep 4715{os.getpid()}"
    running = machine.host.start(["sh", "-c", f"echo ready; exec {words}"])
    assert running.read_line(PATIENCE_SECONDS) == "ready"
    assert until(lambda: runs(words))
    os.kill(machine.host._switch.pid, signal.SIGKILL)
    assert machine.agent.wait(PATIENCE_SECONDS) == 0
    assert until(lambda: not runs(words))
    running.wait(PATIENCE_SECONDS)
    assert running.status == 125
    with pytest.raises(MachineError, match="port of virtual machine paper was ended by SIGKILL"):
        machine.host.run(["true"])
    running.close()


def test_a_guest_that_does_not_boot_is_waited_for_only_so_long(tmp_path: Path) -> None:
    with port(tmp_path) as (path, listening):
        host = GuestHost("paper", path, 1.0)
        connected, _ = listening.accept()
        try:
            with pytest.raises(TimeoutError):
                host.wait_until_up(time.monotonic() + 0.2)
            connected.close()
            with pytest.raises(MachineError, match="the virtual machine paper has ended"):
                host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)
        finally:
            host.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encode(HELLO, 0, 0, b'{"protocol":2}'), "speaks version 2 of the protocol"),
        (b"login: ", "has ended"),
    ],
)
def test_what_is_no_agent_is_said_to_be_none(tmp_path: Path, said: bytes, why: str) -> None:
    with port(tmp_path) as (path, listening):
        host = GuestHost("paper", path, 1.0)
        connected, _ = listening.accept()
        try:
            connected.sendall(said)
            with pytest.raises(MachineError, match=f"the virtual machine paper {why}"):
                host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)
        finally:
            connected.close()
            host.close()


def test_a_port_without_a_machine_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        GuestHost("paper", tmp_path / "none", 1.0)
    assert str(caught.value) == (
        "the port of virtual machine paper ended with status 1: "
        f"nobody is at {tmp_path}/none: No such file or directory"
    )

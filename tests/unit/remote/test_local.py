"""Started commands, and commands in a virtual machine: events, endings, errors."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import until
from labtools import processes

from tailtap.base.errors import MachineError
from tailtap.remote import CommandFailed, agent
from tailtap.remote.guest import GuestHost
from tailtap.remote.local import LocalHost, Process
from tailtap.remote.mux import HELLO, encode

PATIENCE_SECONDS = 200.0
UNTIL_INTERRUPTED = """
import json, signal, sys
def stop(*_):
    print(json.dumps({"event": "done", "seen": 3}), flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
print("some chatter", flush=True)
print(json.dumps({"event": "ready"}), flush=True)
while True:
    signal.pause()
"""


@contextmanager
def python(code: str) -> Iterator[Process]:
    process = Process([sys.executable, "-c", code], "the child")
    try:
        yield process
    finally:
        process.close()


def test_events_and_a_polite_end() -> None:
    with python(UNTIL_INTERRUPTED) as child:
        assert child.expect("ready", PATIENCE_SECONDS) == {"event": "ready"}
        assert not child.ended
        child.interrupt()
        assert child.expect("done", PATIENCE_SECONDS)["seen"] == 3
        child.close()
        assert child.ended


def test_a_child_can_be_interrupted_though_we_are_in_a_shell_s_background() -> None:
    """There SIGINT is ignored, which children inherit."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = Process(["sh", "-c", "echo ready; exec sleep 60"], "the child")
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert child.read_line(PATIENCE_SECONDS) == "ready"
        child.interrupt()
        child.wait(PATIENCE_SECONDS)
        assert child.status == -signal.SIGINT
    finally:
        child.close()


TELLS = "import sys; print('tailtap: no such\\n interface', file=sys.stderr); sys.exit(3)"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (TELLS, "the child ended with status 3: no such interface"),
        ("import os; os.kill(os.getpid(), 9)", "the child was ended by SIGKILL"),
    ],
)
def test_an_early_end_is_explained(code: str, said: str) -> None:
    with python(code) as child, pytest.raises(MachineError) as caught:
        child.expect("ready", PATIENCE_SECONDS)
    assert str(caught.value) == said


def test_waiting_ends() -> None:
    with python("import signal; signal.pause()") as child:
        with pytest.raises(MachineError, match=r"no 'ready' event within 0\.1 s"):
            child.expect("ready", 0.1)
        assert not child.ended


def test_a_child_that_does_not_listen_is_ended() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('{\"event\": 1}',"
    with python(f"{code} flush=True); signal.pause()") as child:
        child.read_line(PATIENCE_SECONDS)
        child.interrupt()
        child.close()
        assert child.ended


def test_an_object_over_several_lines() -> None:
    with python("import json; print(json.dumps({'a': [1, 2]}, indent=2))") as child:
        assert child.read_object(PATIENCE_SECONDS) == {"a": [1, 2]}
    with python("print('nothing')") as child, pytest.raises(MachineError, match="status 0"):
        child.read_object(PATIENCE_SECONDS)


def test_more_errors_than_a_pipe_holds_do_not_block() -> None:
    code = "import sys; sys.stderr.write('x' * 1_000_000); print('{\"event\": \"ready\"}')"
    with python(code) as child:
        child.expect("ready", PATIENCE_SECONDS)


def test_available_lines() -> None:
    with python("import signal; print('a\\nb\\nc', end='', flush=True); signal.pause()") as child:
        lines: list[str] = []
        while len(lines) < 2:
            lines += child.read_available() or []
        assert lines == ["a", "b"]


def test_commands_fail_with_one_line() -> None:
    host = LocalHost()
    with pytest.raises(CommandFailed) as caught:
        host.run(["sh", "-c", "echo one >&2; echo two >&2; exit 5"])
    assert str(caught.value).endswith("failed: one two")
    assert host.run(["sh", "-c", "exit 5"], check=False).status == 5
    assert host.run(["cat"], stdin="hello").stdout == "hello"
    with pytest.raises(MachineError, match="no-such-program is missing"):
        host.run(["no-such-program"])


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
    lost = machine.host.start(["sh", "-c", f"echo ready; {words} & {words}"])
    assert lost.read_line(PATIENCE_SECONDS) == "ready"
    assert until(lambda: len(processes(words)) >= 2)
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
    script = f"trap '' TERM HUP; echo ready; {words} & {words}"
    running = machine.host.start(["sh", "-c", script])
    assert running.read_line(PATIENCE_SECONDS) == "ready"
    assert until(lambda: len(processes(words)) >= 2)
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

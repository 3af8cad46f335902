"""The agent of virtual machines, in a process of its own: commands, files, and its end."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import sleeps

from tailtap.base.errors import MachineError
from tailtap.remote import agent
from tailtap.remote.agent import DRAFT, ERR, IN, OUT
from tailtap.remote.connection import Connection
from tailtap.remote.mux import WINDOW_BYTES, Channel, Handler, Json

PATIENCE_SECONDS = 200.0
ENVIRONMENT = {"PATH": os.environ["PATH"]}
STARTED = """
import os, sys
port = os.open("/dev/null", os.O_RDONLY)
os.dup2(int(sys.argv.pop(1)), port)
sys.argv[1:1] = ["/proc/self/fd/" + str(port)]
"""


@dataclass
class Far:
    connection: Connection
    process: subprocess.Popen[bytes]
    end: socket.socket

    def run(self, *command: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        ran = self.connection.run(command, ENVIRONMENT, stdin, deadline())
        return ran.status, bytes(ran.out), bytes(ran.err)

    def start(self, *command: str, reads: bool = True) -> tuple[Channel, Said]:
        said = Said(reads=reads)
        channel = self.connection.open(
            "command", said, command=list(command), environment=ENVIRONMENT
        )
        return channel, said

    def wait(self, done: Callable[[], bool]) -> None:
        self.connection.wait(done, deadline())


class Said(Handler):
    def __init__(self, *, reads: bool) -> None:
        self.reads = reads
        self.streams = {OUT: b"", ERR: b""}
        self.result: Json | None = None

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        self.streams[stream] += data
        if self.reads:
            channel.grant(len(data), stream)

    def closed(self, channel: Channel, result: Json) -> None:
        self.result = result


def deadline() -> float:
    return time.monotonic() + PATIENCE_SECONDS


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    """An agent as in a guest, but on a socket; it becomes `touch` in the end."""
    near_end, far_end = socket.socketpair()
    program = agent.program().replace(
        "import main; main()", "import serve; serve(*[int(sys.argv[1])] * 2)"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(far_end.fileno())]
    with subprocess.Popen(command, pass_fds=[far_end.fileno()]) as process:
        far_end.close()
        connection = Connection(near_end.fileno(), near_end.fileno(), "the agent")
        try:
            yield Far(connection, process, near_end)
        finally:
            near_end.close()
            process.wait(PATIENCE_SECONDS)
            connection.loop.close()


def test_a_command_has_streams_and_a_status(far: Far) -> None:
    assert far.run("true") == (0, b"", b"")
    assert far.run("sh", "-c", "kill -9 $$")[0] == -signal.SIGKILL
    assert far.run("sh", "-c", 'echo "$HOME"') == (0, b"\n", b"")  # nothing but what was given
    assert far.run("tt-none") == (127, b"", b"tt-none: No such file or directory\n")


def test_big_inputs_and_outputs_pass_whole(far: Far) -> None:
    content = os.urandom(1 << 20) * 5
    status, out, err = far.run("tee", "/dev/stderr", stdin=content)
    assert (status, out == content, err == content) == (0, True, True)


def test_input_that_nobody_wants_holds_up_nothing(far: Far) -> None:
    assert far.run("sh", "-c", "exec <&-; echo over", stdin=bytes(1 << 22))[:2] == (0, b"over\n")


def test_output_that_nobody_reads_stops_its_command_and_no_other(far: Far) -> None:
    flood = "for n in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/zero; done; echo done >&2"
    channel, said = far.start("sh", "-c", flood, reads=False)
    far.wait(lambda: len(said.streams[OUT]) == WINDOW_BYTES)
    channel.signal(9999)  # no signal at all
    assert far.run("echo", "still here") == (0, b"still here\n", b"")
    assert (len(said.streams[OUT]), said.result) == (WINDOW_BYTES, None)
    said.reads = True
    channel.grant(WINDOW_BYTES, OUT)
    far.wait(lambda: said.result is not None)
    assert len(said.streams[OUT]) == 8_000_000
    assert (said.streams[ERR], said.result) == (b"done\n", {"exit": 0})


def test_an_end_comes_after_the_last_word(far: Far) -> None:
    """A command is over when nobody can write into its output any more."""
    assert far.run("sh", "-c", "(sleep 0.2; echo late) & echo soon") == (0, b"soon\nlate\n", b"")


def test_garbage_ends_the_agent(far: Far) -> None:
    far.connection.hello(deadline())
    far.end.setblocking(True)
    far.end.sendall(b"raving\n")
    assert far.process.wait(PATIENCE_SECONDS) == 0


def test_a_stopped_agent_is_waited_for_only_so_long(far: Far) -> None:
    far.connection.hello(deadline())
    os.kill(far.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            far.connection.run(["true"], ENVIRONMENT, b"", time.monotonic() + 0.2)
    finally:
        os.kill(far.process.pid, signal.SIGCONT)
    assert far.run("echo", "back") == (0, b"back\n", b"")


def test_it_sleeps_while_nothing_is_asked(far: Far) -> None:
    assert far.run("true")[0] == 0
    assert sleeps(far.process.pid)


def test_files_go_and_come_with_their_bytes(far: Far, tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 3 + b"end"
    (tmp_path / "here").write_bytes(content)
    far.connection.put(tmp_path / "here", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == content
    far.connection.get(tmp_path / "there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    (tmp_path / "empty").touch()
    far.connection.get(tmp_path / "empty", tmp_path / "empty too")
    far.connection.put(tmp_path / "empty", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b""
    assert not list(tmp_path.glob(f"*{DRAFT}"))


def test_files_that_cannot_be_are_one_line(far: Far, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"x")
    get, put = far.connection.get, far.connection.put
    here, there, pipe = tmp_path / "here", tmp_path / "there", tmp_path / "pipe"
    os.mkfifo(pipe)
    cases: dict[str, Callable[[], None]] = {
        f"{tmp_path}/none: No such file or directory": lambda: get(tmp_path / "none", there),
        f"{tmp_path}: this is no file": lambda: get(tmp_path, there),
        f"{pipe}: this is no file": lambda: get(pipe, there),
        f"{pipe}: this is no file ": lambda: put(here, pipe),
        f"{tmp_path}/no/a: No such file or directory": lambda: put(here, tmp_path / "no/a"),
    }
    for why, attempt in cases.items():
        with pytest.raises(MachineError) as caught:
            attempt()
        assert str(caught.value) == why.strip()
    # Room for nothing, as on a full disk.
    resource.prlimit(far.process.pid, resource.RLIMIT_FSIZE, (0, 0))
    with pytest.raises(MachineError) as caught:
        put(here, there)
    assert str(caught.value) == f"{there}: File too large"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "pipe"]
    assert far.run("true")[0] == 0


def test_a_file_that_arrives_damaged_is_not_kept(far: Far, tmp_path: Path) -> None:
    said = Said(reads=True)
    wrong = hashlib.sha256(b"something else").hexdigest()
    path = tmp_path / "there"
    channel = far.connection.open("put", said, path=str(path), sha256=wrong)
    channel.send(b"something", IN)
    channel.end(IN)
    far.wait(lambda: said.result is not None)
    assert said.result is not None
    assert said.result["error"].startswith(f"{path}: its checksum is wrong")
    half = far.connection.open("put", said, path=str(path), sha256=wrong)
    half.send(b"some")
    assert far.run("true")[0] == 0
    half.abandon()
    assert far.run("true")[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_it_needs_the_standard_library_only() -> None:
    asked = agent.program().replace("main()", "print(*{one.split('.')[0] for one in sys.modules})")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", asked], capture_output=True, text=True, check=True
    )
    others = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"__main__", "tailtap"}
    assert others <= {"_distutils_hack"}, others


def test_its_own_program_waits_for_a_host_and_becomes_the_last_command(tmp_path: Path) -> None:
    """As in a guest: a device that is opened by its path, here one end of a terminal."""
    controller, device = os.openpty()
    with os.fdopen(device, "rb", buffering=0) as held:
        subprocess.run(["stty", "raw", "-echo"], stdin=held, check=True)
        path = os.ttyname(device)
        command = [sys.executable, "-I", "-S", "-c", agent.program(), path, "/bin/echo", "over"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            connection = Connection(controller, controller, "the agent")
            ran = connection.run(["echo", "hello"], ENVIRONMENT, b"", deadline())
            assert (ran.status, bytes(ran.out)) == (0, b"hello\n")
            connection.close()
            held.close()
            os.close(controller)
            assert process.stdout is not None
            assert process.stdout.read() == b"over\n"

"""The serving end of a stream: commands and files for channels.

A command is a child process, with its streams, signals and exit status.

Opened with ``{"command": WORDS, "environment": {NAME: VALUE}}``, closed with ``{"exit": STATUS}``,
negative for a signal. Stream 0 is its standard input, stream 1 its output and stream 2 its errors.

A command dies with its channel, and all of its session with it.

Files are whole or not there: each is compared with its checksum. A channel of kind ``get``, opened
with ``{"path"}``, sends the bytes of the file on stream 0, and is closed with ``{"sha256"}`` of
them. One of kind ``put``, opened with ``{"path", "sha256"}``, takes them, and is closed when the
file is there under its name. What cannot be done is ``{"error"}``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.remote.loop import READ_BYTES, Link, Loop
from tailtap.remote.mux import PIECE, STATUS, Channel, Handler, Json, Mux

if TYPE_CHECKING:
    from hashlib import _Hash

IN, OUT, ERR = 0, 1, 2
PIPE_BYTES = 32_768
MISSING = 127
"""What a shell says of a command that is not there."""


class Commands:
    """The children of a process."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._running: dict[int, Command] = {}

    def serve(self, channel: Channel, content: Json) -> Handler:
        """Start a command for a channel."""
        words = [str(word) for word in content["command"]]
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        ours = [pipes[IN][1], pipes[OUT][0], pipes[ERR][0]]
        theirs = [pipes[IN][0], pipes[OUT][1], pipes[ERR][1]]
        try:
            pid = os.posix_spawnp(
                words[0],
                words,
                content["environment"],
                file_actions=[(os.POSIX_SPAWN_DUP2, one, n) for n, one in enumerate(theirs)],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
            )
        except OSError as error:
            for descriptor in ours:
                os.close(descriptor)
            channel.send(f"{words[0]}: {error.strerror}\n".encode(), ERR)
            channel.close(exit=MISSING)
            return Handler()
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        command = self._running[pid] = Command(self._loop, channel, pid, ours)
        return command

    def reap(self) -> None:
        """Take note of the ends of all children; orphans that this process was given have none."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self._running.pop(pid, None)
            if command is not None:
                command.exited(os.waitstatus_to_exitcode(status))


class Command(Handler):
    """A child process."""

    def __init__(self, loop: Loop, channel: Channel, pid: int, pipes: list[int]) -> None:
        self._loop, self._channel, self._pid = loop, channel, pid
        self._pipes = dict(enumerate(pipes))
        self._status: int | None = None
        self._input = bytearray()
        self._input_over = False
        for descriptor in pipes:
            os.set_blocking(descriptor, False)
        for stream in (OUT, ERR):
            self.roomy(channel, stream)

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        self._input += data
        self._feed()

    def ended(self, channel: Channel, stream: int) -> None:
        self._input_over = True
        self._feed()

    def signalled(self, channel: Channel, number: int) -> None:
        if self._status is None:
            with contextlib.suppress(OSError, OverflowError):  # it may be no signal at all
                (os.killpg if number == signal.SIGKILL else os.kill)(self._pid, number)

    def roomy(self, channel: Channel, stream: int) -> None:
        if stream in self._pipes:
            self._loop.watch(self._pipes[stream], reading=lambda: self._relay(stream))

    def closed(self, channel: Channel, result: Json) -> None:
        self.signalled(channel, signal.SIGKILL)
        for stream in list(self._pipes):
            self._forget(stream)

    def exited(self, status: int) -> None:
        """It is gone; what it said may still have to be read."""
        self._status = status
        self._finish()

    def _relay(self, stream: int) -> None:
        room = self._channel.room(stream)
        if not room:
            self._loop.watch(self._pipes[stream])  # until there is some
            return
        try:
            data = os.read(self._pipes[stream], min(room, PIPE_BYTES))
        except BlockingIOError:
            return
        if data:
            self._channel.send(data, stream)
        else:
            self._forget(stream)
            self._channel.end(stream)
            self._finish()

    def _feed(self) -> None:
        if IN not in self._pipes:
            self._used(len(self._input))
            return
        try:
            while self._input:
                self._used(os.write(self._pipes[IN], self._input[:PIPE_BYTES]))
        except BlockingIOError:
            self._loop.watch(self._pipes[IN], writing=self._feed)
            return
        except OSError:  # it does not want more
            self._used(len(self._input))
            self._input_over = True
        self._loop.watch(self._pipes[IN])
        if self._input_over:
            self._forget(IN)

    def _used(self, count: int) -> None:
        del self._input[:count]
        self._channel.grant(count, IN)

    def _finish(self) -> None:
        if self._status is not None and not {OUT, ERR} & self._pipes.keys():
            if IN in self._pipes:
                self._forget(IN)
            self._channel.close(exit=self._status)

    def _forget(self, stream: int) -> None:
        descriptor = self._pipes.pop(stream)
        self._loop.watch(descriptor)
        os.close(descriptor)


DRAFT = ".tt-part-"
"""What the name of a file begins with that has not come as a whole."""
NO_FILE = "this is no file"


class Incoming:
    """A file that comes in pieces. It has its name when it is whole."""

    def __init__(self, path: str) -> None:
        """Raises `OSError` when it cannot be written."""
        self._target = Path(path)
        if self._target.exists() and not self._target.is_file():
            # It would be replaced: a device is no place for a file.
            raise OSError(0, NO_FILE)
        self._draft = self._target.with_name(DRAFT + os.urandom(8).hex())
        self._hash = _sha256()
        self._descriptor = os.open(
            self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )

    def write(self, data: bytes) -> None:
        self._hash.update(data)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def finish(self, sha256: str) -> None:
        """Give it its name. Raises `OSError`, also when it is not what was sent."""
        if self._hash.hexdigest() != sha256:
            raise OSError(0, "its checksum is wrong: it changed meanwhile, or on the way")
        self._draft.rename(self._target)
        os.close(self._descriptor)
        self._descriptor = -1

    def drop(self) -> None:
        """Remove it unless it is finished. May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._draft.unlink()


def checksum(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal digits. Raises `OSError`."""
    found = _sha256()
    descriptor = _open(path)
    try:
        while data := os.read(descriptor, PIECE):
            found.update(data)
    finally:
        os.close(descriptor)
    return found.hexdigest()


def get(channel: Channel, content: Json) -> Handler:
    """Begin to send a file."""
    try:
        return Outgoing(channel, str(content["path"]))
    except OSError as error:
        return _refuse(channel, content, error)


def put(channel: Channel, content: Json) -> Handler:
    """Begin to take a file."""
    try:
        return _Put(str(content["path"]), str(content["sha256"]))
    except OSError as error:
        return _refuse(channel, content, error)


class Outgoing(Handler):
    """A file that is sent as fast as it is taken."""

    def __init__(self, channel: Channel, path: str) -> None:
        self._path = path
        self._hash = _sha256()
        self._descriptor = _open(path)
        self.roomy(channel, 0)

    def roomy(self, channel: Channel, stream: int) -> None:
        while self._descriptor >= 0 and (room := channel.room()):
            try:
                data = os.read(self._descriptor, min(room, PIECE))
            except OSError as error:
                self.closed(channel, {})
                channel.close(error=f"{self._path}: {error.strerror}", status=STATUS)
                return
            self._hash.update(data)
            channel.send(data)
            if not data:
                self.closed(channel, {})
                channel.close(sha256=self._hash.hexdigest())

    def closed(self, channel: Channel, result: Json) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Put(Handler):
    def __init__(self, path: str, sha256: str) -> None:
        self._path, self._sha256 = path, sha256
        self._file = Incoming(path)

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            self._fail(channel, error)
        channel.grant(len(data))

    def ended(self, channel: Channel, stream: int) -> None:
        try:
            self._file.finish(self._sha256)
        except OSError as error:
            self._fail(channel, error)
        else:
            channel.close()

    def closed(self, channel: Channel, result: Json) -> None:
        self._file.drop()

    def _fail(self, channel: Channel, error: OSError) -> None:
        self._file.drop()
        channel.close(error=f"{self._path}: {error.strerror}", status=STATUS)


def _refuse(channel: Channel, content: Json, error: OSError) -> Handler:
    channel.close(error=f"{content['path']}: {error.strerror}", status=STATUS)
    return Handler()


def _open(path: str) -> int:
    # A pipe or a device would keep everybody waiting.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, NO_FILE)
    return descriptor


def _sha256() -> _Hash:
    # Here, as an agent is ready sooner without it.
    from hashlib import sha256

    return sha256()


PAUSE_SECONDS = 0.02
"""How often it looks for a host, which is there before the guest boots."""


def program() -> str:
    """The program for ``python -I -S -c PROGRAM PORT COMMAND…``; the command runs in the end."""
    root = str(Path(__file__).resolve().parents[2])
    return f"import sys; sys.path.append({root!r}); from tailtap.remote.agent import main; main()"


def serve(requests: int, answers: int) -> None:
    """Serve commands and files on open descriptors, which may be one, until the requests end."""
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)  # a command that lives on would keep it open
    loop = Loop()
    commands = Commands(loop)
    woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)

    def reap() -> None:
        os.read(woken, READ_BYTES)
        commands.reap()

    loop.watch(woken, reading=reap)
    mux = Mux({"command": commands.serve, "get": get, "put": put})
    Link(loop, mux, requests, answers)
    while mux.over is None:
        loop.step()


def main() -> None:
    """Serve the port that is named first, then become the command that follows, if there is one."""
    port = os.open(sys.argv[1], os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    waiting = select.poll()
    waiting.register(port, 0)
    while any(event & select.POLLHUP for _, event in waiting.poll(0)):  # no host is there yet
        time.sleep(PAUSE_SECONDS)
    serve(port, port)
    if sys.argv[2:]:
        os.execv(sys.argv[2], sys.argv[2:])

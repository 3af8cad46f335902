"""Commands for channels: a child process each, with its streams, signals and exit status.

Opened with ``{"command": WORDS, "environment": {NAME: VALUE}}``, closed with ``{"exit": STATUS}``,
negative for a signal. Stream 0 is its standard input, stream 1 its output and stream 2 its errors.

A command dies with its channel, and all of its session with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

from tailtap.remote import files
from tailtap.remote.loop import READ_BYTES, Link, Loop
from tailtap.remote.mux import Channel, Handler, Json, Mux

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
        """Write what the process has room for."""
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
        """Tell the end of a process that is gone and has said everything."""
        if self._status is not None and not {OUT, ERR} & self._pipes.keys():
            if IN in self._pipes:
                self._forget(IN)
            self._channel.close(exit=self._status)

    def _forget(self, stream: int) -> None:
        descriptor = self._pipes.pop(stream)
        self._loop.watch(descriptor)
        os.close(descriptor)


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
    mux = Mux({"command": commands.serve, "get": files.get, "put": files.put})
    Link(loop, mux, requests, answers)
    while mux.over is None:
        loop.step()


def _wait_for_host(port: int) -> None:
    waiting = select.poll()
    waiting.register(port, 0)
    while any(event & select.POLLHUP for _, event in waiting.poll(0)):
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Serve the port that is named first, then become the command that follows, if there is one."""
    port = os.open(sys.argv[1], os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    _wait_for_host(port)
    serve(port, port)
    if sys.argv[2:]:
        os.execv(sys.argv[2], sys.argv[2:])

"""Runs inside a virtual machine, as its first process, and there runs what tailtap asks for.

The guest shares this machine's files, so the host's own interpreter runs this file, with nothing
but the standard library: ``python -I -S agent.py PORT…``. Each port is a virtio-serial port that
carries one command at a time, as lines of JSON; bytes are base64:

- to the guest: ``{"session", "command", "environment", "stdin"}`` starts a command, and
  ``{"session", "signal"}`` sends it a signal;
- to the host: ``{"session", "out"}``, ``{"session", "err"}`` and at the end
  ``{"session", "exit"}``, negative for a signal. ``{"hello": true}`` comes first of all, on the
  first port.

A command dies with its port: when the host lets go of it, or asks for another.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from functools import partial

CHUNK = 65536
MISSING = 127
"""What a shell says of a command that is not there."""


class Command:
    """A child process and what it still has to say."""

    def __init__(self, pid: int, session: int, streams: dict[int, str]) -> None:
        """`streams` are the reading ends of its output, each with its name."""
        self.pid = pid
        self.session = session
        self.streams = streams
        self.status: int | None = None


class Port:
    """One virtio-serial port and the command on it."""

    def __init__(self, path: str) -> None:
        """Open the device at `path`; nothing else may have it open."""
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.command: Command | None = None
        self._received = b""

    def send(self, **content: object) -> None:
        """Write one line; it is lost when the host does not listen."""
        line = json.dumps(content).encode() + b"\n"
        while line:
            try:
                line = line[os.write(self.descriptor, line) :]
            except BlockingIOError:
                waiting = select.poll()
                waiting.register(self.descriptor, select.POLLOUT)
                events = waiting.poll()
                if events and events[0][1] & select.POLLHUP:
                    return
            except OSError:
                return

    def receive(self) -> list[dict[str, object]]:
        """The whole lines that are there now."""
        while True:
            try:
                chunk = os.read(self.descriptor, CHUNK)
            except OSError:  # nothing more now, or the host has let go
                break
            if not chunk:
                break
            self._received += chunk
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    @property
    def abandoned(self) -> bool:
        """Whether the host has let go of the port."""
        asked = select.poll()
        asked.register(self.descriptor, 0)
        return any(event & select.POLLHUP for _, event in asked.poll(0))


class Agent:
    """Waits for ports and children; sleeps while there is nothing to do."""

    def __init__(self, ports: list[Port]) -> None:
        """Serve `ports`."""
        self._ports = ports
        self._epoll = select.epoll()
        self._actions: dict[int, Callable[[], None]] = {}
        for port in ports:
            # Edges, not levels: a port that nobody uses is hung up all the time.
            self._epoll.register(port.descriptor, select.EPOLLIN | select.EPOLLET)
            self._actions[port.descriptor] = partial(self._serve, port)
        woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waking)
        self._epoll.register(woken, select.EPOLLIN)
        self._actions[woken] = lambda: self._reap(woken)

    def run(self) -> None:
        """Serve for ever."""
        for port in self._ports:
            self._serve(port)
        self._ports[0].send(hello=True)
        while True:
            for descriptor, _ in self._epoll.poll():
                action = self._actions.get(descriptor)
                if action is not None:
                    action()

    def _serve(self, port: Port) -> None:
        for request in port.receive():
            command = port.command
            if "command" in request:
                self._end(port)
                self._start(port, request)
            elif command is not None and command.session == request.get("session"):
                _kill(command, int(str(request["signal"])))
        if port.command is not None and port.abandoned:
            self._end(port)

    def _start(self, port: Port, request: dict[str, object]) -> None:
        words = [str(word) for word in request["command"]]  # type: ignore[attr-defined]
        session = int(str(request["session"]))
        out, out_child = os.pipe2(os.O_CLOEXEC)
        err, err_child = os.pipe2(os.O_CLOEXEC)
        # A file cannot block the agent, however much the command leaves unread.
        stdin = os.memfd_create("stdin")
        os.write(stdin, base64.b64decode(str(request["stdin"])))
        os.lseek(stdin, 0, os.SEEK_SET)
        try:
            pid = os.posix_spawnp(
                words[0],
                words,
                request["environment"],  # type: ignore[arg-type]
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_DUP2, out_child, 1),
                    (os.POSIX_SPAWN_DUP2, err_child, 2),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE],
            )
        except OSError as error:
            os.close(out)
            os.close(err)
            said = f"{words[0]}: {error.strerror}\n".encode()
            port.send(session=session, err=base64.b64encode(said).decode())
            port.send(session=session, exit=MISSING)
            return
        finally:
            for descriptor in (stdin, out_child, err_child):
                os.close(descriptor)
        port.command = Command(pid, session, {out: "out", err: "err"})
        for descriptor in (out, err):
            self._epoll.register(descriptor, select.EPOLLIN)
            self._actions[descriptor] = partial(self._relay, port, descriptor)

    def _relay(self, port: Port, descriptor: int) -> None:
        command = port.command
        assert command is not None
        chunk = os.read(descriptor, CHUNK)
        if chunk:
            name = command.streams[descriptor]
            port.send(session=command.session, **{name: base64.b64encode(chunk).decode()})
            return
        self._forget(command, descriptor)
        self._finish(port)

    def _reap(self, woken: int) -> None:
        os.read(woken, CHUNK)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for port in self._ports:  # orphans that are reaped here belong to none
                if port.command is not None and port.command.pid == pid:
                    port.command.status = os.waitstatus_to_exitcode(status)
                    self._finish(port)

    def _finish(self, port: Port) -> None:
        """Tell the end of a command that is gone and has said everything."""
        command = port.command
        if command is not None and command.status is not None and not command.streams:
            port.send(session=command.session, exit=command.status)
            port.command = None

    def _end(self, port: Port) -> None:
        command, port.command = port.command, None
        if command is not None:
            _kill(command, signal.SIGKILL)
            for descriptor in list(command.streams):
                self._forget(command, descriptor)

    def _forget(self, command: Command, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        del self._actions[descriptor], command.streams[descriptor]
        os.close(descriptor)


def _kill(command: Command, number: int) -> None:
    if command.status is None:
        # The whole session at the end, the process alone for what it is asked to do.
        (os.killpg if number == signal.SIGKILL else os.kill)(command.pid, number)


if __name__ == "__main__":
    Agent([Port(path) for path in sys.argv[1:]]).run()

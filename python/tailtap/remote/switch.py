"""Lets many processes open channels to one agent.

``python -m tailtap.remote.switch PORT SOCKET`` is a process for each virtual machine. PORT is the
socket of its port, which one process can hold. Whoever connects to SOCKET has channels of its own
there, as if it was alone with the agent, and those end with its connection. Frames pass as they
are but for the numbers of their channels; windows are between the ends, so that nothing more than
these is ever kept here.

The switch ends when the machine does, with all connections to it.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable

from tailtap.remote.loop import READ_BYTES, Loop
from tailtap.remote.mux import (
    CLOSE,
    HELLO,
    OPEN,
    PROTOCOL,
    Decoder,
    Frame,
    ProtocolError,
    as_bytes,
    encode,
)


class Side:
    """A connection: whole frames in, frames out."""

    def __init__(
        self,
        loop: Loop,
        connected: socket.socket,
        took: Callable[[Frame], None],
        over: Callable[[], None],
    ) -> None:
        """`took` is called with each frame that comes, `over` when no more can come."""
        self._loop, self._socket, self._took, self._over = loop, connected, took, over
        self._decoder = Decoder()
        self._sending = bytearray()
        self.open = True
        connected.setblocking(False)
        loop.watch(connected.fileno(), reading=self._read)

    def send(self, frame: Frame) -> None:
        """Send a frame, now or as soon as there is room."""
        if self.open:
            self._sending += encode(*frame)
            self._flush()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._loop.watch(self._socket.fileno())
            self._socket.close()

    def _read(self) -> None:
        try:
            received = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        try:
            for frame in self._decoder.feed(received):
                self._took(frame)
        except ProtocolError as error:
            print(f"a port {error}", file=sys.stderr)
            received = b""
        if not received:
            self.close()
            self._over()

    def _flush(self) -> None:
        try:
            while self._sending:
                del self._sending[: self._socket.send(self._sending)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone: its end comes by reading
            self._sending.clear()
        if self.open:
            writing = self._flush if self._sending else None
            self._loop.watch(self._socket.fileno(), reading=self._read, writing=writing)


class Client:
    """Somebody who has channels."""

    def __init__(self, loop: Loop, connected: socket.socket, switch: Switch) -> None:
        self.side = Side(
            loop,
            connected,
            lambda frame: switch.ask(self, frame),
            lambda: switch.forget(self),
        )
        self.channels: dict[int, int] = {}
        """The numbers of its channels at the agent, by its own."""


class Switch:
    """One agent, and who has channels to it."""

    def __init__(self, port: socket.socket, listening: socket.socket) -> None:
        """The agent is at `port`; others connect to `listening`."""
        self.over = False
        self._loop = Loop()
        self._listening = listening
        self._clients: list[Client] = []
        self._channels: dict[int, tuple[Client, int]] = {}
        self._hello: Frame | None = None
        self._last = 0
        listening.setblocking(False)
        self._loop.watch(listening.fileno(), reading=self._accept)
        self._agent = Side(self._loop, port, self._told, self._ended)
        self._agent.send(Frame(HELLO, 0, 0, as_bytes({"protocol": PROTOCOL})))

    def run(self) -> None:
        """Pass frames on until the agent is gone."""
        while not self.over:
            self._loop.step()

    def ask(self, client: Client, frame: Frame) -> None:
        """Pass on what a client says to the agent."""
        if frame.kind == HELLO:
            return
        if frame.kind == OPEN:
            self._last += 1
            self._channels[self._last] = client, frame.channel
            client.channels[frame.channel] = self._last
        number = client.channels.get(frame.channel)
        if number is not None:  # else it is over, which the client is about to hear
            self._agent.send(frame._replace(channel=number))

    def forget(self, client: Client) -> None:
        """End the channels of a client that is gone."""
        self._clients.remove(client)
        for number in client.channels.values():
            self._agent.send(Frame(CLOSE, 0, number, b"{}"))

    def _accept(self) -> None:
        try:
            connected, _ = self._listening.accept()
        except OSError:  # whoever wanted to connect has left
            return
        client = Client(self._loop, connected, self)
        self._clients.append(client)
        if self._hello is not None:
            client.side.send(self._hello)

    def _told(self, frame: Frame) -> None:
        if frame.kind == HELLO:
            self._hello = frame
            for client in self._clients:
                client.side.send(frame)
        elif frame.channel in self._channels:
            client, number = self._channels[frame.channel]
            client.side.send(frame._replace(channel=number))
            if frame.kind == CLOSE:
                del self._channels[frame.channel], client.channels[number]

    def _ended(self) -> None:
        self.over = True
        for client in self._clients:
            client.side.close()


def main() -> None:
    """Switch until the agent is gone."""
    path, place = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as port, socket.socket(socket.AF_UNIX) as listening:
        try:
            port.connect(path)
        except OSError as error:
            sys.exit(f"nobody is at {path}: {error.strerror}")
        listening.bind(place)
        listening.listen()
        print(json.dumps({"event": "ready"}), flush=True)
        Switch(port, listening).run()


if __name__ == "__main__":
    main()

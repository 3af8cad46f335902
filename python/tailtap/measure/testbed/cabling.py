"""``python -m tailtap.measure.testbed.cabling``: packets by the cards of this machine, and heard.

Its input is lines of JSON. The first one names the cards, ``{"cards": […]}``, which are lent to a
network namespace of their own until the input ends; the answer is ``{"ready", "kernel", "down",
"stamping"}`` with the cards that carry nothing, and by card whether it stamps what it receives.
Then ``{"send": CARD, "token": TEXT}`` is answered by ``{}``, and
``{"hear": true}`` by ``{"heard": {CARD: [TEXT, …]}}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial

from tailtap.base.errors import TailtapError
from tailtap.host.facts.needs import require_root
from tailtap.host.net.inside import inside
from tailtap.host.net.nic import timestamping
from tailtap.lab.instruments.taps.hardware import judge
from tailtap.lab.topology.graph import Graph, Link, Node, Port, Task
from tailtap.lab.topology.graphs import DEFAULT_MTU
from tailtap.lab.topology.lab import Lab
from tailtap.remote.session import Json

ETHERTYPE = 0x88B5
"""For experiments within one's own network (IEEE 802)."""
HEADER = struct.Struct("!6s6sH")
EVERYBODY, NOBODY = b"\xff" * 6, b"\x02tt\x00\x00\x01"
MARK = b"tailtap "
SHORTEST = 60
"""Bytes of a frame without its check sequence."""
UP_SECONDS = 10.0
"""How long a card may take to find somebody at the other end."""
HERE, THERE = "cards", "others"
TASK: Task = "generator"


def graph_of(cards: Sequence[str]) -> Graph:
    """The graph of cards whose other ends nobody knows yet; port `tt-N` is the card N."""
    nodes = (Node(HERE, TASK), Node(THERE, "dut"))
    links = [
        Link((Port(HERE, f"tt-{place}"), Port(THERE, f"tt-{place}")), DEFAULT_MTU, (card, "?"))
        for place, card in enumerate(cards)
    ]
    return Graph(nodes, tuple(links), ())


class Cards:
    """The cards of this machine in a lab, each with a socket that hears all of it."""

    def __init__(self, cards: Sequence[str], lab: Lab) -> None:
        """`lab` is that of `graph_of`. Raises `TailtapError`."""
        self._lab = lab
        self._ports = {card: f"tt-{place}" for place, card in enumerate(cards)}
        namespace = lab.name_of(HERE)
        opened = inside((namespace, partial(_open, port)) for port in self._ports.values())
        self._sockets: Mapping[str, socket.socket] = dict(zip(cards, opened, strict=True))

    def down(self) -> list[str]:
        """The cards that carry nothing after some seconds."""
        deadline = time.monotonic() + UP_SECONDS
        while (broken := self._lab.broken_ports()) and time.monotonic() < deadline:
            time.sleep(0.05)
        named = {one.card for one in broken}
        return [card for card in self._ports if card in named]

    def send(self, card: str, token: str) -> None:
        """Send a frame to everybody by a card that is up."""
        frame = HEADER.pack(EVERYBODY, NOBODY, ETHERTYPE) + MARK + token.encode() + b"\0"
        with contextlib.suppress(
            OSError
        ):  # it is down: nobody will hear it, and that is the answer
            self._sockets[card].send(frame.ljust(SHORTEST, b"\0"))

    def heard(self) -> dict[str, list[str]]:
        """The tokens that came by each card since the last call."""
        return {card: sorted(set(_tokens(one))) for card, one in self._sockets.items()}


def _open(port: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    made.bind((port, ETHERTYPE))
    return made


def _tokens(one: socket.socket) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):  # nothing more is there
        while True:
            frame, (*_, kind, _, _) = one.recvfrom(2048)
            said = frame[HEADER.size :]
            if kind != socket.PACKET_OUTGOING and said.startswith(MARK):
                found.append(said[len(MARK) :].split(b"\0")[0].decode(errors="replace"))
    return found


def serve() -> None:
    """Do what the input asks for until it ends. Raises `TailtapError`."""
    names = json.loads(sys.stdin.readline() or '{"cards": []}')["cards"]
    require_root()
    stamping = {card: _stamping(card) for card in names}
    with Lab(graph_of(names), [TASK]) as lab:
        cards = Cards(names, lab)
        _say({"ready": True, "kernel": os.uname().release, "down": cards.down(),
              "stamping": stamping})  # fmt: skip
        for line in sys.stdin:
            match json.loads(line):
                case {"send": card, "token": token}:
                    cards.send(card, token)
                    _say({})
                case {"hear": True}:
                    _say({"heard": cards.heard()})


def _stamping(card: str) -> str:
    """Whether a card stamps every packet that it receives, and how, or why that is not known."""
    try:
        return judge(timestamping(card)).reason
    except TailtapError as error:
        return str(error)


def _say(message: Json) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    """Serve; an error is one line."""
    try:
        serve()
    except TailtapError as error:
        print(f"tailtap: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

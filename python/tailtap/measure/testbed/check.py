"""`tailtap testbed check`: are all hosts there, and is each cable where the file says?

Every card that the file names sends a frame to everybody, and all others listen. What was heard
where is compared with the cables.

``python -m tailtap.measure.testbed.check`` is what a host does of it. Its input is lines of JSON.
The first one names the cards, ``{"cards": […]}``, which are lent to a network namespace of their
own until the input ends; the answer is ``{"ready", "kernel", "down", "stamping"}`` with the cards
that carry nothing, and by card whether it stamps what it receives. Then ``{"send": CARD, "token":
TEXT}`` is answered by ``{}``, and ``{"hear": true}`` by ``{"heard": {CARD: [TEXT, …]}}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tailtap.base.errors import MachineError, TailtapError
from tailtap.base.locks import wait_until
from tailtap.host.facts.needs import require_root
from tailtap.host.net.inside import inside
from tailtap.host.net.nic import timestamping
from tailtap.host.net.pci import interface_of
from tailtap.lab.instruments.taps.hardware import judge as judge_card
from tailtap.lab.topology.graph import Graph, Link, Node, Port, Task
from tailtap.lab.topology.graphs import DEFAULT_MTU
from tailtap.lab.topology.lab import Lab
from tailtap.measure.testbed.model import Cable, Host, Socket, Testbed
from tailtap.measure.testbed.ssh import SshStation
from tailtap.records.printed import Answer, CableRow, HostRow, TestbedCheckRecord
from tailtap.records.record import Record, Texts, parsed
from tailtap.remote.local import Process
from tailtap.remote.mux import ProtocolError, parse
from tailtap.remote.session import Json

MODULE = "tailtap.measure.testbed.check"
ANSWER_SECONDS = 60.0
"""How long a host may take to lend its cards, and these to come up."""
FLIGHT_SECONDS = 0.2
"""How long a frame may be under way, and an interrupt may wait."""

Heard = Mapping[Socket, frozenset[Socket]]
"""By the card that sent: the cards by which its frame came in."""


class Lent(Record, kw_only=True):
    """What a host says when its cards are lent."""

    kernel: str
    down: Texts
    stamping: dict[str, str]


class Came(Record, kw_only=True):
    """What a host says of frames that came in."""

    heard: dict[str, Texts]


def check(testbed: Testbed, tell: Callable[[str], None]) -> TestbedCheckRecord:
    """Send packets over every cable. The cards are lent meanwhile, and given back.

    `tell` is given a line for each host to which an interpreter was copied.
    """
    with contextlib.ExitStack() as stack:
        asked = dict(_asked(testbed, stack, tell))
        hosts = [
            HostRow(name=name, kernel=None, said=one)
            if isinstance(one, str)
            else HostRow(name=name, kernel=one.lent.kernel, said="")
            for name, one in asked.items()
        ]
        there = {name: one for name, one in asked.items() if isinstance(one, _Asked)}
        heard = _heard(testbed, there)
        down = {Socket(name, card) for name, one in there.items() for card in one.lent.down}
        cables = [judge(cable, heard, down, set(there)) for cable in testbed.cables]
        behind = [cable.splitter for cable in testbed.cables if cable.splitter is not None]
        stamping = {
            str(card): there[card.host].lent.stamping[card.card]
            for card in behind
            if card.host in there
        }
    return TestbedCheckRecord(
        hosts=hosts,
        cables=cables,
        stamping=stamping,
        right=all(one.kernel is not None for one in hosts)
        and all(cable.answer == "ok" for cable in cables),
    )


def judge(cable: Cable, heard: Heard, down: set[Socket], there: set[str]) -> CableRow:
    """What was heard of a cable: a pure function. `there` are the hosts that could be asked."""
    answer, said = _judged(cable, heard, down, there)
    splitter = None if cable.splitter is None else str(cable.splitter)
    return CableRow(ends=list(map(str, cable.ends)), splitter=splitter, answer=answer, said=said)


def _judged(cable: Cable, heard: Heard, down: set[Socket], there: set[str]) -> tuple[Answer, str]:
    """The answer, and what is wrong as a sentence without its end; empty when nothing is."""
    one, other = cable.ends
    cards = [*cable.ends, *([] if cable.splitter is None else [cable.splitter])]
    missing = sorted({card.host for card in cards} - there)
    if missing:
        return "unknown", f"{missing[0]} could not be asked"
    for sender, wanted in ((one, other), (other, one)):
        found = heard.get(sender, frozenset())
        if wanted in found:
            continue
        others = sorted(map(str, found - {cable.splitter}))
        if others:
            return "wrong", f"what {sender} sends comes to {' and '.join(others)}"
        lifeless = " and ".join(str(card) for card in cable.ends if card in down)
        more = f"; no link at {lifeless}" if lifeless else ""
        return "dead", f"what {sender} sends comes to nobody{more}"
    splitter = cable.splitter
    if splitter is not None and not any(splitter in heard[end] for end in cable.ends):
        where = sorted(
            {str(card) for end in cable.ends for card in heard[end]} - set(map(str, cards))
        )
        more = f"; {' and '.join(where)} does" if where else ""
        return "wrong", f"{splitter} sees nothing of this cable{more}"
    return "ok", ""


@dataclass(frozen=True)
class _Asked:
    """A host whose cards are lent."""

    process: Process
    cards: list[str]
    lent: Lent

    def ask(self, **question: object) -> Json:
        _tell(self.process, question)
        return _answer(self.process)

    def heard(self) -> Mapping[str, Sequence[str]]:
        """By card, what came in by it."""
        return parsed(self.process.title, self.ask(hear=True), Came, MachineError).heard


def _cards_of(testbed: Testbed, host: str) -> list[str]:
    cards = [card for cable in testbed.cables for card in (*cable.ends, cable.splitter) if card]
    return [card.card for card in cards if card.host == host]


def _asked(
    testbed: Testbed, stack: contextlib.ExitStack, tell: Callable[[str], None]
) -> Iterator[tuple[str, _Asked | str]]:
    """Each host with its cards lent, or why it cannot be asked. All of them work at once."""
    begun: dict[str, Process | str] = {}
    for name, host in testbed.hosts.items():
        try:
            process = _start(name, host, testbed.ssh_config, tell)
            stack.callback(_end, process)
            _tell(process, {"cards": _cards_of(testbed, name)})
            begun[name] = process
        except TailtapError as error:
            begun[name] = str(error)
    for name, one in begun.items():
        if isinstance(one, str):
            yield name, one
            continue
        try:
            lent = parsed(one.title, _answer(one), Lent, MachineError)
            yield name, _Asked(one, _cards_of(testbed, name), lent)
        except TailtapError as error:
            yield name, str(error)


def _start(name: str, host: Host, config: str | None, tell: Callable[[str], None]) -> Process:
    if host.ssh is not None:
        return SshStation(name, host, config, tell).start(MODULE)
    return Process([sys.executable, "-P", "-m", MODULE], name, with_input=True)


def _end(process: Process) -> None:
    process.end_input()
    process.wait(ANSWER_SECONDS)
    process.close()


def _heard(testbed: Testbed, there: Mapping[str, _Asked]) -> Heard:
    found: dict[Socket, frozenset[Socket]] = {}
    for name, one in there.items():
        for card in one.cards:
            sender = Socket(name, card)
            one.ask(send=card, token=str(sender))
    time.sleep(FLIGHT_SECONDS)
    came = [
        (token, Socket(name, card))
        for name, one in there.items()
        for card, tokens in one.heard().items()
        for token in tokens
    ]
    for name, one in there.items():
        for card in one.cards:
            sender = Socket(name, card)
            found[sender] = frozenset(at for token, at in came if token == str(sender))
    return found


def _tell(process: Process, message: Mapping[str, Any]) -> None:
    descriptor = process.input_fileno()
    os.set_blocking(descriptor, True)
    try:
        os.write(descriptor, json.dumps(message).encode() + b"\n")
    except BrokenPipeError as error:
        raise MachineError(process.failure()) from error


def _answer(process: Process) -> Json:
    try:
        line = process.read_line(ANSWER_SECONDS)
    except TimeoutError as error:
        raise MachineError(f"{process.title} does not answer") from error
    if line is None:
        raise MachineError(process.failure())
    try:
        return parse(line.encode())
    except ProtocolError as error:
        raise MachineError(f"{process.title} {error}") from error


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
        wait_until(lambda: not self._lab.broken_ports(), UP_SECONDS, 0.05)
        named = {one.card for one in self._lab.broken_ports()}
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
    given = json.loads(sys.stdin.readline() or '{"cards": []}')["cards"]
    require_root()
    names = list(map(interface_of, given))
    called = dict(zip(names, given, strict=True))
    stamping = {called[card]: _stamping(card) for card in names}
    with Lab(graph_of(names), [TASK]) as lab:
        cards = Cards(names, lab)
        down = [called[card] for card in cards.down()]
        _say({"ready": True, "kernel": os.uname().release, "down": down,
              "stamping": stamping})  # fmt: skip
        for line in sys.stdin:
            match json.loads(line):
                case {"send": card, "token": token}:
                    cards.send(names[given.index(card)], token)
                    _say({})
                case {"hear": True}:
                    _say({"heard": {called[card]: one for card, one in cards.heard().items()}})


def _stamping(card: str) -> str:
    """Whether a card stamps every packet that it receives, and how, or why that is not known."""
    try:
        return judge_card(timestamping(card)).reason
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

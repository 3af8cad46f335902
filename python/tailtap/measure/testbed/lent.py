"""The cards of hosts of a testbed, lent for a while: frames, programs of ours, and their counts.

``python -m tailtap.measure.testbed.lent`` is what a host does of it. Its input is lines of JSON.
The first one names the cards, ``{"cards": […]}``, which are lent to a network namespace of their
own until the input ends, the card N as ``tt-N``; the answer is `Lent`. With ``clocks_ns`` the
cards' clocks are read for so long before. Then each line is a question, with an answer of one line:

====================================  ===============================================
``{"send": CARD, "token": TEXT}``     ``{}``
``{"hear": true}``                    ``{"heard": {CARD: [TEXT, …]}}``
``{"counts": true}``                  ``{"counts": {CARD: [received, dropped, sent]}}``
``{"begin": [WORD, …], "event": E}``  ``{"number": N}``, once our program with these
                                      words has printed the event E, if one is named
``{"end": N, "within": SECONDS,       ``{"printed": {…}}``, what it printed last; it is
"sends": CARD}``                      interrupted so long after the card, if one is
                                      named, has begun to send
``{"read": FILE}``                    ``{"content": …}``, of a file in ``{folder}``
``{"hand_over": CARD}``               ``{"seconds": …}``, for vfio-pci and back
``{"functions": CARD}``               ``{"number": N, "seconds": …}``, for so many virtual
                                      functions as the card, which was handed over, can have
====================================  ===============================================

What cannot be done is answered by ``{"error": TEXT}``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailtap.base.errors import MachineError, TailtapError
from tailtap.base.locks import wait_until
from tailtap.host.facts import environment
from tailtap.host.facts.needs import require_root
from tailtap.host.net.cards import KEYS
from tailtap.host.net.inside import inside
from tailtap.host.net.namespaces import net_dev
from tailtap.host.net.nic import timestamping
from tailtap.host.net.pci import interface_of
from tailtap.host.net.virtual_functions import (
    FIRST_VLAN,
    Ability,
    VirtualFunction,
    VirtualFunctions,
)
from tailtap.lab.instruments.taps.clock_readings import CardClock, read_clocks
from tailtap.lab.instruments.taps.hardware import judge
from tailtap.lab.topology.graph import Graph, Link, Node, Port, Task
from tailtap.lab.topology.graphs import DEFAULT_MTU
from tailtap.lab.topology.lab import Lab
from tailtap.measure.testbed.model import Host, Testbed
from tailtap.measure.testbed.ssh import SshStation
from tailtap.records.machine import Nic
from tailtap.records.record import Count, Number, Record, Texts, as_json, parsed
from tailtap.remote.local import STOP_SECONDS, Process
from tailtap.remote.mux import ProtocolError, parse
from tailtap.remote.session import Json

MODULE = "tailtap.measure.testbed.lent"
ANSWER_SECONDS = 180.0
"""How long a host may take to read clocks, to lend its cards, and to have them come up."""


class Lent(Record, kw_only=True):
    """What a host says when its cards are lent."""

    kernel: str
    down: Texts
    stamping: dict[str, str]
    """By card, whether it stamps every packet that it receives, and how, or why not."""
    able: list[str] = []
    """The cards that do."""
    nics: dict[str, Nic] = {}
    clocks: list[CardClock] = []


class Reply(Record, kw_only=True):
    """What a host answers to a question; each field is of one of them."""

    error: str | None = None
    heard: dict[str, Texts] = {}
    counts: dict[str, tuple[Count, Count, Count]] = {}
    number: Count = 0
    printed: dict[str, Any] = {}
    content: str = ""
    seconds: Number = 0


@dataclass(frozen=True)
class LentHost:
    """A host whose cards are lent."""

    process: Process
    cards: list[str]
    lent: Lent

    def ask(self, **question: object) -> Reply:
        """Its answer. Raises `MachineError`."""
        _tell(self.process, question)
        answer = parsed(self.process.title, _answer(self.process), Reply, MachineError)
        if answer.error is not None:
            raise MachineError(answer.error).at(self.process.title)
        return answer

    def port(self, card: str) -> str:
        """What a card is called in its namespace."""
        return f"tt-{self.cards.index(card)}"


def lend(
    testbed: Testbed,
    stack: contextlib.ExitStack,
    tell: Callable[[str], None],
    clocks_ns: int | None = None,
) -> Iterator[tuple[str, LentHost | str]]:
    """Each host with its cards lent until `stack` is closed, or why it cannot be asked. All of them
    work at once. `tell` is given a line for each host to which an interpreter was copied.
    """
    begun: dict[str, Process | str] = {}
    for name, host in testbed.hosts.items():
        try:
            process = _start(name, host, testbed.ssh_config, tell)
            stack.callback(_end, process)
            _tell(process, {"cards": _cards_of(testbed, name), "clocks_ns": clocks_ns})
            begun[name] = process
        except TailtapError as error:
            begun[name] = str(error)
    for name, one in begun.items():
        if isinstance(one, str):
            yield name, one
            continue
        try:
            lent = parsed(one.title, _answer(one), Lent, MachineError)
            yield name, LentHost(one, _cards_of(testbed, name), lent)
        except TailtapError as error:
            yield name, str(error)


def _cards_of(testbed: Testbed, host: str) -> list[str]:
    cards = [card for cable in testbed.cables for card in (*cable.ends, cable.splitter) if card]
    return [card.card for card in cards if card.host == host]


def _start(name: str, host: Host, config: str | None, tell: Callable[[str], None]) -> Process:
    if host.ssh is not None:
        return SshStation(name, host, config, tell).start(MODULE)
    return Process([sys.executable, "-P", "-m", MODULE], name, with_input=True)


def _end(process: Process) -> None:
    process.end_input()
    process.wait(ANSWER_SECONDS)
    process.close()


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
FUNCTION_MAC = "02:74:74:00:01:01"
"""Of a virtual function that is tried."""
MARK = b"tailtap "
SHORTEST = 60
"""Bytes of a frame without its check sequence."""
UP_SECONDS = 10.0
"""How long a card may take to find somebody at the other end."""
SENDING = 50
"""So many packets are more than those that a kernel sends by itself."""
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


class Programs:
    """Programs of ours among the lent cards, and their files, until the end of the context."""

    def __init__(self, lab: Lab) -> None:
        self._host = lab.host(HERE)
        self._begun: list[tuple[Process, dict[str, list[int]]]] = []
        self._stack = contextlib.ExitStack()
        self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-"))

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, words: Sequence[str], event: str | None) -> int:
        """Its number, once it has printed the event. Raises `MachineError`."""
        before = self.counts()
        named = [word.replace("{folder}", self._folder) for word in words]
        process = self._host.start([*self._host.program, *named])
        self._stack.callback(process.close)
        if event is not None:
            process.expect(event, ANSWER_SECONDS)
        self._begun.append((process, before))
        return len(self._begun) - 1

    def end(self, number: int, within: float, port: str | None) -> Json:
        """What it printed last; it is interrupted `within` s after the port has begun to send.

        Raises `MachineError`.
        """
        process, before = self._begun[number]
        if port is not None:
            wait_until(
                lambda: process.ended or self._sent(process, port) >= before[port][2] + SENDING,
                ANSWER_SECONDS / 2,
                0.02,
            )
        process.wait(within)
        process.interrupt()
        printed = process.read_to_end(STOP_SECONDS).splitlines()
        if not printed:
            raise MachineError(process.failure())
        process.close()
        return parse(printed[-1].encode())

    def content(self, name: str) -> str:
        """A file that one of them wrote, in base64."""
        return base64.b64encode(Path(self._folder, name).read_bytes()).decode()

    def _sent(self, process: Process, port: str) -> int:
        """Packets that a port has sent, where the process is among the cards already."""
        with contextlib.suppress(OSError, KeyError):
            return net_dev(Path(f"/proc/{process.pid}/net/dev").read_text())[port][2]
        return 0

    def counts(self) -> dict[str, list[int]]:
        """By port, packets that it received, those that it or the kernel dropped then, and those
        that it sent.
        """
        return net_dev(self._host.run(["cat", "/proc/self/net/dev"]).stdout)


def serve() -> None:
    """Do what the input asks for until it ends. Raises `TailtapError`."""
    given = json.loads(sys.stdin.readline() or '{"cards": []}')
    require_root()
    names = list(map(interface_of, given["cards"]))
    called = dict(zip(names, given["cards"], strict=True))
    able = {called[card]: _stamping(card) for card in names}
    clocks = [] if given.get("clocks_ns") is None else read_clocks(given["clocks_ns"], names)
    nics = {nic.name: nic for nic in environment.nics()}
    with Lab(graph_of(names), [TASK]) as lab, Programs(lab) as programs:
        cards = Cards(names, lab)
        ready = Lent(
            kernel=os.uname().release,
            down=[called[card] for card in cards.down()],
            stamping={card: reason for card, (_, reason) in able.items()},
            able=[card for card, (can, _) in able.items() if can],
            nics={called[card]: nics.get(card, Nic(name=card)) for card in names},
            clocks=clocks,
        )
        _say({"ready": True, **as_json(ready)})
        for line in sys.stdin:
            try:
                _say(_answered(json.loads(line), called, cards, programs, lab))
            except TailtapError as error:
                _say({"error": str(error)})


def _answered(
    question: Json, called: Mapping[str, str], cards: Cards, programs: Programs, lab: Lab
) -> Json:
    """The answer to one line. Raises `TailtapError`."""
    names = {card: name for name, card in called.items()}
    ports = {card: f"tt-{place}" for place, card in enumerate(names)}
    match question:
        case {"send": card, "token": token}:
            cards.send(names[card], token)
        case {"hear": True}:
            return {"heard": {called[name]: one for name, one in cards.heard().items()}}
        case {"counts": True}:
            counts = programs.counts()
            return {"counts": {card: counts[port] for card, port in ports.items()}}
        case {"begin": words, "event": event}:
            return {"number": programs.begin(words, event)}
        case {"end": number, "within": seconds, "sends": card}:
            port = None if card is None else ports[card]
            return {"printed": programs.end(number, seconds, port)}
        case {"read": name}:
            return {"content": programs.content(name)}
        case {"hand_over": card}:
            began = time.monotonic()
            with lab.handed_over(Port(HERE, ports[card])):
                pass
            return {"seconds": time.monotonic() - began}
        case {"functions": card}:
            return _functions(names[card], lab)
    return {}


def _functions(card: str, lab: Lab) -> Json:
    """Make all virtual functions of a card, and remove them. Raises `MachineError`.

    The first one is set, and becomes a network card, as a port of a DuT does.
    """
    if (count := Ability.of(card).total) == 0:
        return {"number": 0}
    wait_until(lambda: Ability.of(card).carrier is not False, UP_SECONDS, 0.05)
    Ability.of(card).require_driver()
    name = f"tt-{lab.journal.identity}-vf"
    began = time.monotonic()
    with (
        lab.journal.held(VirtualFunctions(card, count, DEFAULT_MTU)),
        lab.journal.held(VirtualFunction(card, 0, name, FUNCTION_MAC, FIRST_VLAN)),
    ):
        pass
    return {"number": count, "seconds": time.monotonic() - began}


def _stamping(card: str) -> tuple[bool, str]:
    """Whether a card stamps every packet that it receives, and how, or why that is not known."""
    try:
        verdict = judge(timestamping(card))
    except TailtapError as error:
        return False, str(error)
    return verdict.method is not None, verdict.reason


def _say(message: Json) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    """Serve; an error is one line."""
    try:
        serve()
    except TailtapError as error:
        said = error.but(remedy=error.remedy.replace(f" in {KEYS}", ""))
        print(f"tailtap: {said}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

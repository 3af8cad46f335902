"""Packets that are damaged, repeated or made up: they change nothing, and nothing ends."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from controlled import PASSWORD, USER, ipmitool, switchable
from pyghmi.ipmi.command import Command

from tailtap.bmc import MACHINES, Machine, controller
from tailtap.bmc.controller import MOST_OPENING, Controller
from tailtap.bmc.serving import BmcEvent
from tailtap.bmc.session import (
    MOST_FAILURES,
    MOST_KEPT,
    WITHIN_NS,
    Attempts,
    Refusal,
    network_of,
    suite_of,
)
from tests.fuzz.mutations import damaged

SEED = 16
PIECE = 1024
SOME, MANY = 10_000, 1_000_000
"""How many packets CI sends, and how many `make test-slow` does."""
NETWORK_FUNCTIONS = (0, 4, 6, 10, 0x2C)
"""Chassis, sensors, application, storage, groups."""


class Recorded(Controller):
    """A controller that keeps what it received."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.packets: list[tuple[bytes, tuple[Any, ...]]] = []
        self.told: Sequence[BmcEvent] = ()
        self._busy = threading.Lock()

    def receive(self, packet: bytes, address: tuple[Any, ...]) -> None:
        with self._busy:
            super().receive(packet, address)
            self.packets.append((packet, address))

    def take(self, packet: bytes, address: tuple[Any, ...]) -> None:
        """Receive a packet that is not kept, while the thread that serves does nothing."""
        with self._busy:
            super().receive(packet, address)

    def last(self) -> tuple[bytes, tuple[Any, ...]]:
        """The last packet, once it is answered."""
        with self._busy:
            return self.packets[-1]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.address.rpartition(":")[2])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    kind = MACHINES["command"]
    return kind.open(kind.Options.model_validate({"name": "m", **switchable(tmp_path)}))


@pytest.fixture
def served(machine: Machine) -> Iterator[Recorded]:
    users: dict[str, str] = {USER: PASSWORD}
    events: list[BmcEvent] = []
    made = Recorded("command:m", machine, ("127.0.0.1", 0), users, events.append)
    made.told = events
    made.start()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def client(served: Recorded) -> Iterator[Command]:
    made = Command("127.0.0.1", USER, PASSWORD, port=served.port)
    try:
        yield made
    finally:
        made.ipmi_session.logout()


def works(served: Recorded) -> None:
    """A client that knows the password is served."""
    done = ipmitool(served.port, "chassis", "power", "status")
    assert (done.returncode, done.stdout) == (0, "Chassis Power is on\n"), done


@pytest.mark.parametrize("count", [SOME, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_damaged_packets_change_nothing(
    served: Recorded, machine: Machine, client: Command, count: int
) -> None:
    """Of each message of two clients, one of which has a session open meanwhile."""
    machine.on()
    works(served)
    assert served.damaged == 0
    client.get_power()
    originals = list(served.packets)
    assert {packet[5] & 0x3F for packet, _ in originals if packet[4] == 6} == {0, 0x10, 0x12, 0x14}
    chance = random.Random(SEED)
    # Not by the socket, where some would be lost.
    for number in range(count):
        packet, address = chance.choice(originals)
        made = damaged(packet, chance) if number % 10 else chance.randbytes(40)
        served.take(made[:PIECE], address)
    assert served.damaged > count // 10
    assert len(served._sessions) <= MOST_OPENING + 3
    assert machine.status() == "on"
    assert client.get_power() == {"powerstate": "on"}
    client.set_bootdev("network")
    assert client.get_bootdev()["bootdev"] == "network"
    works(served)


def test_a_host_that_floods_keeps_out_itself_alone(served: Recorded, machine: Machine) -> None:
    """Of another host each step of a login comes after more beginnings than there is room for."""
    machine.on()
    works(served)
    opening = next(packet for packet, _ in served.packets if packet[5] & 0x3F == 0x10)
    login, others = ("192.0.2.1", 1), ("192.0.2.2", 2)
    served.take(opening, login)
    mine = next(number for number, (one, _) in served._sessions.items() if one.address == login)
    for _ in range(2 * MOST_OPENING):
        served.take(opening, others)
    assert mine in served._sessions and len(served._sessions) <= MOST_OPENING + 1


def test_requests_that_make_no_sense_are_answered(served: Recorded, client: Command) -> None:
    """Of a client that knows the password: any command, any data."""
    chance = random.Random(SEED)
    for _ in range(500):
        answer = client.raw_command(
            netfn=chance.choice(NETWORK_FUNCTIONS),
            command=chance.choice([1, 2, 7, 8, 9, 0x37, 0x48, 0x49, 0x54, 0x59, 0x3B, 0x3C, 0x60]),
            data=chance.randbytes(chance.randrange(8)),
        )
        assert "code" in answer
    client.raw_command(netfn=6, command=0x3B, data=[4])
    assert "powerstate" in client.get_power()
    assert served.damaged == 0


def test_a_repeated_packet_is_not_carried_out_again(
    served: Recorded, machine: Machine, client: Command
) -> None:
    machine.on()
    assert client.set_power("off", wait=10)["powerstate"] == "off"
    after_off = len(served.packets)
    client.set_power("on", wait=10)
    assert machine.status() == "on"
    for packet, address in served.packets[:after_off]:
        served.take(packet, address)
    assert machine.status() == "on"
    # The newest one is answered again, as its answer may have been lost.
    assert len(sent_after(served, *served.last())) == 1
    assert sent_after(served, *served.packets[after_off - 1]) == []
    assert client.get_power() == {"powerstate": "on"}


def sent_after(served: Recorded, packet: bytes, address: tuple[Any, ...]) -> list[bytes]:
    """What the session of a packet sends when that comes from `address`; it reaches nobody."""
    sent: list[bytes] = []
    session = served._sessions[int.from_bytes(packet[6:10], "little")][0]
    with mock.patch.object(session, "send", lambda packet, _: sent.append(packet)):
        served.take(packet, address)
    return sent


def test_a_session_belongs_to_its_address(served: Recorded, client: Command) -> None:
    client.get_power()
    packet, address = served.last()
    assert sent_after(served, packet, ("127.0.0.2", 1)) == []
    assert len(sent_after(served, packet, address)) == 1


class Guesser:
    """A client that tries passwords, message by message."""

    def __init__(self, served: Recorded) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", served.port))
        self.socket.settimeout(5)

    def ask(self, kind: int, payload: bytes) -> bytes:
        """The payload of the answer to a message of RAKP."""
        head = b"\x06\x00\xff\x07\x06" + bytes([kind]) + bytes(8)
        self.socket.send(head + len(payload).to_bytes(2, "little") + payload)
        return self.socket.recv(1024)[16:]

    def open(self) -> bytes:
        """The id of a new session."""
        suite = bytes.fromhex("000000080300000001000008040000000200000801000000")
        return self.ask(0x10, bytes(8) + suite)[8:12]

    def name(self, session: bytes, user: str = USER) -> bytes:
        """What answers the name of a user, with random bytes; its second byte is the status."""
        name = user.encode()
        told = bytes(4) + session + random.randbytes(16) + bytes([0x14, 0, 0, len(name)]) + name
        return self.ask(0x12, told)

    def guess(self, session: bytes) -> int:
        """The status that answers a wrong proof."""
        return self.ask(0x14, bytes(4) + session + bytes(32))[1]


@pytest.fixture
def guesser(served: Recorded) -> Iterator[Guesser]:
    made = Guesser(served)
    with made.socket:
        yield made


def test_a_session_has_one_guess(guesser: Guesser) -> None:
    session = guesser.open()
    assert guesser.name(session)[1] == 0
    assert guesser.guess(session) == Refusal.INTEGRITY
    guesser.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        guesser.name(session)


@pytest.mark.parametrize("user", [USER, "nobody", "a name that is much too long"])
def test_failures_beyond_a_limit_are_not_answered(guesser: Guesser, user: str) -> None:
    """Of a user who is there as of one who is not: nothing tells them apart."""
    sessions = [guesser.open() for _ in range(MOST_FAILURES + 2)]
    proofs = [guesser.name(session, user) for session in sessions]
    assert {(proof[1], len(proof)) for proof in proofs} == {(0, 72)}
    for session in sessions[:MOST_FAILURES]:
        assert guesser.guess(session) == Refusal.INTEGRITY
    guesser.socket.settimeout(0.3)
    for session in sessions[MOST_FAILURES:]:
        with pytest.raises(TimeoutError):
            guesser.guess(session)


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_who_fails_keeps_nobody_out(
    served: Recorded, machine: Machine, guesser: Guesser, user: str
) -> None:
    """Another user of the same machine, who may name the same user."""
    machine.on()
    for _ in range(MOST_FAILURES):
        session = guesser.open()
        guesser.name(session, user)
        guesser.guess(session)
    works(served)


def test_failures_are_told_by_user_and_network() -> None:
    attempts = Attempts()
    least = [attempts.counts(b"a", f"2001:db8::{number}", number) for number in range(7)]
    assert least == [4, 3, 2, 1, 0, -1, -1]
    assert attempts.counts(b"b", "2001:db8::1", 7) == 4
    assert attempts.counts(b"a", "2001:db8:0:1::1", 7) == 4
    assert attempts.counts(b"a", "2001:db8::9", WITHIN_NS + 1) == 1  # the first two are over
    attempts.succeeded(b"a", "2001:db8::ffff")
    assert attempts.counts(b"a", "2001:db8::9", WITHIN_NS + 2) == 4
    for number in range(2 * MOST_KEPT):
        attempts.counts(b"%d" % number, "10.0.0.1", 0)
    assert len(attempts._failures) == MOST_KEPT
    hosts = ("127.0.0.1", "::ffff:127.0.0.1", "fe80::1%eth0", "::1")
    assert [network_of(host) for host in hosts] == [
        "127.0.0.1", "127.0.0.1", "fe80::/64", "::/64",
    ]  # fmt: skip


def test_made_up_names_do_not_fill_the_log(served: Recorded, guesser: Guesser) -> None:
    for number in range(MOST_FAILURES + 3):
        session = guesser.open()
        guesser.name(session, f"user {number}")
        assert guesser.guess(session) == Refusal.INTEGRITY
    assert len(served.told) == MOST_FAILURES
    assert {row.why for row in served.told} == {"there is no such user"}


def test_sessions_end(served: Recorded, client: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    client.get_power()
    assert len(served._sessions) == 1
    monkeypatch.setattr(controller, "IDLE_NS", 0)
    monkeypatch.setattr(controller, "LOOK_SECONDS", 0.01)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"wakes it", ("127.0.0.1", served.port))
    deadline = time.monotonic() + 10
    while served._sessions and time.monotonic() < deadline:
        time.sleep(0.02)
    assert served._sessions == {}


def test_as_many_are_served_as_there_is_room_for(
    served: Recorded, monkeypatch: pytest.MonkeyPatch, client: Command
) -> None:
    monkeypatch.setattr(controller, "MOST_SESSIONS", 1)
    done = ipmitool(served.port, "chassis", "power", "status")
    assert "insufficient resources for session" in done.stderr
    assert client.get_power() == {"powerstate": "off"}


@pytest.mark.parametrize(
    ("algorithms", "lengths", "fits"),
    [((3, 4, 1), (8, 8, 8), True), ((0, 0, 0), (0, 0, 0), True), ((3, 4, 1), (8, 0, 8), True),
     ((1, 1, 1), (8, 8, 8), False), ((0, 0, 0), (8, 8, 8), False), ((3, 4, 0), (8, 8, 8), False)],
)  # fmt: skip
def test_only_suite_17_fits(
    algorithms: tuple[int, ...], lengths: tuple[int, ...], fits: bool
) -> None:
    parts = [
        bytes([kind, 0, 0, length, algorithm, 0, 0, 0])
        for kind, (algorithm, length) in enumerate(zip(algorithms, lengths, strict=True))
    ]
    assert suite_of(b"".join(parts)) == fits
    assert not suite_of(b"".join(parts[1:]))

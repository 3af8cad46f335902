"""One session of a client with a controller: how it is opened, what keeps it, what it may ask.

IPMI 2.0, revision 1.1, chapter 13: RAKP with HMAC-SHA256 (13.28), packets with HMAC-SHA256-128 and
AES-CBC-128 (cipher suite 17, table 22-20).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import struct
from collections import deque
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tailtap.bmc.packets import CODE_BYTES, HEAD, Keys, Kind, Request, frame

if TYPE_CHECKING:
    from tailtap.bmc.controller import Controller

SUITE = 17
ALGORITHMS = (3, 4, 1)
"""RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128: what suite 17 is; tables 13-17 to 13-19."""
USER, OPERATOR, ADMINISTRATOR = 2, 3, 4
"""Privileges; table 6-1."""
LAST_SEQUENCE = 0xFFFFFFFF


class Refusal(IntEnum):
    """Why a session is refused; table 13-15."""

    NO_ROOM = 0x01
    PRIVILEGE = 0x09
    INTEGRITY = 0x0F
    NO_SUITE = 0x11


class Completion(IntEnum):
    """Why a request is not carried out; table 5-2."""

    DONE = 0x00
    UNKNOWN_PARAMETER = 0x80
    BUSY = 0xC0
    UNKNOWN = 0xC1
    LENGTH = 0xC7
    FIELD = 0xCC
    PRIVILEGE = 0xD4
    STATE = 0xD5
    FAILED = 0xFF
    NOT_THAT_SESSION = 0x87
    NOT_THAT_PRIVILEGE = 0x81


def suite_of(proposal: bytes) -> bool:
    """Whether cipher suite 17 answers a client's proposal of algorithms, 24 bytes.

    Each of three parts has its length in its fourth byte; a length of 0 leaves the choice to us.
    """
    parts = [proposal[at : at + 8] for at in (0, 8, 16)]
    return all(
        len(part) == 8 and part[0] == kind and (part[3] == 0 or part[4] & 0x3F == wanted)
        for kind, (part, wanted) in enumerate(zip(parts, ALGORITHMS, strict=True))
    )


def refusal(request: bytes, why: Refusal) -> bytes:
    """The answer to the opening `request` of a session that is not opened."""
    return bytes([request[0], why, 0, 0]) + request[4:8]


class Session:
    """A session, from its opening on."""

    def __init__(
        self, controller: Controller, address: tuple[Any, ...], request: bytes, number: int
    ) -> None:
        """Answer the opening `request`, 32 bytes, with the session id `number`."""
        self.controller, self.address, self.number = controller, address, number
        self.send = controller.send
        self.established = False
        self.username = b""
        self.privilege = self._most = USER
        self._client = request[4:8]
        self._proof: tuple[bytes, bytes, bytes, int] | None = None
        """The password, the random bytes of the client and ours, and the role."""
        self._keys: Keys | None = None
        self._newest, self._sequence = 0, 0
        """The number of the newest packet of the client, and of ours."""
        self._answered: bytes | None = None
        self._answer = b""
        answer = bytes([request[0], 0, ADMINISTRATOR, 0]) + self._ids
        for kind, algorithm in enumerate(ALGORITHMS):
            answer += bytes([kind, 0, 0, 8, algorithm, 0, 0, 0])
        self._send(frame(Kind.OPEN_RESPONSE, answer))

    def receive(self, packet: bytes) -> None:
        """Answer a packet of the session, of 16 bytes or more."""
        if packet == self._answered:
            # A client that missed the answer asks again. It is not carried out again.
            self.send(self._answer, self.address)
            return
        before, kind = self._answer, packet[5] & 0x3F
        if kind == Kind.RAKP1:
            self._got_rakp1(packet[HEAD:])
        elif kind == Kind.RAKP3:
            self._got_rakp3(packet[HEAD:])
        else:
            self._got_message(packet)
        if self._answer is not before:
            self._answered = packet

    def _got_rakp1(self, data: bytes) -> None:
        """The client names itself; we prove that we know its password."""
        if self.established or len(data) < 28 or len(data) < 28 + data[27]:
            return
        role, name = data[24], data[28 : 28 + data[27]]
        if not USER - 1 <= role & 0x0F <= ADMINISTRATOR:
            self._refuse(Kind.RAKP2, data[0], Refusal.PRIVILEGE)
            return
        self.username = name
        # Of a user who is not there it is one that nobody knows: the answers are the same.
        password = self.controller.password_of(name)
        theirs, ours = data[8:24], os.urandom(16)
        self._proof = (password, theirs, ours, role)
        guid = self.controller.uuid.bytes
        code = _code(password, self._ids + theirs + ours + guid + self._named(role))
        answer = bytes([data[0], 0, 0, 0]) + self._client + ours + guid + code
        self._send(frame(Kind.RAKP2, answer))

    def _got_rakp3(self, data: bytes) -> None:
        """The client proves that it knows its password; the keys of the session follow from it."""
        if self.established or self._proof is None or len(data) < 8:
            return
        password, theirs, ours, role = self._proof
        proof = _code(password, ours + self._client + self._named(role))
        # A client that does not believe our proof has another password, too.
        if data[1] != 0 or not hmac.compare_digest(proof, data[8:]):
            if self.controller.login_failed(self, "the password is wrong"):
                self._refuse(Kind.RAKP4, data[0], Refusal.INTEGRITY)
            else:
                self.controller.close_session(self)
            return
        key = _code(password, theirs + ours + self._named(role))
        self._keys = Keys(_code(key, b"\x01" * 20), _code(key, b"\x02" * 20)[:16])
        code = _code(key, theirs + self._id + self.controller.uuid.bytes)
        answer = bytes([data[0], 0, 0, 0]) + self._client + code[:CODE_BYTES]
        self._send(frame(Kind.RAKP4, answer))
        self._most = role & 0x0F
        self.privilege = min(USER, self._most)
        self.established = True
        self.controller.login_succeeded(self)

    def _got_message(self, packet: bytes) -> None:
        """Answer a message of who opened the session, if it is newer than all others."""
        sequence: int = struct.unpack_from("<I", packet, 10)[0]
        if self._keys is None or sequence <= self._newest:
            return
        message = self._keys.opened(packet)
        request = Request.read(message) if message is not None else None
        if request is None:
            return
        self._newest = sequence
        code, data = self._ask(request)
        self._sequence = self._sequence % LAST_SEQUENCE + 1
        client: int = struct.unpack("<I", self._client)[0]
        self._send(self._keys.seal(request.answer(code, data), client, self._sequence))

    def _ask(self, request: Request) -> tuple[int, bytes]:
        """Do what concerns the session, and hand on what concerns the machine."""
        asked, data = (request.function, request.command), request.data
        if asked == (6, 0x3B):  # set session privilege level
            if len(data) != 1:
                return Completion.LENGTH, b""
            if data[0] & 0x0F > self._most:
                return Completion.NOT_THAT_PRIVILEGE, b""
            self.privilege = data[0] & 0x0F or self.privilege
            return Completion.DONE, bytes([self.privilege])
        if asked == (6, 0x3C):  # close session
            if data != self._id:
                return Completion.NOT_THAT_SESSION, b""
            self.controller.close_session(self)
            return Completion.DONE, b""
        return self.controller.ask(request, self)

    @property
    def challenged(self) -> bool:
        """Whether the client has our proof and has not sent its own."""
        return not self.established and self._proof is not None

    @property
    def _id(self) -> bytes:
        return struct.pack("<I", self.number)

    @property
    def _ids(self) -> bytes:
        return self._client + self._id

    def _named(self, role: int) -> bytes:
        return bytes([role, len(self.username)]) + self.username

    def _refuse(self, kind: Kind, tag: int, why: Refusal) -> None:
        """Say why, and end the session: who tries again has to open another one."""
        self._send(frame(kind, bytes([tag, why, 0, 0]) + self._client))
        self.controller.close_session(self)

    def _send(self, packet: bytes) -> None:
        self._answer = packet
        self.send(packet, self.address)


def _code(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)


MOST_FAILURES = 5
WITHIN_NS = 60 * 10**9
"""Of the same user and network, so many failures count within this time."""
MOST_KEPT = 1024
"""Of more users and networks the one that failed longest ago is forgotten."""
_Key = tuple[bytes, str]


class Attempts:
    """The failed logins by user and network. Times are nanoseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._failures: dict[_Key, deque[int]] = {}

    def counts(self, user: bytes, host: str, now_ns: int) -> int:
        """How many more failures count after this one; less than 0 when this is one too many."""
        key = user, network_of(host)
        times = self._failures.pop(key, deque(maxlen=MOST_FAILURES))
        self._failures[key] = times  # the last one, as the order is that of the latest failures
        while len(self._failures) > MOST_KEPT:
            del self._failures[next(iter(self._failures))]
        while times and now_ns - times[0] >= WITHIN_NS:
            times.popleft()
        if len(times) == MOST_FAILURES:
            return -1
        times.append(now_ns)
        return MOST_FAILURES - len(times)

    def succeeded(self, user: bytes, host: str) -> None:
        self._failures.pop((user, network_of(host)), None)


@lru_cache(MOST_KEPT)
def network_of(host: str) -> str:
    """What one host has for sure: an address of IPv4, the /64 of one of IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)

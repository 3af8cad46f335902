"""One session of a client with a controller: how it is opened, what keeps it, what it may ask.

IPMI 2.0, revision 1.1, chapter 13: RAKP with HMAC-SHA256 (13.28), packets with HMAC-SHA256-128 and
AES-CBC-128 (cipher suite 17, table 22-20). pyghmi's session reads and writes packets; it knows
cipher suite 3 only on the server's side, where its messages of RAKP are replaced here.
"""

from __future__ import annotations

import collections
import hashlib
import hmac
import os
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from pyghmi.ipmi.private import constants
from pyghmi.ipmi.private.serversession import ServerSession

if TYPE_CHECKING:
    from tailtap.bmc.controller import Controller

SUITE = 17
ALGORITHMS = (3, 4, 1)
"""RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128: what suite 17 is; tables 13-17 to 13-19."""
CODE_BYTES = 16
"""How much of an HMAC protects a packet."""
USER, OPERATOR, ADMINISTRATOR = 2, 3, 4
"""Privileges; table 6-1."""
AUTHENTICATED, ENCRYPTED = 0x40, 0x80
MOST_NAME_BYTES = 16


class Refusal(IntEnum):
    """Why a session is refused; table 13-15."""

    NO_ROOM = 0x01
    PRIVILEGE = 0x09
    NAME = 0x0D
    INTEGRITY = 0x0F
    NO_SUITE = 0x11


class Completion(IntEnum):
    """Why a request is not carried out; table 5-2."""

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


class Session(ServerSession):  # type: ignore[misc]  # pyghmi has no types
    """A session, from its opening on."""

    def __new__(cls, *_: object) -> Session:
        """A new object, which pyghmi's class makes from arguments of its own."""
        made: Session = object.__new__(cls)
        return made

    def __init__(
        self, controller: Controller, address: tuple[Any, ...], request: bytes, number: int
    ) -> None:
        """Answer the opening `request`, 32 bytes, with the session id `number`."""
        # pyghmi's own initializer would put the session into a table of the whole process by the
        # client's address, from which nothing is ever taken.
        self.bmc = controller
        self.socket = controller.outlet
        self.sockaddr = address
        self.servermode = True
        self.ipmiversion = 2.0
        self.authtype = 6
        self.rqaddr = constants.IPMI_BMC_ADDRESS
        self.currhashlib = hashlib.sha256
        self.currhashlen = CODE_BYTES
        self.integrityalgo: int | str = 0
        self.confalgo: int | str = 0
        self.sequencenumber = 0
        self.sessionid = 0
        self.remseqnumber: int | None = None
        self.k1: bytes | None = None
        self.lastpayload = None
        self.netpacket: bytearray | None = None
        self.pendingpayloads: collections.deque[Any] = collections.deque()
        self._customkeepalives = None

        self.localsid = number
        self.established = False
        self.username = b""
        self.clientpriv = USER
        self._answered: bytes | None = None
        self._keys: tuple[bytes, bytes, bytes, int] | None = None
        self.clientsessionid = request[4:8]
        answer = bytes([request[0], 0, ADMINISTRATOR, 0]) + self._ids
        for kind, algorithm in enumerate(ALGORITHMS):
            answer += bytes([kind, 0, 0, 8, algorithm, 0, 0, 0])
        self._send("rmcpplusopenresponse", answer)

    def receive(self, packet: bytes) -> None:
        """Answer a packet of the session. Raises whatever pyghmi raises for a damaged one."""
        if packet == self._answered and self.netpacket is not None:
            # A client that missed the answer asks again. It is not carried out again.
            self.socket.sendto(self.netpacket, self.sockaddr)
            return
        before = self.netpacket
        kind = packet[5] & 0x3F
        if kind == constants.payload_types["rakp1"]:
            self._got_rakp1(packet[16:])
        elif kind == constants.payload_types["rakp3"]:
            self._got_rakp3(packet[16:])
        elif self._is_authentic(packet):
            self._handle_ipmi2_packet(bytearray(packet))
        if self.netpacket is not before:
            self._answered = packet

    def _is_authentic(self, packet: bytes) -> bool:
        """Whether it is a message from who opened the session, encrypted, and newer than others.

        pyghmi looks at the code only, and takes the newest message a second time.
        """
        flags = AUTHENTICATED | ENCRYPTED
        if self.k1 is None or packet[5] != flags | constants.payload_types["ipmi"]:
            return False
        number: int = struct.unpack_from("<I", packet, 10)[0]
        if self.remseqnumber is not None and number <= self.remseqnumber:
            return False
        code = hmac.new(self.k1, packet[4:-CODE_BYTES], hashlib.sha256).digest()[:CODE_BYTES]
        return hmac.compare_digest(code, packet[-CODE_BYTES:])

    def _got_rakp1(self, data: bytes) -> None:
        """The client names itself; we prove that we know its password."""
        if self.established or len(data) < 28 or len(data) < 28 + data[27]:
            return
        role, name = data[24], data[28 : 28 + data[27]]
        if not USER - 1 <= role & 0x0F <= ADMINISTRATOR:
            self._refuse("rakp2", data[0], Refusal.PRIVILEGE)
            return
        self.username = name
        if not self.bmc.login_begun(self):
            self._refuse("rakp2", data[0], Refusal.NO_ROOM)
            return
        password = self.bmc.password_of(name)
        if password is None:
            self.bmc.login_failed(self, "there is no such user")
            self._refuse("rakp2", data[0], Refusal.NAME)
            return
        self.Rm, self.Rc = data[8:24], os.urandom(16)
        self._keys = (password, self.Rm, self.Rc, role)
        guid = self.bmc.uuid.bytes
        told = self._ids + self.Rm + self.Rc + guid + self._named(role)
        proof = hmac.new(password, told, hashlib.sha256).digest()
        answer = bytes([data[0], 0, 0, 0]) + self.clientsessionid + self.Rc + guid + proof
        self._send("rakp2", answer)

    def _got_rakp3(self, data: bytes) -> None:
        """The client proves that it knows its password; the keys of the session follow from it."""
        if self.established or self._keys is None or len(data) < 8:
            return
        password, theirs, ours, role = self._keys
        told = ours + self.clientsessionid + self._named(role)
        proof = hmac.new(password, told, hashlib.sha256).digest()
        # A client that does not believe our proof has another password, too.
        if data[1] != 0 or not hmac.compare_digest(proof, data[8:]):
            self.bmc.login_failed(self, "the password is wrong")
            self._refuse("rakp4", data[0], Refusal.INTEGRITY)
            return
        key = hmac.new(password, theirs + ours + self._named(role), hashlib.sha256).digest()
        self.k1 = hmac.new(key, b"\x01" * 20, hashlib.sha256).digest()
        self.aeskey = hmac.new(key, b"\x02" * 20, hashlib.sha256).digest()[:16]
        code = hmac.new(key, theirs + self._id + self.bmc.uuid.bytes, hashlib.sha256).digest()
        answer = bytes([data[0], 0, 0, 0]) + self.clientsessionid + code[:CODE_BYTES]
        self._send("rakp4", answer)
        self.ipmicallback = self._got_request
        self.integrityalgo, self.confalgo = "sha256", "aes"
        self.sequencenumber = 1
        self.sessionid = struct.unpack("<I", self.clientsessionid)[0]
        self.maxpriv = role & 0x0F
        self.clientpriv = min(USER, self.maxpriv)
        self.established = True
        self.bmc.login_succeeded(self)

    def _got_request(self, request: dict[str, Any]) -> None:
        """Answer what concerns the session, and hand on what concerns the machine."""
        asked, data = (request["netfn"], request["command"]), bytes(request["data"])
        if asked == (6, 0x3B):  # set session privilege level
            if len(data) != 1:
                self.send_ipmi_response(code=Completion.LENGTH)
            elif data[0] & 0x0F > self.maxpriv:
                self.send_ipmi_response(code=Completion.NOT_THAT_PRIVILEGE)
            else:
                self.clientpriv = data[0] & 0x0F or self.clientpriv
                self.send_ipmi_response(data=[self.clientpriv])
        elif asked == (6, 0x3C):  # close session
            ours = data == self._id
            self.send_ipmi_response(code=0 if ours else Completion.NOT_THAT_SESSION)
            if ours:
                self.bmc.close_session(self)
        else:
            self.bmc.handle_raw_request({**request, "data": data}, self)

    @property
    def challenged(self) -> bool:
        """Whether the client has our proof and has not sent its own."""
        return not self.established and self._keys is not None

    @property
    def _id(self) -> bytes:
        return struct.pack("<I", self.localsid)

    @property
    def _ids(self) -> bytes:
        return self.clientsessionid + self._id

    def _named(self, role: int) -> bytes:
        return bytes([role, len(self.username)]) + self.username

    def _refuse(self, message: str, tag: int, why: Refusal) -> None:
        """Say why, and end the session: who tries again has to open another one."""
        self._send(message, bytes([tag, why, 0, 0]) + self.clientsessionid)
        self.bmc.close_session(self)

    def _send(self, message: str, payload: bytes) -> None:
        self.send_payload(payload, constants.payload_types[message], retry=False)

"""Packets of IPMI over LAN: frames of RMCP+, the messages in them, and what protects both.

IPMI 2.0, revision 1.1: frames are table 13-8, messages 13.8, codes 13.28.4, encryption 13.29.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from dataclasses import dataclass
from enum import IntEnum

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

RMCP = b"\x06\x00\xff\x07"
"""How a packet of IPMI begins."""
RMCP_PLUS, NO_AUTHENTICATION = 6, 0
"""The formats of a session's header: of IPMI 2.0, and of 1.5 without a session; table 13-9."""
HEAD, HEAD_15 = 16, 14
"""Bytes before the payload, in either format."""
AUTHENTICATED, ENCRYPTED = 0x40, 0x80
CODE_BYTES = 16
"""How much of an HMAC protects a packet."""
BLOCK = 16
TRAILER = b"\x07"
"""What stands behind the padding of a protected packet: the next header, which is none."""


class Kind(IntEnum):
    """What a frame carries; table 13-16."""

    MESSAGE = 0x00
    OPEN_REQUEST = 0x10
    OPEN_RESPONSE = 0x11
    RAKP1 = 0x12
    RAKP2 = 0x13
    RAKP3 = 0x14
    RAKP4 = 0x15


def frame(kind: int, payload: bytes, session: int = 0, sequence: int = 0) -> bytes:
    """A packet of IPMI 2.0 that nothing protects."""
    head = struct.pack("<BBIIH", RMCP_PLUS, kind, session, sequence, len(payload))
    return RMCP + head + payload


def frame_15(payload: bytes) -> bytes:
    """A packet of IPMI 1.5 without a session."""
    return RMCP + bytes(9) + bytes([len(payload)]) + payload


@dataclass(frozen=True)
class Request:
    """A message to a controller."""

    function: int
    """The network function, without the logical unit."""
    command: int
    data: bytes
    _to: tuple[int, int]
    """The address and logical unit that are asked."""
    _from: tuple[int, int, int]
    """The address of who asks, the logical unit, and the number of the request."""

    @classmethod
    def read(cls, message: bytes) -> Request | None:
        """The request in a message; None when its sums or its length are wrong."""
        if len(message) < 7 or sum(message[:3]) & 0xFF or sum(message[3:]) & 0xFF:
            return None
        asked, function, _, by, number, command = message[:6]
        whom = (by, number & 3, number >> 2)
        return cls(function >> 2, command, message[6:-1], (asked, function & 3), whom)

    def answer(self, code: int, data: bytes) -> bytes:
        (asked, unit), (by, their_unit, number) = self._to, self._from
        head = bytes([by, (self.function + 1) << 2 & 0xFF | their_unit])
        body = bytes([asked, number << 2 | unit, self.command, code]) + data
        return head + _sum(head) + body + _sum(body)


@dataclass(frozen=True)
class Keys:
    """What protects the packets of a session: HMAC-SHA256-128 and AES-CBC-128."""

    integrity: bytes
    encryption: bytes

    def seal(self, payload: bytes, session: int, sequence: int) -> bytes:
        """The packet of a message, encrypted and with its code."""
        pad = -(len(payload) + 1) % BLOCK
        start = os.urandom(BLOCK)
        cipher = Cipher(AES(self.encryption), CBC(start)).encryptor()
        hidden = cipher.update(payload + bytes(range(1, pad + 1)) + bytes([pad]))
        packet = frame(AUTHENTICATED | ENCRYPTED, start + hidden, session, sequence)
        # The code is over a multiple of four bytes, its own padding and the trailer included.
        fill = -(len(packet) - len(RMCP) + 2) % 4
        packet += b"\xff" * fill + bytes([fill]) + TRAILER
        return packet + self._code(packet)

    def opened(self, packet: bytes) -> bytes | None:
        """The message in a packet; None when it is not sealed with these keys."""
        if packet[5] != AUTHENTICATED | ENCRYPTED:
            return None
        if not hmac.compare_digest(self._code(packet[:-CODE_BYTES]), packet[-CODE_BYTES:]):
            return None
        length = int.from_bytes(packet[14:16], "little")
        payload = packet[HEAD : HEAD + length]
        if len(payload) != length or length < 2 * BLOCK or length % BLOCK:
            return None
        cipher = Cipher(AES(self.encryption), CBC(payload[:BLOCK])).decryptor()
        plain = cipher.update(payload[BLOCK:])
        return plain[: -1 - plain[-1]] if plain[-1] < len(plain) else None

    def _code(self, packet: bytes) -> bytes:
        return hmac.digest(self.integrity, packet[len(RMCP) :], hashlib.sha256)[:CODE_BYTES]


def _sum(data: bytes) -> bytes:
    """The byte that makes the sum of all a multiple of 256."""
    return bytes([-sum(data) & 0xFF])

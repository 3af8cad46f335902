"""Frames in MoonSniff's layout that tailtap's generator does not make."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Sequence

from namespaces import Namespace


def send_frames(namespace: Namespace, interface: str, frames: list[bytes]) -> None:
    """Send frames from inside a namespace, through the queueing discipline."""
    script = (
        "import socket,sys\n"
        "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\n"
        f"s.bind(({interface!r},0))\n"
        f"for f in {[frame.hex() for frame in frames]!r}: s.send(bytes.fromhex(f))\n"
    )
    namespace.run(sys.executable, "-c", script)


def tcp_frame() -> bytes:
    """One without an id."""
    frame = udp_frame(0)
    return frame[:23] + b"\x06" + frame[24:]


def udp_frame(
    number: int,
    *,
    tags: bytes = b"",
    ipv6: bool = False,
    options: bytes = b"",
    extensions: Sequence[tuple[int, bytes]] = (),
) -> bytes:
    """A frame in MoonSniff's layout, made here and not by the generator.

    `extensions` of IPv6 are the kind of each, and its bytes less the first one, which is the kind
    of what follows.
    """
    payload = struct.pack("<IB", number, 0x55) + bytes(13)
    udp = struct.pack(">HHHH", 1024, 53, 8 + len(payload), 0) + payload
    macs = bytes.fromhex("027474000002027474000001")
    if ipv6:
        address = socket.inet_pton(socket.AF_INET6, "fd00::1")
        kinds = [kind for kind, _ in extensions] + [17]
        rest = b"".join(
            bytes([follows]) + extension
            for follows, (_, extension) in zip(kinds[1:], extensions, strict=True)
        )
        network = struct.pack(">IHBB", 6 << 28, len(rest + udp), kinds[0], 64) + 2 * address
        return macs + tags + b"\x86\xdd" + network + rest + udp
    words = 5 + len(options) // 4
    numbers = 4 * words + len(udp), number % (1 << 16)
    network = struct.pack(">BBHHHBBH", 0x40 | words, 0, *numbers, 0, 64, 17, 0)
    network += socket.inet_aton("10.0.0.1") + socket.inet_aton("10.1.0.1") + options
    return macs + tags + b"\x08\x00" + network + udp

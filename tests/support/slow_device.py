"""A device and a sender that leave most of their CPUs to others, unlike ours, which poll.

`slow_device.py send INTERFACE RATE SECONDS [MAC FROM TO]` sends packets with ids, to a hardware
address and between two others. `slow_device.py pass IN OUT EVERY HOLD_MS` passes packets on in one
direction, and rests for so long before one of EVERY.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
import time
from collections.abc import Sequence

from frames import udp_frame

ALL = 0x0003
"""ETH_P_ALL of linux/if_ether.h, in the order of the network."""


def opened(interface: str, protocol: int = 0) -> socket.socket:
    """A packet socket of an interface; one that gets nothing unless a protocol is given."""
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    found.bind((interface, protocol))
    return found


def addressed(mac: str, source: str, destination: str) -> bytes:
    """A frame to a hardware address, from an address to another one."""
    frame = bytearray(udp_frame(0))
    frame[:6] = bytes.fromhex(mac.replace(":", ""))
    frame[26:34] = socket.inet_aton(source) + socket.inet_aton(destination)
    # RFC 1071: the sum of its words modulo 65535; the checksum was zero.
    frame[24:26] = struct.pack("!H", 0xFFFF - sum(struct.unpack("!10H", frame[14:34])) % 0xFFFF)
    return bytes(frame)


def send(interface: str, rate: float, seconds: float, addresses: Sequence[str]) -> None:
    """Send so many packets a second."""
    wire = opened(interface)
    frame = addressed(*addresses) if addresses else udp_frame(0)
    began = time.perf_counter()
    for number in range(round(rate * seconds)):
        left = began + number / rate - time.perf_counter()
        if left > 0:
            time.sleep(left)
        try:
            wire.send(frame[:42] + number.to_bytes(4, "little") + frame[46:])
        except OSError as error:  # a busy machine has not served those before: this one is not sent
            if error.errno != errno.ENOBUFS:
                raise


def pass_on(ingress: str, egress: str, every: int, hold_ms: int) -> None:
    """Pass packets on, and hold one of `every`, with all behind it."""
    came, leaves = opened(ingress, ALL), opened(egress)
    passed = 0
    while True:
        packet, address = came.recvfrom(2048)
        if address[2] == socket.PACKET_OUTGOING:
            continue
        passed += 1
        if passed % every == 0:
            time.sleep(hold_ms / 1000)
        leaves.send(packet)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "send":
        send(words[0], float(words[1]), float(words[2]), words[3:])
    else:
        pass_on(words[0], words[1], int(words[2]), int(words[3]))

"""A DNS server and its client of a few lines, for tests that know how long each answer takes.

``server PORT EVERY SECONDS`` waits so long before it answers a query whose id is a multiple of
EVERY. ``client ADDRESS PORT QUERIES BURST PAUSE`` sends bursts of queries, and pauses when all of
one are answered.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

NAME = b"\4host\7example\3org\0"


def serve(port: int, every: int, seconds: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
        served.bind(("0.0.0.0", port))
        while True:
            query, client = served.recvfrom(512)
            if every and struct.unpack_from(">H", query)[0] % every == 0:
                time.sleep(seconds)
            served.sendto(query[:2] + b"\x81\x80" + query[4:], client)


def ask(address: str, port: int, queries: int, burst: int, pause: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(5)
        asking.connect((address, port))
        for first in range(0, queries, burst):
            for number in range(first, first + burst):
                head = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0)
                asking.send(head + NAME + struct.pack(">2H", 1, 1))
            for _ in range(burst):
                asking.recv(512)
            time.sleep(pause)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "server":
        serve(int(words[0]), int(words[1]), float(words[2]))
    else:
        ask(words[0], int(words[1]), int(words[2]), int(words[3]), float(words[4]))

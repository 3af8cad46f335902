"""Runs in a guest with emulated cards: frames that two igb cards stamp, by a recorder of its own.

The emulator stamps event messages of PTP, and no others, until somebody reads the register behind
the stamp (RXSATRH), which the driver of Linux does not. All cards are on one cable, and a frame has
come to all of them when it is sent: within the call that sends it. Prints as JSON the number of
each frame, both stamps, and how long that call took, by CLOCK_MONOTONIC; in ns. Meanwhile tailtap
reads both clocks.

Words: a step in ns, and a change of rate in ppb, for the clock of the second card before that; and
a step in ns in the middle.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import socket
import struct
import sys
import time
from pathlib import Path

from tailtap.lab.instruments.taps.hardware import Watch
from tailtap.records.datapath import Tap
from tailtap.records.record import as_json

FRAMES, PAUSE_SECONDS = 120, 0.03
SIOCSHWTSTAMP, EVENTS, ETHER = 0x89B0, 12, 0x88F7
SO_TIMESTAMPING, OF_CARDS = 37, (1 << 2) | (1 << 6)
RXSATRH, REGISTERS = 0xB630, 0x20000
ADJ_FREQUENCY, ADJ_SETOFFSET, ADJ_NANO = 0x2, 0x100, 0x2000


class Card:
    """An interface that stamps."""

    def __init__(self, name: str) -> None:
        card = Path(f"/sys/class/net/{name}/device")
        [clock] = (card / "ptp").iterdir()
        self.clock = int(clock.name.removeprefix("ptp"))
        config = ctypes.create_string_buffer(struct.pack("iii", 0, 0, EVENTS))
        request = struct.pack("16sQ16x", name.encode(), ctypes.addressof(config))
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER))
        fcntl.ioctl(self.socket, SIOCSHWTSTAMP, request)
        self.socket.bind((name, ETHER))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, OF_CARDS)
        self.socket.settimeout(5)
        with (card / "resource0").open("rb") as file:
            read = mmap.mmap(file.fileno(), REGISTERS, prot=mmap.PROT_READ)
        self.registers = memoryview(read).cast("I")

    def stamp(self) -> int:
        """That of the next frame."""
        _, control, _, _ = self.socket.recvmsg(2048, 1024)
        assert self.registers[RXSATRH // 4] is not None
        [times] = [struct.unpack("6q", told[:48]) for _, kind, told in control if kind == 37]
        return int(times[4] * 10**9 + times[5])


def adjust(clock: int, modes: int, *, step_ns: int = 0, rate_ppb: int = 0) -> None:
    """clock_adjtime(2)."""
    file = os.open(f"/dev/ptp{clock}", os.O_RDWR)
    seconds, ns = divmod(step_ns, 10**9)
    frequency = rate_ppb * (1 << 16) // 1000
    timex = struct.pack(
        "IxxxxqqqqixxxxqqqqqQ", modes, 0, frequency, 0, 0, 0, 0, 0, 0, seconds, ns, 0
    )
    wanted = ctypes.create_string_buffer(timex, 208)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.clock_adjtime(ctypes.c_int((~file << 3) | 3), wanted)
    assert done >= 0, os.strerror(ctypes.get_errno())
    os.close(file)


def main(step_ns: int, rate_ppb: int, meanwhile_ns: int) -> None:
    cards = [Card("eth3"), Card("eth0")]
    numbers = [card.clock for card in cards]
    if rate_ppb:
        adjust(numbers[1], ADJ_FREQUENCY, rate_ppb=rate_ppb)
    if step_ns:
        adjust(numbers[1], ADJ_SETOFFSET | ADJ_NANO, step_ns=step_ns)
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("eth1", 0))
    addresses = bytes.fromhex("011b19000000525400747501")
    watch = Watch(numbers)
    watch.begin()
    rows = []
    for number in range(FRAMES):
        if number == FRAMES // 2 and meanwhile_ns:
            adjust(numbers[1], ADJ_SETOFFSET | ADJ_NANO, step_ns=meanwhile_ns)
        event = struct.pack(">HBBH24xHxx10x", ETHER, 0, 2, 44, number)
        begun = time.monotonic_ns()
        sender.send(addresses + event)
        took = time.monotonic_ns() - begun
        rows.append([number, *(card.stamp() for card in cards), took])
        time.sleep(PAUSE_SECONDS)
    watch.end()
    taps = [
        Tap(clock_device=f"/dev/ptp{number}", readings=watch.readings(number)) for number in numbers
    ]
    print(json.dumps({"rows": rows, "taps": [as_json(tap) for tap in taps]}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

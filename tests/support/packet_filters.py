"""What libpcap itself says of packets: an independent answer to whether a filter matches."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Sequence

ETHERNET = 1
ANY_NETMASK = 0xFFFF_FFFF


class Header(ctypes.Structure):
    """``struct pcap_pkthdr``."""

    _fields_ = (
        ("seconds", ctypes.c_long),
        ("microseconds", ctypes.c_long),
        ("captured", ctypes.c_uint),
        ("length", ctypes.c_uint),
    )


def matching(expression: str, frames: Sequence[bytes]) -> list[bool]:
    """Whether each frame matches, as `tcpdump -r` would say it (pcap_offline_filter)."""
    name = ctypes.util.find_library("pcap")
    assert name is not None
    library = ctypes.CDLL(name)
    library.pcap_open_dead.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(library.pcap_open_dead(ETHERNET, 65535))
    program = (ctypes.c_ulong * 2)()
    text = expression.encode()
    assert library.pcap_compile(handle, program, text, 0, ctypes.c_uint(ANY_NETMASK)) == 0
    answers = []
    for frame in frames:
        header = Header(0, 0, len(frame), len(frame))
        answers.append(bool(library.pcap_offline_filter(program, ctypes.byref(header), frame)))
    library.pcap_freecode(program)
    library.pcap_close(handle)
    return answers

"""Filters of packets: libpcap's words as the instructions that libpcap makes of them."""

from __future__ import annotations

import ctypes
import ctypes.util

from tailtap.base.errors import InputError, MachineError, WrongValue

Instruction = tuple[int, int, int, int]
"""Of the classic machine of filters: code, jump where true, jump where false, number."""

PACKAGE = "libpcap0.8"
"""Debian's package of the library."""
ETHERNET, RAW = 1, 12
"""The link types whose packets are filtered: frames, and packets that begin with IP (DLT_EN10MB,
DLT_RAW)."""
SNAP_LENGTH = 262_144
"""Bytes of a packet that a filter may look at, as in tcpdump."""
ANY_NETMASK = 0xFFFF_FFFF
"""The network's mask is not known (PCAP_NETMASK_UNKNOWN)."""


class _Instruction(ctypes.Structure):
    """``struct bpf_insn`` of pcap/bpf.h."""

    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    """``struct bpf_program`` of pcap/bpf.h."""

    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.POINTER(_Instruction)))


def compile_filter(text: str, link_type: int = ETHERNET) -> list[Instruction]:
    """What libpcap makes of a filter such as ``udp port 53``, for packets as on the wire.

    A VLAN tag stands in the frame, as in a file of tcpdump's: ``vlan and udp`` finds tagged
    packets. Names of hosts and ports are looked up. Raises `InputError` for what libpcap does not
    understand, and `MachineError` without libpcap.
    """
    library = _library()
    handle = library.pcap_open_dead(link_type, SNAP_LENGTH)
    if not handle:
        raise MachineError("libpcap has no memory to compile a filter")
    program = _Program()
    try:
        if library.pcap_compile(handle, ctypes.byref(program), text.encode(), 1, ANY_NETMASK) < 0:
            why = library.pcap_geterr(handle).decode(errors="replace")
            raise WrongValue("--filter", text, f"{why} (`man pcap-filter` has its words)")
        instructions = program.instructions[: program.length]
        found = [(one.code, one.if_true, one.if_false, one.k) for one in instructions]
        library.pcap_freecode(ctypes.byref(program))
    finally:
        library.pcap_close(handle)
    return found


def compile_filter_of_ip(text: str) -> list[Instruction] | None:
    """The same for packets that begin with IP; None for what only frames of Ethernet have."""
    try:
        return compile_filter(text, RAW)
    except InputError:
        return None


def _library() -> ctypes.CDLL:
    name = ctypes.util.find_library("pcap")
    if name is None:
        raise MachineError(
            f"--filter needs libpcap, which is not here: `apt-get install {PACKAGE}` installs it"
        )
    library = ctypes.CDLL(name)
    library.pcap_open_dead.restype = ctypes.c_void_p
    library.pcap_open_dead.argtypes = (ctypes.c_int, ctypes.c_int)
    pointer = ctypes.POINTER(_Program)
    library.pcap_compile.argtypes = (
        ctypes.c_void_p,
        pointer,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_uint,
    )
    library.pcap_geterr.restype = ctypes.c_char_p
    library.pcap_geterr.argtypes = (ctypes.c_void_p,)
    library.pcap_freecode.argtypes = (pointer,)
    library.pcap_close.argtypes = (ctypes.c_void_p,)
    return library

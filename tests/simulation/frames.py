"""What packets are made of, byte by byte, before a device and behind it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.simulation.draw import Draw

HOST, ROUTER, SERVER = "10.0.0.9", "10.0.0.1", "203.0.113.9"
PUBLIC = "198.51.100.1"
TAGGED = bytes.fromhex("81000007")
MACS = {
    "host": "020000000009",
    "router": "020000000001",
    "router behind": "020000000003",
    "server": "020000000002",
}


@dataclass(frozen=True)
class Path:
    """What stands around what a packet carries, on one side of a device."""

    source: str = "host"
    target: str = "router"
    tags: bytes = b""
    """Between the hardware addresses and the ethertype."""
    tunnel: Callable[[bytes], bytes] = field(default=bytes)
    """What a tunnel makes of the frame."""
    address: str = HOST
    first_port: int = 1_000
    hops: int = 64


def vxlan(frame: bytes) -> bytes:
    """The frame in a packet of UDP, as tunnels' ends send it."""
    carried = bytes([8, 0, 0, 0, 0, 0, 42, 0]) + frame
    datagram = struct.pack(">HHHH", 49152, 4789, 8 + len(carried), 0) + carried
    return ethernet("router behind", "server", ip("192.0.2.1", "192.0.2.2", 7, 17, datagram))


BRIDGE = Path()
ROUTED = Path("router behind", "server", hops=63)
BEHIND: dict[str, tuple[Path, tuple[str, ...]]] = {
    "bridge": (BRIDGE, ("packet", "packet-flow", "signature")),
    "router": (ROUTED, ("packet", "packet-flow")),
    "NAT": (replace(ROUTED, address=PUBLIC, first_port=50_000), ("packet-nat",)),
    "VLAN": (replace(BRIDGE, tags=bytes.fromhex("81000064")), ("packet", "packet-nat")),
    "MPLS": (replace(BRIDGE, tags=bytes.fromhex("884700010140")), ("packet",)),
    "VXLAN": (replace(BRIDGE, tunnel=vxlan), ("packet",)),
}
"""What packets are behind each kind of device, and keys by which they are followed through it."""


def ethernet(source: str, target: str, rest: bytes, kind: int = 0x800, tags: bytes = b"") -> bytes:
    """A frame of at least 60 bytes; what is too short is padded."""
    head = bytes.fromhex(MACS.get(target, target) + MACS.get(source, source)) + tags
    # A label of MPLS says itself that IP follows.
    head += b"" if tags[:2] == b"\x88\x47" else struct.pack(">H", kind)
    return (head + rest).ljust(60, b"\0")


def ip(
    source: str,
    target: str,
    number: int,
    protocol: int,
    carried: bytes,
    hops: int = 64,
    fragment: int = 0,
) -> bytes:
    """A packet of IPv4 whose id is `number`; without a checksum, which nobody reads."""
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    total = 20 + len(carried)
    head = struct.pack(">BBHHHBBH", 0x45, 0, total, number, fragment, hops, protocol, 0)
    return head + ends + carried


def udp(path: Path, flow: int, payload: bytes) -> bytes:
    return struct.pack(">HHHH", path.first_port + flow, 53, 8 + len(payload), 0) + payload


def _ids(number: int, flow: int, filling: bytes, path: Path) -> bytes:
    payload = struct.pack("<IB", number, 0x55) + bytes(13) + filling
    return ip(path.address, SERVER, 0, 17, udp(path, flow, payload), path.hops)


def _ip_ids(number: int, flow: int, filling: bytes, path: Path) -> bytes:
    return ip(path.address, SERVER, number, 17, udp(path, flow, b"the same" + filling), path.hops)


def _payloads(number: int, flow: int, filling: bytes, path: Path) -> bytes:
    payload = filling + struct.pack(">Q", number)
    return ip(path.address, SERVER, 0, 17, udp(path, flow, payload), path.hops)


def _segments(number: int, flow: int, filling: bytes, path: Path) -> bytes:
    head = struct.pack(
        ">HHIIBBHHH", path.first_port + flow, 443, number * 2_000, 7, 0x50, 0x18, 9_000, 0, 0
    )
    return ip(path.address, SERVER, number, 6, head + b"data" + filling, path.hops)


KINDS: dict[str, tuple[Callable[[int, int, bytes, Path], bytes], str, tuple[str, ...]]] = {
    "ids": (_ids, "udp", ("moonsniff",)),
    "IP ids": (_ip_ids, "udp", ("ip.id",)),
    "payloads": (_payloads, "udp", ("-8:8:be",)),
    "segments": (_segments, "tcp", ("packet-stream", "tcp.seq")),
}
"""What packets carry, by which protocol, and keys of theirs alone."""
TOO_LITTLE = {("IP ids", "packet-flow"), ("payloads", "signature"), ("segments", "signature")}
"""Keys without what such packets differ by."""
CHANGED = {("NAT", "packet-stream"), ("MPLS", "moonsniff"), ("VXLAN", "moonsniff")}
"""Devices that change what is of the key, or stand around it."""


@dataclass(frozen=True)
class Traffic:
    """The packets of some flows through a device of some kind."""

    kind: str
    device: str
    flows: int
    fillings: tuple[int, ...]
    keys: tuple[str, ...]
    """Those by which each packet is followed."""

    def before(self, number: int) -> bytes:
        return self._frame(number, BRIDGE)

    def behind(self, number: int) -> bytes:
        return self._frame(number, BEHIND[self.device][0])

    def _frame(self, number: int, path: Path) -> bytes:
        filling = bytes([number % 251]) * self.fillings[number % len(self.fillings)]
        carried = KINDS[self.kind][0](number, self.flow(number), filling, path)
        return path.tunnel(ethernet(path.source, path.target, carried, tags=path.tags))

    def flow(self, number: int) -> int:
        return number * 7 % self.flows

    def name(self, number: int) -> str:
        """The flow, as people see it before the device."""
        protocol = KINDS[self.kind][1]
        port = 53 if protocol == "udp" else 443
        return f"{protocol} {HOST}:{1_000 + self.flow(number)} > {SERVER}:{port}"


def traffic(draw: Draw) -> Traffic:
    """Packets of one kind through a device of one kind."""
    kind = draw.choice("kind", list(KINDS)) if draw.has("kind", 0.6) else "ids"
    device = draw.choice("device", list(BEHIND)) if draw.has("device", 0.5) else "bridge"
    keys = ["auto", *KINDS[kind][2]]
    keys += [key for key in BEHIND[device][1] if (kind, key) not in TOO_LITTLE]
    keys = [key for key in keys if (device, key) not in CHANGED]
    fillings = (0, 40, 300) if draw.has("lengths", 0.4) else (0,)
    return Traffic(kind, device, draw.between("flows", 1, 12), fillings, tuple(keys))


def strange(device: str) -> list[tuple[bytes, str]]:
    """Packets that do not leave a device of this kind, and what each of them then counts as."""
    groups = (("00", 0x26), ("01", 0x8808), ("02", 0x8809), ("0e", 0x88CC)) * 2
    found = [
        (ethernet("host", f"0180c20000{last}", bytes([2, 7, place]), kind), "not_forwarded")
        for place, (last, kind) in enumerate(groups)
    ]
    routes = device in ("router", "NAT")
    near = [
        ethernet("host", "01005e000005", ip(HOST, "224.0.0.5", 1, 89, bytes(20))),
        ethernet("host", "router", ip(HOST, "192.0.2.77", 2, 17, udp(BRIDGE, 0, b"old"), hops=1)),
        ethernet("host", "f" * 12, arp("host", HOST, ROUTER), 0x806),
        ethernet("host", "f" * 12, arp("host", HOST, "10.0.0.8"), 0x806, TAGGED),
    ]
    found += [(frame, "not_forwarded" if routes else "lost") for frame in near]
    if routes:
        found += [
            (ethernet("router", "f" * 12, arp("router", ROUTER, HOST), 0x806), "not_forwarded"),
            (ethernet("router", "host", ip(ROUTER, HOST, 7, 1, bytes(20))), "not_forwarded"),
        ]
        found += [
            (ethernet("host", "router", ip(HOST, ROUTER, 9_000 + n, 6, bytes(20))), "to_device")
            for n in range(5)
        ]
    return found


def shows_router(frame: bytes) -> bool:
    """Whether it says what the router's own address is."""
    return frame[6:12].hex() == MACS["router"]


def arp(sender: str, address: str, target: str) -> bytes:
    head = struct.pack(">HHBBH", 1, 0x800, 6, 4, 1) + bytes.fromhex(MACS[sender])
    return head + socket.inet_aton(address) + bytes(6) + socket.inet_aton(target)

"""Frames of many protocols, as scapy makes them: each kind as often as asked, none the same."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from scapy.contrib.bfd import BFD
from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II
from scapy.contrib.geneve import GENEVE
from scapy.contrib.gtp import GTP_U_Header, GTPEchoRequest, GTPPDUSessionContainer
from scapy.contrib.lldp import (
    LLDPDUChassisID,
    LLDPDUEndOfLLDPDU,
    LLDPDUPortID,
    LLDPDUTimeToLive,
)
from scapy.contrib.mac_control import MACControlPause
from scapy.contrib.macsec import MACsec
from scapy.contrib.mpls import MPLS
from scapy.contrib.ospf import OSPF_Hdr, OSPF_Hello
from scapy.contrib.pim import PIMv2Hdr
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.dhcp6 import DHCP6_Solicit, DHCP6OptClientId
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.igmp import IGMP, IGMPv3_MR, IGMPv3_MR_Group
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP, ICMPerror, IPerror, UDPerror
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6MLQuery,
    ICMPv6MLReport2,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPerror6,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
    RouterAlert,
)
from scapy.layers.ipsec import AH, ESP
from scapy.layers.l2 import ARP, LLC, SNAP, STP, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.l2tp import L2TP
from scapy.layers.ntp import NTPHeader
from scapy.layers.ppp import PPP, PPP_LCP_Echo, PPPoE, PPPoED
from scapy.layers.rtp import RTP
from scapy.layers.sctp import SCTP, SCTPChunkData, SCTPChunkInit
from scapy.layers.tftp import TFTP, TFTP_DATA
from scapy.layers.vrrp import VRRP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

SOURCE, TARGET = "02:00:00:00:00:01", "02:00:00:00:00:02"
NEAR, FAR = "192.0.2.1", "198.51.100.2"
NEAR6, FAR6 = "2001:db8::1", "2001:db8:1::2"
PADDED_LEN = 60


def on_the_wire(packet: Packet, **more: int) -> Packet:
    return Ether(src=SOURCE, dst=TARGET, **more) / packet


def v4(carried: Packet, n: int, **more: object) -> Packet:
    return IP(src=NEAR, dst=FAR, id=n + 1, **more) / carried


def v6(carried: Packet, **more: object) -> Packet:
    return IPv6(src=NEAR6, dst=FAR6, **more) / carried


def raw(n: int, length: int = 40) -> Raw:
    return Raw(struct.pack(">I", n).ljust(length, b"\0"))


def udp(n: int, port: int = 9, carried: Packet | None = None) -> Packet:
    return UDP(sport=4000, dport=port) / (raw(n) if carried is None else carried)


def inner(n: int) -> Packet:
    return on_the_wire(v4(udp(n), 7))


Maker = Callable[[int], Packet]

WITHOUT_IP: dict[str, Maker] = {
    "ARP": lambda n: on_the_wire(ARP(pdst=f"10.0.{n >> 8}.{n & 255}")),
    "LLDP": lambda n: on_the_wire(
        LLDPDUChassisID(subtype=7, id=str(n))
        / LLDPDUPortID(subtype=7, id="1")
        / LLDPDUTimeToLive(ttl=120)
        / LLDPDUEndOfLLDPDU()
    ),
    "STP": lambda n: Dot3(src=SOURCE, dst="01:80:c2:00:00:00") / LLC() / STP(portid=n),
    "SNAP": lambda n: Dot3(src=SOURCE, dst=TARGET) / LLC() / SNAP(code=0x2000) / raw(n),
    "pause": lambda n: on_the_wire(MACControlPause(pause_time=n)),
    "LACP": lambda n: on_the_wire(raw(n, 110), type=0x8809),
    "EAPOL": lambda n: on_the_wire(raw(n), type=0x888E),
    "PTP": lambda n: on_the_wire(raw(n, 44), type=0x88F7),
    "PROFINET": lambda n: on_the_wire(raw(n), type=0x8892),
    "GOOSE": lambda n: on_the_wire(raw(n, 150), type=0x88B8),
    "EtherCAT": lambda n: on_the_wire(raw(n), type=0x88A4),
    "MACsec": lambda n: on_the_wire(MACsec(PN=n) / raw(0)),
    "PPPoE discovery": lambda n: on_the_wire(PPPoED(sessionid=n) / raw(0), type=0x8863),
    "PPP LCP": lambda n: on_the_wire(PPPoE(sessionid=3) / PPP() / PPP_LCP_Echo(magic_number=n)),
    "MPLS of what is not IP": lambda n: on_the_wire(
        MPLS(label=16, s=1) / Raw(b"\xf0" * 20) / raw(n)
    ),
    "VLAN of ARP": lambda n: on_the_wire(Dot1Q(vlan=5) / ARP(pdst=f"10.1.{n >> 8}.{n & 255}")),
}
V4: dict[str, Maker] = {
    "UDP": lambda n: v4(udp(n), n),
    "UDP without payload": lambda n: v4(UDP(sport=4000, dport=9), n),
    "UDP-Lite": lambda n: v4(Raw(bytes(udp(n))), n, proto=136),
    "TCP": lambda n: v4(TCP(seq=1000 * n, flags="A") / raw(n), n),
    "TCP SYN": lambda n: v4(
        TCP(
            seq=n,
            flags="S",
            options=[
                ("MSS", 1460),
                ("SAckOK", b""),
                ("Timestamp", (n, 0)),
                ("NOP", None),
                ("WScale", 7),
            ],
        ),
        n,
    ),
    "TCP with timestamps": lambda n: v4(
        TCP(seq=7, flags="A", options=[("NOP", None), ("NOP", None), ("Timestamp", (n, 9))]), 0
    ),
    "TCP with SACK": lambda n: v4(
        TCP(ack=n, flags="A", options=[("NOP", None), ("NOP", None), ("SAck", (n, n + 9))]), n
    ),
    "ICMP": lambda n: v4(ICMP(id=3, seq=n) / raw(n), n),
    "ICMP unreachable": lambda n: v4(
        ICMP(type=3, code=3) / IPerror(src=FAR, dst=NEAR, id=n) / UDPerror(sport=9) / raw(n, 8), 0
    ),
    "ICMP exceeded": lambda n: v4(
        ICMP(type=11) / IPerror(src=FAR, dst=NEAR) / ICMPerror(id=1, seq=n), n
    ),
    "IGMP": lambda n: v4(IGMP(type=0x16, gaddr=f"239.1.{n >> 8}.{n & 255}"), n, ttl=1),
    "IGMPv3": lambda n: v4(
        IGMPv3_MR(records=[IGMPv3_MR_Group(maddr=f"239.2.0.{n & 255}")]), n, ttl=1
    ),
    "OSPF": lambda n: v4(OSPF_Hdr(src=f"10.9.0.{n & 255}") / OSPF_Hello(), n, ttl=1),
    "VRRP": lambda n: v4(VRRP(vrid=n & 255, addrlist=[NEAR]), n, ttl=255),
    "PIM": lambda n: v4(PIMv2Hdr() / raw(n), n, ttl=1),
    "EIGRP": lambda n: v4(raw(n), n, proto=88),
    "SCTP": lambda n: v4(SCTP(sport=7, dport=8, tag=1) / SCTPChunkData(tsn=n, data=b"x" * 20), n),
    "SCTP INIT": lambda n: v4(SCTP(sport=7, dport=8) / SCTPChunkInit(init_tag=n), n),
    "DCCP": lambda n: v4(raw(n), n, proto=33),
    "ESP": lambda n: v4(ESP(spi=5, seq=n, data=b"y" * 48), n),
    "AH": lambda n: v4(AH(spi=5, seq=n, icv=b"z" * 12) / UDP() / raw(n), n),
    "IP options": lambda n: IP(
        bytes(IP(src=NEAR, dst=FAR, id=n, options=[b"\x94\x04\0\0"]) / udp(n))
    ),
    "unknown protocol": lambda n: v4(raw(n), n, proto=253),
    "first fragment": lambda n: v4(udp(n), n, flags="MF"),
    "later fragment": lambda n: v4(raw(n, 64), n, frag=185, proto=17),
    "QUIC-like": lambda n: v4(
        udp(n, 443, Raw(b"\xc3\0\0\0\1\x08" + struct.pack(">Q", n) + bytes(1150))), n
    ),
    "RTP": lambda n: v4(udp(n, 5004, RTP(sequence=n, timestamp=160 * n) / Raw(bytes(160))), n),
    "DNS": lambda n: v4(udp(n, 53, DNS(id=n, qd=DNSQR(qname="example.org"))), n),
    "mDNS": lambda n: v4(udp(n, 5353, DNS(id=0, qd=DNSQR(qname=f"a{n}.local"))), n),
    "DHCP": lambda n: v4(
        udp(n, 67, BOOTP(xid=n) / DHCP(options=[("message-type", "discover"), "end"])), 0
    ),
    "NTP": lambda n: v4(udp(n, 123, NTPHeader(sent=n)), n),
    "TFTP": lambda n: v4(udp(n, 69, TFTP() / TFTP_DATA(block=n) / Raw(bytes(512))), n),
    "BFD": lambda n: v4(udp(n, 3784, BFD(my_discriminator=n)), n, ttl=255),
    "syslog": lambda n: v4(udp(n, 514, Raw(b"<13>event %d" % n)), n),
    "WireGuard": lambda n: v4(
        udp(n, 51820, Raw(b"\4\0\0\0" + struct.pack("<IQ", 7, n) + bytes(64))), n
    ),
    "L2TP": lambda n: v4(udp(n, 1701, L2TP(tunnel_id=n) / raw(n)), n),
    "GTP echo": lambda n: v4(
        udp(n, 2152, GTP_U_Header(teid=0, gtp_type=1, S=1, seq=n) / GTPEchoRequest()), n
    ),
    "VXLAN of ARP": lambda n: v4(
        udp(n, 4789, VXLAN(vni=4) / on_the_wire(ARP(pdst=f"10.2.0.{n & 255}"))), n
    ),
    "jumbo": lambda n: v4(udp(n, 9, raw(n, 8_950)), n),
    "merged by an offload": lambda n: v4(TCP(seq=n, flags="PA") / raw(n, 60_000), n),
}
V6: dict[str, Maker] = {
    "UDP": lambda n: v6(udp(n)),
    "TCP": lambda n: v6(TCP(seq=n, flags="A") / raw(n)),
    "hop by hop": lambda n: v6(IPv6ExtHdrHopByHop(options=[RouterAlert()]) / udp(n)),
    "destination options": lambda n: v6(
        IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / udp(n)
    ),
    "routing": lambda n: v6(IPv6ExtHdrRouting(addresses=["2001:db8::9"]) / udp(n)),
    "fragment": lambda n: v6(IPv6ExtHdrFragment(id=n, offset=0, m=1) / udp(n)),
    "later fragment": lambda n: v6(IPv6ExtHdrFragment(id=n, offset=90, m=0, nh=17) / raw(n)),
    "all extensions": lambda n: v6(
        IPv6ExtHdrHopByHop()
        / IPv6ExtHdrDestOpt()
        / IPv6ExtHdrRouting(addresses=["2001:db8::9"])
        / IPv6ExtHdrFragment(id=n)
        / IPv6ExtHdrDestOpt()
        / TCP(seq=n)
        / raw(n)
    ),
    "AH": lambda n: v6(AH(spi=5, seq=n, icv=b"z" * 12) / udp(n)),
    "ESP": lambda n: v6(ESP(spi=5, seq=n, data=b"y" * 48)),
    "no next header": lambda n: v6(raw(n), nh=59),
    "mobility": lambda n: v6(Raw(b"\x3b\1\5\0\0\0" + struct.pack(">H", n) + bytes(8)), nh=135),
    "echo": lambda n: v6(ICMPv6EchoRequest(id=3, seq=n) / raw(n)),
    "unreachable": lambda n: v6(
        ICMPv6DestUnreach() / IPerror6(src=FAR6, dst=NEAR6) / UDPerror() / raw(n)
    ),
    "too big": lambda n: v6(
        ICMPv6PacketTooBig(mtu=1280 + n) / IPerror6(src=FAR6) / UDPerror() / raw(n)
    ),
    "exceeded": lambda n: v6(ICMPv6TimeExceeded() / IPerror6(src=FAR6) / UDPerror() / raw(n)),
    "NS": lambda n: v6(ICMPv6ND_NS(tgt=f"2001:db8::{n:x}")),
    "NA": lambda n: v6(ICMPv6ND_NA(tgt=f"2001:db8::{n:x}")),
    "RA": lambda n: v6(ICMPv6ND_RA(reachabletime=n)),
    "MLD": lambda n: v6(
        IPv6ExtHdrHopByHop(options=[RouterAlert()]) / ICMPv6MLQuery(mladdr=f"ff02::{n:x}")
    ),
    "MLDv2": lambda n: v6(IPv6ExtHdrHopByHop(options=[RouterAlert()]) / ICMPv6MLReport2() / raw(n)),
    "DHCPv6": lambda n: v6(udp(n, 547, DHCP6_Solicit(trid=n) / DHCP6OptClientId())),
    "IPv4": lambda n: v6(v4(udp(n), 0)),
    "jumbo": lambda n: v6(udp(n, 9, raw(n, 8_900))),
}
CARRIED: dict[str, Maker] = {
    "VLAN": lambda n: on_the_wire(Dot1Q(vlan=5) / v4(udp(n), n)),
    "QinQ": lambda n: on_the_wire(Dot1AD(vlan=7) / Dot1Q(vlan=5) / v6(udp(n))),
    "QinQ of three": lambda n: on_the_wire(
        Dot1AD(vlan=7) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / v4(udp(n), n)
    ),
    "MPLS": lambda n: on_the_wire(MPLS(label=16, s=1) / v4(udp(n), n)),
    "MPLS of three": lambda n: on_the_wire(
        MPLS(label=16, s=0) / MPLS(label=17, s=0) / MPLS(label=18, s=1) / v6(udp(n))
    ),
    "MPLS of Ethernet": lambda n: on_the_wire(
        MPLS(label=16, s=1) / Raw(bytes(4) + bytes(inner(n)))
    ),
    "VLAN, PPPoE": lambda n: on_the_wire(
        Dot1Q(vlan=5) / PPPoE(sessionid=3) / PPP() / v4(udp(n), n)
    ),
    "PPPoE of IPv6": lambda n: on_the_wire(PPPoE(sessionid=3) / PPP() / v6(udp(n))),
    "IP in IP": lambda n: on_the_wire(v4(v4(udp(n), n), 0)),
    "IPv6 in IP": lambda n: on_the_wire(v4(v6(udp(n)), 0)),
    "IPv6 in IPv6": lambda n: on_the_wire(v6(v6(udp(n)))),
    "GRE": lambda n: on_the_wire(v4(GRE() / v4(udp(n), n), 0)),
    "GRE with all fields": lambda n: on_the_wire(
        v4(
            GRE(key_present=1, key=9, chksum_present=1, seqnum_present=1, sequence_number=n)
            / v4(udp(n), n),
            0,
        )
    ),
    "GRE of Ethernet": lambda n: on_the_wire(v4(GRE(proto=0x6558) / inner(n), 0)),
    "GRE of MPLS": lambda n: on_the_wire(v4(GRE(proto=0x8847) / MPLS(s=1) / v4(udp(n), n), 0)),
    "PPTP": lambda n: on_the_wire(v4(Raw(b"\x30\x01\x88\x0b\0\x28\0\7") / raw(n), n, proto=47)),
    "ERSPAN I": lambda n: on_the_wire(v4(GRE(proto=0x88BE) / ERSPAN_I() / inner(n), 0)),
    "ERSPAN II": lambda n: on_the_wire(
        v4(GRE(proto=0x88BE, seqnum_present=1, sequence_number=n) / ERSPAN_II() / inner(n), 0)
    ),
    "VXLAN": lambda n: on_the_wire(v4(udp(n, 4789, VXLAN(vni=42) / inner(n)), 0)),
    "VXLAN of VLAN": lambda n: on_the_wire(
        v6(udp(n, 4789, VXLAN(vni=42) / on_the_wire(Dot1Q(vlan=5) / v6(udp(n)))))
    ),
    "VXLAN-GPE": lambda n: on_the_wire(v4(udp(n, 4790, raw(n)), 0)),
    "Geneve": lambda n: on_the_wire(v4(udp(n, 6081, GENEVE(vni=42, proto=0x6558) / inner(n)), 0)),
    "Geneve with options": lambda n: on_the_wire(
        v4(udp(n, 6081, Raw(b"\2\0\x65\x58\0\0\x2a\0\1\2\3\1\0\0\0\0") / inner(n)), 0)
    ),
    "GTP-U": lambda n: on_the_wire(
        v4(udp(n, 2152, GTP_U_Header(teid=5, gtp_type=255) / v4(udp(n), n)), 0)
    ),
    "GTP-U of 5G": lambda n: on_the_wire(
        v4(
            udp(
                n,
                2152,
                GTP_U_Header(teid=5, gtp_type=255, E=1)
                / GTPPDUSessionContainer(QFI=9)
                / v6(udp(n)),
            ),
            0,
        )
    ),
    "VLAN, MPLS, GRE, IPv6": lambda n: on_the_wire(
        Dot1Q(vlan=5) / MPLS(label=16, s=1) / v4(GRE() / v6(TCP(seq=n) / raw(n)), 0)
    ),
    "VXLAN in VXLAN": lambda n: on_the_wire(
        v4(udp(n, 4789, VXLAN() / on_the_wire(v4(udp(n, 4789, VXLAN() / inner(n)), 1))), 0)
    ),
}
REFUSED: dict[str, Maker] = {
    "less than a header of Ethernet": lambda n: Raw(struct.pack(">H", n) + bytes(10)),
    "no IP behind its type": lambda n: Raw(bytes(on_the_wire(raw(n, 12), type=0x0800))),
    "IPv4 of another version": lambda n: Raw(
        bytes(on_the_wire(Raw(b"\x95") / raw(n), type=0x0800))
    ),
    "IPv6 without an end of its header": lambda n: Raw(bytes(on_the_wire(v6(udp(n))))[:50]),
    "a tag and nothing": lambda n: Raw(bytes(on_the_wire(Raw(b""), type=0x8100))),
}
"""What has no key, as it is no packet: each kind is refused, and counted."""


def kinds() -> dict[str, Maker]:
    """All kinds of frames that have a key, by name."""
    plain = {f"IPv4 {name}": lambda n, made=made: on_the_wire(made(n)) for name, made in V4.items()}
    newer = {f"IPv6 {name}": lambda n, made=made: on_the_wire(made(n)) for name, made in V6.items()}
    return WITHOUT_IP | plain | newer | CARRIED


def frames(each: int) -> Iterator[tuple[str, bytes]]:
    """Frames of all kinds by turns, those that are refused as well, as a card pads them."""
    makers = kinds() | REFUSED
    for number in range(each):
        for place, (name, made) in enumerate(makers.items()):
            data = bytes(made(1 + number * len(makers) + place))
            yield name, data if name in REFUSED else data.ljust(PADDED_LEN, b"\0")

"""`tailtap evaluate` with captures of any link type, compression and stamp, as scapy writes them.

When each packet passed is known from the start, so that every latency is.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from blocks import enhanced, interface, section
from captures import COMPRESSIONS, compressed, erf, frame, pcap, with_trailer
from program import answer, in_process, one_line_error
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, CookedLinux, CookedLinuxV2, Ether, Loopback
from scapy.layers.ppp import DIR_PPP, HDLC, PPP, PPPoE
from scapy.packet import Packet, Raw
from scapy.utils import wrerf, wrpcap, wrpcapng

SECOND = 1_000_000_000
PACKETS = 240
START = 1_760_000_000 * SECOND
draw = random.Random(1)
TIMES = [START + 50_000 * number + draw.randrange(10_000) for number in range(PACKETS)]
LATENCIES = [draw.randrange(3_000, 9_000) for _ in range(PACKETS)]
LEFT = [time + latency for time, latency in zip(TIMES, LATENCIES, strict=True)]

Wrap: TypeAlias = Callable[[Packet], Packet]


def network(number: int) -> Packet:
    """A packet of IP or IPv6; those of IPv6 have no id, but other ports and payload."""
    payload = Raw(bytes([number % 251]) * (number % 40) + number.to_bytes(4, "big"))
    if number % 3 == 0:
        return IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=1024, dport=5000) / payload
    ip = IP(src="198.51.100.1", dst="203.0.113.9", id=number)
    return ip / TCP(sport=40_000, dport=443, seq=1000 * number, flags="PA") / payload


NETWORK = [network(number) for number in range(PACKETS)]
V4 = [IP(bytes(packet)) for packet in NETWORK if IP in packet]


def ethertype(packet: Packet) -> int:
    return 0x0800 if packet.version == 4 else 0x86DD


def stamped(packets: Iterable[Packet], times: Iterable[int]) -> list[tuple[int, bytes]]:
    return [(time, bytes(packet)) for time, packet in zip(times, packets, strict=True)]


def ethernet(packet: Packet) -> bytes:
    """The packet's frame, padded as an interface does."""
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet).ljust(60, b"\0")


#: By the number of the link type, what is in front of a packet.
LINKS: dict[int, Wrap] = {
    0: lambda packet: Loopback(type=2 if packet.version == 4 else 28) / packet,
    9: lambda packet: PPP() / packet,
    12: lambda packet: packet,
    14: lambda packet: packet,
    50: lambda packet: HDLC() / PPP() / packet,
    51: lambda packet: PPPoE(sessionid=5) / PPP() / packet,
    101: lambda packet: packet,
    104: lambda packet: Raw(struct.pack(">HH", 0x0F00, ethertype(packet)) + bytes(packet)),
    108: lambda packet: Raw(struct.pack(">I", 2 if packet.version == 4 else 24) + bytes(packet)),
    113: lambda packet: CookedLinux(pkttype=4, proto=ethertype(packet)) / packet,
    197: lambda packet: Raw(erf([(START, ethernet(packet))])),
    204: lambda packet: DIR_PPP(direction=1) / PPP() / packet,
    219: lambda packet: MPLS(label=16, s=1, ttl=9) / packet,
    276: lambda packet: CookedLinuxV2(proto=ethertype(packet), ifindex=3) / packet,
}
FRAMES = list(zip(LEFT, map(ethernet, NETWORK), strict=True))
"""What comes out of the device."""
AFTER = pcap(FRAMES)
ETHERNET = pcap([(time, ethernet(packet)) for time, packet in zip(TIMES, NETWORK, strict=True)])


def evaluate(folder: Path, before: bytes, after: bytes | Path, *more: str) -> dict[str, Any]:
    (folder / "in").write_bytes(before)
    if isinstance(after, bytes):
        (folder / "out").write_bytes(after)
        after = folder / "out"
    return answer("evaluate", folder / "in", after, *more)


def require_right(found: dict[str, Any], latencies: list[int] = LATENCIES) -> None:
    """Every packet was found, and took what it took."""
    assert found["counts"]["matched"] == len(latencies), found["counts"]
    assert (found["counts"]["lost"], found["counts"]["unmatched_egress"]) == (0, 0)
    took = [worst["latency"] for worst in found["worst"]]
    assert took == sorted(latencies, reverse=True)
    told = {warning["code"] for warning in found["warnings"]}
    assert told <= {"few-packets"}, found["warnings"]
    # What a capture without frames does not show was changed by nobody.
    changed = {change["what"] for change in found.get("device", {}).get("changes", [])}
    assert changed <= {"headers"}, changed


@pytest.mark.parametrize("linktype", LINKS)
def test_a_capture_without_frames_matches_one_with(tmp_path: Path, linktype: int) -> None:
    packets = [LINKS[linktype](packet) for packet in NETWORK]
    after = pcapng([linktype], [(0, bytes(packet)) for packet in packets])
    require_right(evaluate(tmp_path, ETHERNET, after))
    # The other way round, as pcap and by a key that was given.
    early = [time - 20_000 for time in TIMES]
    before = pcap(stamped(packets, early), linktype=linktype)
    found = evaluate(tmp_path, before, ETHERNET, "--key", "packet-payload")
    require_right(found, [time - left for time, left in zip(TIMES, early, strict=True)])


@pytest.mark.parametrize(("linktype", "version"), [(228, 4), (229, 6)])
def test_link_types_of_one_protocol(tmp_path: Path, linktype: int, version: int) -> None:
    some = [number for number in range(PACKETS) if NETWORK[number].version == version]
    before = pcap([(TIMES[number], ethernet(NETWORK[number])) for number in some])
    after = pcap([(LEFT[number], bytes(NETWORK[number])) for number in some], linktype=linktype)
    require_right(evaluate(tmp_path, before, after), [LATENCIES[number] for number in some])


def codes(found: dict[str, Any]) -> set[str]:
    return {warning["code"] for warning in found["warnings"]}


def warned(found: dict[str, Any], code: str) -> str:
    [message] = [one["message"] for one in found["warnings"] if one["code"] == code]
    return str(message)


def refused(folder: Path, before: bytes, after: bytes, *more: str) -> str:
    """What is said of two captures that cannot be evaluated."""
    (folder / "in").write_bytes(before)
    (folder / "out").write_bytes(after)
    return one_line_error(in_process("evaluate", folder / "in", folder / "out", *more), 2)


def test_erf_files_of_ip_and_as_scapy_writes_them(tmp_path: Path) -> None:
    out = tmp_path / "out.erf"
    out.write_bytes(
        erf([(time, data[14:]) for time, data in FRAMES if data[12:14] == b"\x08\0"], kind=22)
    )
    some = [number for number in range(PACKETS) if IP in NETWORK[number]]
    before = pcap([(TIMES[number], ethernet(NETWORK[number])) for number in some])
    require_right(evaluate(tmp_path, before, out), [LATENCIES[number] for number in some])
    written = [Ether(data) for _, data in FRAMES]
    for packet, time in zip(written, LEFT, strict=True):
        packet.time, packet.wirelen = time / SECOND, len(packet)
    wrerf(str(out), written)
    found = evaluate(tmp_path, ETHERNET, out)
    assert found["counts"]["matched"] == PACKETS
    # A float of these years resolves 0.24 us.
    assert found["latency_ns"]["max"] == pytest.approx(max(LATENCIES), abs=500)


def test_frames_that_are_not_of_ip_match_too(tmp_path: Path) -> None:
    asked = [ARP(psrc="192.0.2.1", pdst=f"192.0.2.{number + 2}") for number in range(200)]
    before = pcap([(time, ethernet(packet)) for time, packet in zip(TIMES, asked, strict=False)])
    for linktype, packets in {
        113: [CookedLinux(pkttype=1, proto=0x0806) / packet for packet in asked],
        276: [CookedLinuxV2(proto=0x0806) / packet for packet in asked],
    }.items():
        after = pcap(stamped(packets, LEFT[:200]), linktype=linktype)
        require_right(evaluate(tmp_path, before, after), LATENCIES[:200])


def test_scapys_own_files_are_read_as_scapy_means_them(tmp_path: Path) -> None:
    """scapy takes the link type from the packets; its stamps are those of its own reader."""
    for name, wrap in {"cooked": LINKS[113], "null": LINKS[0], "ppp": LINKS[9]}.items():
        packets = [wrap(packet) for packet in NETWORK]
        for packet, time in zip(packets, LEFT, strict=True):
            packet.time = (time // 1000) / 1_000_000
        for write in (wrpcap, wrpcapng):
            write(str(tmp_path / name), packets)
            found = evaluate(tmp_path, ETHERNET, tmp_path / name)
            assert found["counts"]["matched"] == PACKETS
            assert found["latency_ns"]["max"] == pytest.approx(max(LATENCIES), abs=2_000)


@pytest.mark.parametrize("linktype", [0, 9, 50, 101, 113, 276])
def test_tshark_sees_the_same_times(tmp_path: Path, linktype: int) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    frames = [ethernet(packet) for packet in V4]
    (tmp_path / "a").write_bytes(pcap(list(zip(TIMES, frames, strict=False))))
    wrapped = [LINKS[linktype](packet) for packet in V4]
    (tmp_path / "b").write_bytes(pcap(stamped(wrapped, LEFT[: len(V4)]), linktype=linktype))

    def times(path: Path) -> dict[str, int]:
        fields = ["-T", "fields", "-e", "ip.id", "-e", "frame.time_epoch"]
        run = subprocess.run(
            ["tshark", "-n", "-r", path, *fields], capture_output=True, text=True, check=True
        )
        rows = [line.split("\t") for line in run.stdout.splitlines()]
        return {key: int(time.replace(".", "")) for key, time in rows}

    before, after = times(tmp_path / "a"), times(tmp_path / "b")
    seen = sorted((after[key] - before[key] for key in before), reverse=True)
    found = evaluate(tmp_path, (tmp_path / "a").read_bytes(), tmp_path / "b")
    assert [worst["latency"] for worst in found["worst"]] == seen


def test_moonsniffs_ids_are_found_in_cooked_captures(tmp_path: Path) -> None:
    frames = [frame(number) for number in range(PACKETS)]
    head = struct.pack(">HHHQH", 0, 1, 6, 0, 0x0800)
    after = pcap(
        [(time, head + data[14:]) for time, data in zip(LEFT, frames, strict=True)], linktype=113
    )
    found = evaluate(tmp_path, pcap(list(zip(TIMES, frames, strict=True))), after)
    assert found["key"] == "moonsniff"
    require_right(found)


def pcapng(links: list[int], packets: list[tuple[int, bytes]]) -> bytes:
    """A file with an interface of each link type; packets with the number of theirs, at `LEFT`."""
    rows = zip(packets, LEFT, strict=True)
    blocks = [enhanced(time, raw, number) for (number, raw), time in rows]
    return b"".join([section(), *map(interface, links), *blocks])


@pytest.mark.parametrize("key", ["signature", "18:2:be"])
def test_keys_at_a_place_of_the_frame_need_frames(tmp_path: Path, key: str) -> None:
    packets = [LINKS[113](packet) for packet in NETWORK]
    cooked = pcap(stamped(packets, LEFT), linktype=113)
    message = refused(tmp_path, ETHERNET, cooked, "--key", key)
    assert "without the Ethernet header" in message and "--key packet" in message
    # A number that counts from the packet's end needs none.
    require_right(evaluate(tmp_path, ETHERNET, cooked, "--key", "-4:4:be"))
    # Some packets with, some without: those without are counted, by their reason.
    half = PACKETS // 2
    data = [(0, FRAMES[n][1]) if n < half else (1, bytes(packets[n])) for n in range(PACKETS)]
    after = pcapng([1, 113], data)
    found = evaluate(tmp_path, ETHERNET, after, "--key", key)
    assert found["inputs"]["egress"]["unread"] == {"no-ethernet": half}
    assert "no-ethernet-header" in codes(found)
    require_right(evaluate(tmp_path, ETHERNET, after))


def test_a_file_with_several_link_types_is_read_whole(tmp_path: Path) -> None:
    links = [1, 113, 276, 101, 0]
    packets = [
        (number % 5, bytes(LINKS[links[number % 5]](packet)) if number % 5 else ethernet(packet))
        for number, packet in enumerate(NETWORK)
    ]
    require_right(evaluate(tmp_path, ETHERNET, pcapng(links, packets)))


def test_links_without_a_protocol_are_counted(tmp_path: Path) -> None:
    raw = [bytes(LINKS[0](packet)) for packet in NETWORK]
    raw[::10] = [struct.pack("<I", 77) + one[4:] for one in raw[::10]]
    raw[1] = raw[1][:3]
    found = evaluate(tmp_path, ETHERNET, pcap(list(zip(LEFT, raw, strict=True)), linktype=0))
    assert found["inputs"]["egress"]["unread"] == {"link-header": PACKETS // 10 + 1}
    message = warned(found, "unread-packets")
    assert "25 behind a link's header that is cut off or names no protocol" in message
    nothing = pcap([(time, b"\x99" * 40) for time in LEFT], linktype=101)
    message = refused(tmp_path, ETHERNET, nothing)
    assert f"no packet can be read: {PACKETS} behind a link's header" in message


@pytest.mark.parametrize("how", COMPRESSIONS)
def test_every_compression_is_read_also_in_several_streams(tmp_path: Path, how: str) -> None:
    require_right(evaluate(tmp_path, ETHERNET, compressed(AFTER, how)))
    streams = [AFTER[:1000], AFTER[1000:1001], AFTER[1001:]]
    joined = b"".join(compressed(stream, how) for stream in streams)
    require_right(evaluate(tmp_path, compressed(ETHERNET, how), joined))
    (tmp_path / "plain").write_bytes(AFTER)
    if shutil.which(how) is not None:  # what the programs themselves compress
        for level in ("-1", "-9"):
            run = subprocess.run(
                [how, level, "-c", tmp_path / "plain"], capture_output=True, check=True
            )
            require_right(evaluate(tmp_path, ETHERNET, run.stdout))


@pytest.mark.parametrize("how", COMPRESSIONS)
def test_a_compressed_file_that_is_cut_off_says_so(tmp_path: Path, how: str) -> None:
    """Wherever it is cut: no packet behind it is called lost without a word."""
    noise = random.Random(2)
    data = pcap([(time, frame + noise.randbytes(400)) for time, frame in FRAMES])
    file = b"".join(compressed(data[at : at + 30_000], how) for at in range(0, len(data), 30_000))
    whole = compressed(data[:30_000], how)
    (tmp_path / "in").write_bytes(ETHERNET)
    for end in (*(len(whole) + more for more in (-1, -4, -5, 3)), len(file) - 8):
        (tmp_path / "out").write_bytes(file[:end])
        run = in_process("evaluate", tmp_path / "in", tmp_path / "out", "--json", "--quiet")
        if run.returncode == 0:
            assert "capture-damaged" in codes(json.loads(run.stdout)), end
        else:
            message = one_line_error(run, 2)
            assert how in message and "broken" in message


def trailered(times: list[int], stamps: list[int], **how: Any) -> list[tuple[int, bytes]]:
    return [
        (time, with_trailer(ethernet(packet), stamp, **how))
        for time, stamp, packet in zip(times, stamps, NETWORK, strict=True)
    ]


#: When the packets were captured behind the switch, microseconds later, and each by its own.
CAPTURED = [[time + draw.randrange(2_000, 40_000) for time in stamps] for stamps in (TIMES, LEFT)]


@pytest.mark.parametrize("kind", ["metamako", "exablaze"])
@pytest.mark.parametrize("again", [False, True], ids=["", "with the check sequence"])
def test_stamps_of_a_switch_count_where_both_captures_have_them(
    tmp_path: Path, kind: str, again: bool
) -> None:
    def capture(number: int, stamps: list[int]) -> bytes:
        packets = trailered(CAPTURED[number], stamps, kind=kind, port=number)
        if again:
            packets = [(time, with_trailer(data, 0)[: len(data) + 4]) for time, data in packets]
        return pcap(sorted(packets))

    before, after = capture(0, TIMES), capture(1, LEFT)
    found = evaluate(tmp_path, before, after)
    name = "Arista" if kind == "metamako" else "Cisco"
    assert all(found["inputs"][side]["trailer"].startswith(name) for side in ("ingress", "egress"))
    found["warnings"] = [one for one in found["warnings"] if one["code"] != "fcs-taken-off"]
    require_right(found)
    run = in_process("evaluate", tmp_path / "in", tmp_path / "out", "--quiet")
    assert f"stamps after the device: those of a switch's trailers, {name}" in run.stdout
    by_record = evaluate(tmp_path, before, after, "--stamps", "record")
    took = sorted((late - early for early, late in zip(*CAPTURED, strict=True)), reverse=True)
    shown = [worst["latency"] for worst in by_record["worst"]]
    assert shown == [latency for latency in took if latency >= 0]
    assert "trailer" not in by_record["inputs"]["egress"]


def test_trailers_with_further_fields_are_read(tmp_path: Path) -> None:
    field = bytes([0, 1, 2, 3]) + bytes([0, 0, 0, 0x60 | 1])
    before = pcap(trailered(TIMES, TIMES, fields=field))
    after = pcap(trailered(TIMES, LEFT, fields=bytes([0, 0, 9]) + b"\x20"))
    found = evaluate(tmp_path, before, after)
    require_right(found)
    assert found["inputs"]["egress"]["trailer"]


def test_trailers_of_one_side_alone_are_told_and_left_alone(tmp_path: Path) -> None:
    after = pcap(trailered(LEFT, [time + 77_000 for time in LEFT]))
    found = evaluate(tmp_path, ETHERNET, after)
    assert "--stamps trailer" in warned(found, "trailers-unused")
    assert found["latency_ns"]["max"] == max(LATENCIES)
    found = evaluate(tmp_path, ETHERNET, after, "--stamps", "trailer")
    assert warned(found, "trailers-one-side")
    assert found["latency_ns"]["max"] == max(LATENCIES) + 77_000


def test_packets_without_a_trailer_are_not_read_and_no_loss(tmp_path: Path) -> None:
    packets = trailered(CAPTURED[1], LEFT)
    for number in (150, 160):
        packets[number] = (packets[number][0], ethernet(NETWORK[number]))
    before = pcap(trailered(CAPTURED[0], TIMES))
    found = evaluate(tmp_path, before, pcap(packets), "--stamps", "trailer")
    assert found["inputs"]["egress"]["unread"] == {"without-trailer": 2}
    assert found["counts"]["matched"] == PACKETS - 2
    assert found["options"]["stamps"] == "trailer"


def test_a_payload_that_looks_like_a_stamp_is_none(tmp_path: Path) -> None:
    """The last bytes of the packets themselves are times, as some generators write them."""

    def capture(times: list[int]) -> bytes:
        packets = []
        for number, time in enumerate(times):
            seconds, rest = divmod(TIMES[number] - 5_000, SECOND)
            payload = Raw(struct.pack(">IIII", number, seconds, rest, 0))
            data = ethernet(IP(src="192.0.2.1", dst="192.0.2.2", id=number) / UDP() / payload)
            packets.append((time, data))
        return pcap(packets)

    found = evaluate(tmp_path, capture(TIMES), capture(LEFT))
    require_right(found)
    assert "trailer" not in found["inputs"]["ingress"]


def test_trailers_of_a_clock_that_was_never_set_count_where_asked(tmp_path: Path) -> None:
    """The records are of 1970, and the trailers not: nothing but the option says which is right."""
    years = 55 * 365 * 24 * 3600 * SECOND
    for kind in ("metamako", "exablaze"):
        before, after = (
            pcap([(time - years, data) for time, data in trailered(times, stamps, kind=kind)])
            for times, stamps in zip(CAPTURED, (TIMES, LEFT), strict=True)
        )
        found = evaluate(tmp_path, before, after, "--stamps", "trailer")
        assert found["latency_ns"]["max"] == max(LATENCIES)
        assert "trailer" not in evaluate(tmp_path, before, after)["inputs"]["ingress"]


@pytest.mark.parametrize("made", ["zeros", "the sender's", "a counter"])
def test_one_field_that_fits_is_no_trailer(tmp_path: Path, made: str) -> None:
    """Frames end in zeros in 1970, in times of the sender, or in times and a counter."""

    def capture(times: list[int]) -> bytes:
        packets = []
        for number, time in enumerate(times):
            start = TIMES[number] - 5_000
            data = bytes(12) + b"\x88\xb5" + struct.pack(">I", number) + bytes(46)
            if made == "the sender's":
                data = with_trailer(data, start)
            elif made == "a counter":
                fields = (*divmod(time, SECOND), number << 12)
                data = ethernet(NETWORK[number]) + bytes(4) + struct.pack(">III", *fields)
            packets.append((time % (100 * SECOND) if made == "zeros" else time, data))
        return pcap(packets)

    found = evaluate(tmp_path, capture(TIMES), capture(LEFT))
    assert found["latency_ns"]["max"] == max(LATENCIES)
    assert "trailer" not in found["inputs"]["ingress"]


def test_clocks_are_aligned_by_the_stamps_that_count(tmp_path: Path) -> None:
    """Trailers one way and records the other way are of more than two clocks."""
    files = []
    for name, times in {"in": TIMES, "out": LEFT}.items():
        for kind, packets in (("", trailered(times, times)), ("-plain", [
            (time, data) for time, (_, data) in zip(times, FRAMES, strict=True)
        ])):  # fmt: skip
            files.append(tmp_path / f"{name}{kind}")
            files[-1].write_bytes(pcap(packets))
    words = ("evaluate", files[0], files[2], "--back", files[1], files[3])
    message = one_line_error(in_process(*words), 2)
    assert "not of the same clocks" in message and "--stamps record or trailer" in message
    assert in_process(*words, "--stamps", "record", "--json").returncode == 0

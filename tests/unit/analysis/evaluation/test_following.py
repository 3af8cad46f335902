"""What is said of devices that change packets; seeds try that packets are followed."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from pairs import said
from scapy.layers.inet import IP, TCP, UDP
from scapy.packet import Packet, Raw

from tailtap.analysis.evaluation import Evaluation, evaluate
from tests.simulation.devices import (
    ADD,
    again,
    any_sent,
    hop,
    nat,
    new_payload,
    on_the_wire,
    payload,
    renumber,
    sent,
)
from tests.simulation.trials.devices import STEP_NS, captured, passed, require_all

PACKETS = 80


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_what_is_within_is_what_tshark_finds(tmp_path: Path) -> None:
    # What a session of L2TP carries it knows only from how that was set up.
    names = [name for name in ADD if name not in ("padding", "l2tp-3", "l2tp-3-ip")]
    draw = random.Random(1)
    frames = [
        ADD[name](on_the_wire(IP(id=1000 + n) / UDP(dport=5000) / Raw(b"within")), draw)
        for n, name in enumerate(names)
    ]
    path = captured(tmp_path, "all.pcap", list(enumerate(frames)))
    fields = ["-T", "fields", "-E", "occurrence=l", "-e", "ip.id"]
    run = subprocess.run(
        ["tshark", "-r", path, *fields], capture_output=True, text=True, check=True
    )
    found = {name: int(ip_id, 0) for name, ip_id in zip(names, run.stdout.split(), strict=True)}
    assert found == {name: 1000 + n for n, name in enumerate(names)}


def test_another_payload_is_told(tmp_path: Path) -> None:
    draw = random.Random(1)
    frames = [any_sent(n, draw) for n in range(PACKETS)]
    found, _ = passed(tmp_path, frames, [hop, nat], draw)
    assert "differ" in (found.key_reason or "")
    frames = [
        on_the_wire(IP(src="10.0.0.1", dst="10.0.0.2", id=n + 1) / UDP() / Raw(payload(n, draw)))
        for n in range(PACKETS)
    ]
    found, _ = passed(tmp_path, frames, [hop, new_payload], draw)
    assert found.lost_at_least == 0 and "payload-changed" in said(found)


def test_new_numbers_of_tcp_are_no_new_payload(tmp_path: Path) -> None:
    frames = [on_the_wire(IP(id=n + 1) / TCP(seq=n, flags="A")) for n in range(PACKETS)]
    found, took = passed(tmp_path, frames, [renumber], random.Random(1))
    require_all(found, took, PACKETS)
    assert found.key_reason is not None and "payload" not in found.key_reason
    assert changes(found)["TCP sequence number"][2] == len(took)
    assert "payload" not in said(found)["payload-changed"]


def changes(found: Evaluation) -> dict[str, tuple[str, str, int]]:
    assert found.device is not None
    return {row.what: (row.before, row.after, row.packets) for row in found.device.changes}


def test_what_a_device_did_is_told(tmp_path: Path) -> None:
    """As it did it; fields that it left alone are not there."""
    draw = random.Random(4)
    header = IP(src="10.0.0.1", dst="192.0.2.9", ttl=64)
    frames = []
    for number in range(PACKETS):
        header.id = number + 1
        udp = UDP(sport=5000, dport=53) / Raw(payload(number, draw))
        frames.append(on_the_wire(header.copy() / udp))
    found, _ = passed(tmp_path, frames, [hop, nat, ADD["vlan"]], draw)
    matched = found.counts.matched
    assert changes(found) == {
        "source MAC": ("02:00:00:00:00:01", "02:00:00:00:00:03", matched),
        "destination MAC": ("02:00:00:00:00:02", "02:00:00:00:00:04", matched),
        "headers": ("", "VLAN 100", matched),
        "source address": ("10.0.0.1", "198.51.100.1", matched),
        "source port": ("5000", "35000", matched),
        "time to live": ("64", "63", matched),
    }
    found, _ = passed(tmp_path, frames, [ADD["vxlan"]], draw)
    assert changes(found)["headers"] == ("", "IPv4, VXLAN 42, Ethernet", found.counts.matched)
    found, _ = passed(tmp_path, frames, [], draw)
    assert changes(found) == {}


def test_marks_on_some_packets_are_counted(tmp_path: Path) -> None:
    def third(frame: Packet, draw: random.Random) -> Packet:
        if frame[IP].id % 3 == 0:
            frame[IP].tos = 3
        return again(frame)

    frames = [
        on_the_wire(IP(dst="192.0.2.9", id=n + 1, tos=2) / UDP() / Raw(bytes(30)))
        for n in range(PACKETS)
    ]
    found, _ = passed(tmp_path, frames, [third], random.Random(5))
    before, after, packets = changes(found)["ECN"]
    assert (before, after) == ("ECT(0)", "CE") and 0.2 < packets / found.counts.matched < 0.45


@pytest.mark.parametrize("snap", [60, 64, 96, 128, 300])
def test_what_both_captures_have_of_a_payload_counts(snap: int, tmp_path: Path) -> None:
    draw = random.Random(snap)
    frames = [on_the_wire(sent(number, draw, v6=False)) for number in range(PACKETS)]
    found, took = passed(tmp_path, frames, [hop, ADD["vlan"]], draw, snap)
    require_all(found, took, PACKETS)


def test_captures_that_begin_apart_are_not_matched_by_chance(tmp_path: Path) -> None:
    """The first thousand packets of both have one in common by its payload alone."""
    frames = []
    for number in range(2_600):
        address = f"10.0.{number // 200}.1"
        content = 0 if number == 1_500 else number
        packet = IP(src=address, dst="192.0.2.9", id=number + 1) / UDP() / Raw(b"%08d" % content)
        frames.append((STEP_NS * number, on_the_wire(packet)))
    later = [(time_ns + 5, frame) for time_ns, frame in frames[1_400:]]
    found = evaluate(
        captured(tmp_path, "in", frames), captured(tmp_path, "out", later), throughout=True
    )
    assert (found.key, found.counts.matched, found.counts.lost) == ("packet", 1_200, 1_400)


def test_a_packet_is_shown_by_where_it_went(tmp_path: Path) -> None:
    frames = [on_the_wire(sent(n, random.Random(n), v6=n % 2 == 1)) for n in range(PACKETS)]
    found, _ = passed(tmp_path, frames, [], random.Random(3))
    shown = {packet.key for packet in found.worst()}
    assert any(key.startswith("udp 10.0.0.") and " > 192.0.2.9:" in key for key in shown), shown
    assert any(key.startswith("tcp [2001:db8::1]:") for key in shown), shown

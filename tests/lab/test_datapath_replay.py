"""Replayed captures, judged by taps and by another program."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frames import udp_frame
from namespaces import Namespace
from stamps import read_stamps

TAG = bytes.fromhex("81000005")
GAPS_US = [0, 1_000, 1_500, 50_000, 50_000, 120_000]
"""When the packets of the capture were taken."""


def write_pcap(path: Path, frames: list[bytes], *, wire: int | None = None) -> Path:
    """A capture with microseconds."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)
    for time, frame in zip(GAPS_US, frames, strict=False):
        data += struct.pack("<IIII", 1_000, time, len(frame), wire or len(frame)) + frame
    path.write_bytes(data)
    return path


def tcp_frame() -> bytes:
    frame = udp_frame(0)
    return frame[:23] + b"\x06" + frame[24:]


def replay(
    namespace: Namespace, tmp_path: Path, capture: Path, *options: str
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The generator's report, what the tap counted, and its stamps."""
    namespace.veth("gen", "in")
    path = tmp_path / "in.stamps"
    tap = namespace.start("tap", "in:drop", "--write", str(path))
    sent = namespace.tailtap("generate", "gen", "--replay", str(capture), *options, "--json")
    return json.loads(sent.stdout), tap.stop()["links"]["in"], read_stamps(path)[1]


def test_packets_leave_as_they_are_at_their_own_pace(namespace: Namespace, tmp_path: Path) -> None:
    frames = [udp_frame(7), udp_frame(8, tags=TAG), udp_frame(9, ipv6=True), tcp_frame()]
    capture = write_pcap(tmp_path / "x.pcap", [*frames, udp_frame(1), udp_frame(65_535)])
    report, counted, stamps = replay(namespace, tmp_path, capture)
    assert (report["sent"], report["with_id"], report["rate"]) == (6, 5, None)
    assert report["pattern"] == {"kind": "recorded"}
    assert (counted["seen"], counted["other"]) == (5, 1)
    assert stamps["id"].tolist() == [7, 8, 9, 1, 65_535]
    # Frames without the bytes that fill up the shortest ones.
    assert stamps["len"].tolist() == [60, len(frames[1]), len(frames[2]), 60, 60]
    due = report["first_ns"] + 1_000 * np.array([0, 1_000, 1_500, 50_000, 120_000])
    late = stamps["time"].astype(np.int64) - due
    assert late.min() >= 0
    assert np.median(late) < 5_000_000
    assert report["scheduled_rate"] == pytest.approx(5 / 0.12)


@pytest.mark.parametrize("generator", ["af_packet", "af_xdp"])
def test_ids_are_written_again_and_again(
    namespace: Namespace, tmp_path: Path, generator: str
) -> None:
    frames = [udp_frame(7), udp_frame(7, tags=TAG), tcp_frame(), udp_frame(7, ipv6=True)]
    paced = ("--stamp-ids", "--rate", "10 kpkt/s", "--count", "400", "--warm-up-packets", "9")
    capture = write_pcap(tmp_path / "x.pcap", frames)
    options = (*paced, "--generator", generator)
    report, counted, stamps = replay(namespace, tmp_path, capture, *options)
    assert (report["sent"], report["with_id"], report["warm_up"]["sent"]) == (400, 300, 9)
    assert (counted["seen"], counted["other"]) == (300, 100 + 9)
    # Every third packet of four has no UDP, and its number is left out.
    assert stamps["id"].tolist() == [number for number in range(400) if number % 4 != 2]


def test_checksums_stay_right(namespace: Namespace, tmp_path: Path) -> None:
    """A capture of our own IPv6 packets, whose checksums tshark checks after other ids."""
    namespace.veth("gen", "in")
    namespace.veth("gen2", "in2")
    with namespace.sniffer("in", 5, tmp_path / "in"):
        made = ("--rate", "20 pkt/s", "--count", "40", "--ip", "6", "--size", "80 B")
        namespace.tailtap("generate", "gen", *made)
    with namespace.sniffer("in2", 5, tmp_path / "in2"):
        again = ("--stamp-ids", "--rate", "20 pkt/s", "--count", "40")
        namespace.tailtap("generate", "gen2", "--replay", str(tmp_path / "in"), *again)
    fields = ("-T", "fields", "-e", "udp.checksum.status", "-e", "udp.payload")
    shown = subprocess.run(
        ["tshark", "-r", str(tmp_path / "in2"), "-o", "udp.check_checksum:TRUE", *fields],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")[:-1]
    assert len(shown) == 5
    numbers = []
    for line in shown:
        status, payload = line.split("\t")
        assert status == "1"
        numbers.append(int.from_bytes(bytes.fromhex(payload)[:4], "little"))
        assert bytes.fromhex(payload)[4] == 0x55
    assert np.diff(numbers).tolist() == [1] * 4


BAD: list[tuple[list[bytes], int | None, list[str], str]] = [
    ([tcp_frame()], None, ["--stamp-ids"], "no packet is UDP"),
    ([udp_frame(1)[:30]], 60, [], "packet 1 was cut off to 30 of 60 B"),
    ([], None, [], "there is no packet"),
    ([udp_frame(1)], None, ["--count", "2", "--rate", "1 pkt/s"], "--stamp-ids"),
    ([udp_frame(1)], None, ["--warm-up-packets", "1"], "a warm-up needs ids of its own"),
    ([udp_frame(1)], None, ["--vlan", "5"], "--vlan does not go with --replay"),
    ([udp_frame(1)], None, ["--pattern", "poisson"], "--pattern needs a --rate"),
    ([udp_frame(1) + bytes(1500)], None, [], "its MTU of 1500 B"),
]


def test_captures_that_cannot_be_replayed(namespace: Namespace, tmp_path: Path) -> None:
    namespace.veth("gen", "in")
    refused = []
    for number, (frames, wire, words, said) in enumerate(BAD):
        capture = write_pcap(tmp_path / f"{number}.pcap", frames, wire=wire)
        refused.append((["generate", "gen", "--replay", str(capture), *words], 2, said))
    namespace.refuses(*refused)


def test_files_that_are_no_captures(namespace: Namespace, tmp_path: Path) -> None:
    namespace.veth("gen", "in")
    path = tmp_path / "in.stamps"
    tap = namespace.start("tap", "in:drop", "--write", str(path))
    namespace.tailtap("generate", "gen", "--rate", "1 kpkt/s", "--count", "3")
    tap.stop()
    damaged = write_pcap(tmp_path / "d.pcap", [udp_frame(1), udp_frame(2)])
    damaged.write_bytes(damaged.read_bytes()[:-5])
    for file, said in (
        (path, "holds stamps"),
        (tmp_path / "none", "No such file"),
        (damaged, "damaged after packet 1"),
    ):
        result = namespace.tailtap("generate", "gen", "--replay", str(file), check=False)
        assert result.returncode == 2, result.stderr
        assert said in result.stderr
        assert result.stderr.count("\n") == 1

"""Patterns, sizes, flows, tags and warm-up of the generator, judged on the wire."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from captures import MICROSECONDS, pcap
from frames import tcp_frame, udp_frame
from namespaces import Namespace
from stamps import read_stamps

Times = npt.NDArray[np.int64]


def send(
    namespace: Namespace, tmp_path: Path, *options: str
) -> tuple[dict[str, Any], Times, npt.NDArray[Any]]:
    """The generator's report, the tap's times since the first packet was due, and its stamps."""
    sent = namespace.sent(tmp_path, *options)
    report, stamps = sent.report, sent.stamps
    assert sent.link["seen"] == report["sent"] == len(stamps)
    assert sent.link["other"] == report["warm_up"]["sent"]
    assert np.array_equal(stamps["id"], np.arange(len(stamps)))
    return report, sent.since_due_ns(0), stamps


def test_imix_has_its_shares(namespace: Namespace, tmp_path: Path) -> None:
    report, _, stamps = send(
        namespace, tmp_path, "--rate", "20 kpkt/s", "--count", "1200", "--size", "imix"
    )
    sizes, counts = np.unique(stamps["len"], return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {60: 700, 590: 400, 1514: 100}
    assert report["size"] == "imix"


@pytest.mark.parametrize(
    ("options", "largest"), [((), 8982), (("--vlan", "9"), 8986), (("--ip", "6"), 8982)]
)
def test_the_largest_packets(
    namespace: Namespace, tmp_path: Path, options: tuple[str, ...], largest: int
) -> None:
    """An MTU of 8964 B and the headers that it does not count."""
    for end in ("gen", "in"):
        namespace.run("ip", "link", "set", end, "mtu", "8964")
    tap, path = namespace.tapped(tmp_path)
    command = ("generate", "gen", "--rate", "1 kpkt/s", "--count", "20", *options, "--size")
    namespace.tailtap(*command, f"{largest} B")
    refused = namespace.tailtap(*command, f"{largest + 1} B", check=False)
    assert refused.returncode == 2
    assert f"up to {largest} B" in refused.stderr
    assert tap.stop()["links"]["in"]["seen"] == 20
    assert set(read_stamps(path)[1]["len"]) == {largest - 4}


FIELDS = (
    *("vlan.id", "ipv6.src", "ipv6.dst", "ip.src", "ip.dst", "udp.srcport", "udp.dstport"),
    *("udp.checksum.status", "frame.len", "ip.checksum.status", "eth.dst"),
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--ip", "6", "--vlan", "77", "--src", "fd00::1-fd00::2", "--dport", "53-55"),
            [
                ["77", f"fd00::{1 + n % 2}", "fd00:0:0:1::1", "", "", "1024", f"{53 + n // 2 % 3}"]
                for n in range(12)
            ],
        ),
        (
            ("--src", "192.0.2.9", "--dst", "198.51.100.1-198.51.100.4", "--sport", "7-9"),
            [
                ["", "", "", "192.0.2.9", f"198.51.100.{1 + n % 4}", f"{7 + n // 4 % 3}", "53"]
                for n in range(12)
            ],
        ),
    ],
)
def test_flows_and_tags_as_another_program_sees_them(
    namespace: Namespace, tmp_path: Path, options: tuple[str, ...], expected: list[list[str]]
) -> None:
    capture = tmp_path / "x.pcap"
    with namespace.sniffer("in", 24, capture):
        command = ("generate", "gen", "--rate", "40 pkt/s", "--count", "80", "--size", "90 B")
        namespace.tailtap(*command, "--dst-mac", "02:00:00:00:00:09", *options)
    shown = subprocess.run(
        [
            *("tshark", "-r", str(capture), "-o", "udp.check_checksum:TRUE"),
            *("-o", "ip.check_checksum:TRUE", "-T", "fields"),
            *(part for field in (*FIELDS, "udp.payload") for part in ("-e", field)),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")[:-1]
    assert len(shown) == 24
    for line in shown:
        *fields, status, length, header, mac, payload = line.split("\t")
        number = int.from_bytes(bytes.fromhex(payload)[:4], "little")
        assert fields == expected[number % 12]
        assert bytes.fromhex(payload)[4] == 0x55
        assert (length, mac) == ("86", "02:00:00:00:00:09")
        assert header == ("" if fields[1] else "1")
        # 1: right; 3: left out, which only IPv4 allows.
        assert status == ("1" if fields[1] else "3")


TAG = bytes.fromhex("81000005")
GAPS_NS = [0, 1_000_000, 1_500_000, 50_000_000, 50_000_000, 120_000_000]
"""When the packets of the capture were taken."""


def replay(
    namespace: Namespace, tmp_path: Path, frames: list[bytes], *options: str
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    capture = tmp_path / "x.pcap"
    capture.write_bytes(pcap(zip(GAPS_NS, frames, strict=False), magic=MICROSECONDS))
    sent = namespace.sent(tmp_path, "--replay", str(capture), *options)
    return sent.report, sent.link, sent.stamps


def test_packets_leave_as_they_are_at_their_own_pace(namespace: Namespace, tmp_path: Path) -> None:
    frames = [udp_frame(7), udp_frame(8, tags=TAG), udp_frame(9, ipv6=True), tcp_frame()]
    frames += [udp_frame(1), udp_frame(65_535)]
    report, counted, stamps = replay(namespace, tmp_path, frames)
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
    options = (*paced, "--generator", generator)
    report, counted, stamps = replay(namespace, tmp_path, frames, *options)
    assert (report["sent"], report["with_id"], report["warm_up"]["sent"]) == (400, 300, 9)
    assert (counted["seen"], counted["other"]) == (300, 100 + 9)
    # Every third packet of four has no UDP, and its number is left out.
    assert stamps["id"].tolist() == [number for number in range(400) if number % 4 != 2]


def test_checksums_stay_right(namespace: Namespace, tmp_path: Path) -> None:
    """A capture of our own IPv6 packets, whose checksums tshark checks after other ids."""
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

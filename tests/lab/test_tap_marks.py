"""Taps on interfaces in use: marks, filters, samples, a budget, and nothing left behind."""

from __future__ import annotations

import ctypes.util
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frames import send_frames, udp_frame
from labtools import wait_for
from marks import read_marks
from namespaces import Namespace
from packet_filters import matching

from tailtap.analysis.evaluation import evaluate

needs_libpcap = pytest.mark.skipif(
    ctypes.util.find_library("pcap") is None, reason="filters need libpcap"
)


def summed(frame: bytes) -> bytes:
    """The frame of IPv4 without options, with its header's checksum."""
    words = np.frombuffer(frame[14:34], ">u2").astype(np.int64).sum()
    total = (words & 0xFFFF) + (words >> 16)
    return frame[:24] + int(0xFFFF ^ total).to_bytes(2, "big") + frame[26:]


def bridge(namespace: Namespace) -> None:
    """gen → in → bridge → out → far: the device that is observed is the bridge."""
    namespace.run("ip", "link", "add", "dut0", "type", "bridge", "mcast_snooping", "0")
    namespace.run("ip", "link", "set", "dut0", "up")
    for port in ("in", "out"):
        namespace.run("ip", "link", "set", port, "master", "dut0")


def observed(namespace: Namespace, folder: Path, *options: str) -> Any:
    return namespace.start(
        *("tap", "in", "out@egress", "--write", f"{folder}/{{link}}.marks", *options)
    )


def test_a_bridge_is_observed_without_a_byte_of_its_packets(
    namespace: Namespace, tmp_path: Path
) -> None:
    bridge(namespace)
    tap = observed(namespace, tmp_path, "--hash", "packet")
    words = ("generate", "gen", "--rate", "20 kpkt/s", "--count", "10000", "--json")
    sent = json.loads(namespace.tailtap(*words).stdout)["sent"]
    done = tap.stop()["links"]
    for name, left in (("in", 0), ("out", 1)):
        marks = read_marks(tmp_path / f"{name}.marks")
        counts = (marks.seen, marks.stored, marks.lost, marks.other)
        assert counts == tuple(done[name][key] for key in ("seen", "stored", "lost", "other"))
        assert (marks.lost, marks.filtered, marks.unsampled) == (0, 0, 0)
        assert marks.key == done[name]["hash"] == "packet"
        assert len(marks.records) == marks.stored >= sent
        assert set(marks.records["flags"]) == {left}
        assert set(marks.records["len"]) == {60}
        assert np.all(np.diff(marks.records["time"].astype(np.int64)) >= 0)
        assert np.all(marks.records["cpu"] > 0)
        assert len(done[name]["samples"]) == 1 and done[name]["outside"]
        assert done[name]["hook"].startswith("tc")
        assert done[name]["warnings"] == []
    found = evaluate(tmp_path / "in.marks", tmp_path / "out.marks")
    assert (found.key, found.counts.lost, found.counts.unmatched_egress) == ("packet", 0, 0)
    assert found.counts.matched == sent


def test_what_evaluate_finds_on_pcaps_is_what_marks_are_made_of(
    namespace: Namespace, tmp_path: Path
) -> None:
    """Captured for a moment, evaluated, tapped by the key that was found: the same hashes."""
    bridge(namespace)
    for suffix, options in (("pcap", ("--clock", "monotonic")), ("marks", ("--hash", "packet"))):
        tap = namespace.start(
            *("tap", "in", "out@egress", "--write", f"{tmp_path}/{{link}}.{suffix}", *options)
        )
        frames = [udp_frame(number, tags=bytes.fromhex("81000005")) for number in range(300)]
        send_frames(namespace, "gen", frames)
        tap.stop()
    capture = evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap", key="packet")
    assert capture.counts.matched == 300
    # Other times, and so no packet in common within a window; but the same packets.
    both = evaluate(tmp_path / "in.marks", tmp_path / "out.marks")
    assert both.counts.matched == 300
    keys = [set(read_marks(tmp_path / f"{name}.marks").records["key"]) for name in ("in", "out")]
    assert keys[0] == keys[1] and len(keys[0]) == 300


def test_both_sides_of_a_nat_choose_the_same_sample(namespace: Namespace, tmp_path: Path) -> None:
    """Addresses, ports, the time to live and checksums differ; one packet of four is stamped."""
    for words in (
        "ip addr add 10.0.0.254/8 dev in",
        "ip addr add 192.168.9.1/24 dev out",
        "ip neigh add 192.168.9.2 lladdr 02:74:74:00:00:09 dev out",
        "ip route add 10.1.0.0/16 via 192.168.9.2",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0",
        "sysctl -qw net.ipv4.conf.in.rp_filter=0",
        "nft add table ip nat",
        "nft add chain ip nat post { type nat hook postrouting priority 100 ; }",
        "nft add rule ip nat post oifname out masquerade random",
    ):
        done = namespace.run(*words.split(), check=False)
        if done.returncode:
            pytest.skip(f"no NAT here: {words}: {done.stderr}")
    mac = namespace.run("cat", "/sys/class/net/in/address").stdout.strip().replace(":", "")
    tap = observed(namespace, tmp_path, "--hash", "packet-nat", "--sample", "1/4")
    frames = [bytes.fromhex(mac) + summed(udp_frame(number))[6:] for number in range(2000)]
    for first in range(0, len(frames), 500):
        send_frames(namespace, "gen", frames[first : first + 500])
    wait_for(lambda: namespace.received("far") >= 2000, "the packets behind the NAT")
    done = tap.stop()["links"]
    before, behind = (read_marks(tmp_path / f"{name}.marks") for name in ("in", "out"))
    assert before.stored + before.unsampled + before.other == done["in"]["seen"] + before.unsampled
    assert before.stored + before.unsampled >= 2000
    # Five standard deviations.
    assert abs(before.stored - 500) < 100
    assert all(level >= 2 for level in before.records["level"])
    assert set(before.records["key"]) == set(behind.records["key"])
    counts = evaluate(tmp_path / "in.marks", tmp_path / "out.marks").counts
    assert (counts.matched, counts.lost, counts.unmatched_egress) == (before.stored, 0, 0)
    assert not done["in"]["warnings"] and not done["out"]["warnings"]


FILTERS = (
    "udp port 53",
    "vlan 5 and udp",
    "vlan and vlan",
    "ip6 and udp dst port 53",
    "not ip",
    "ether[12:2] = 0x8100 or greater 65",
    "ip[8] > 63 and udp[8] & 3 = 1",
    "ether[13:4] > 0x00050800",
)


@needs_libpcap
@pytest.mark.parametrize("expression", FILTERS)
def test_a_filter_says_what_libpcap_says(
    expression: str, namespace: Namespace, tmp_path: Path
) -> None:
    """Of tagged packets as well, whose tag the kernel takes out before the tap sees them."""
    one, two = bytes.fromhex("81000005"), bytes.fromhex("88a80006")
    frames = [
        udp_frame(number, tags=tags, ipv6=ipv6, options=options)
        for number, (tags, ipv6, options) in enumerate(
            (tags, ipv6, options)
            for tags in (b"", one, two + one, bytes.fromhex("81000007"))
            for ipv6 in (False, True)
            for options in (b"", bytes([1, 1, 1, 0]))
        )
    ]
    frames += [bytes(12) + b"\x08\x06" + bytes(46), bytes(12) + b"\x88\xcc" + bytes(2)]
    tap, path = namespace.tapped(tmp_path, "--filter", expression, name="in.pcap")
    send_frames(namespace, "gen", frames)
    done = tap.stop()["links"]["in"]
    answers = matching(expression, frames)
    assert any(answers) and not all(answers)
    assert (done["stored"], done["filtered"]) == (sum(answers), len(answers) - sum(answers))
    data = path.read_bytes()
    kept = [frame for frame, answer in zip(frames, answers, strict=True) if answer]
    assert all(frame in data for frame in kept)


def test_a_budget_is_kept_by_thinner_samples_and_no_packet_looks_lost(
    namespace: Namespace, tmp_path: Path
) -> None:
    """Far too small a budget: the sample becomes the thinnest, and that is said."""
    bridge(namespace)
    options = ("--hash", "packet", "--budget", "0.01 %", "--tell", "1 s")
    tap = observed(namespace, tmp_path, *options)
    words = ("generate", "gen", "--rate", "20 kpkt/s", "--duration", "4 s", "--json")
    sent = json.loads(namespace.tailtap(*words).stdout)["sent"]
    tap.process.send_signal(2)
    out, _ = tap.ended()
    *told, done = map(json.loads, out.splitlines())
    assert [line["event"] for line in told] == ["counts"] * len(told)
    assert len(told) >= 3
    shares = [one["share"] for one in told]
    assert max(shares) > 0.0001
    # It is timed for a moment at the end of each second: none may have packets behind the last one.
    counted = [one for one in (line["links"]["in"] for line in told) if one["ns"] is not None]
    assert counted[-1]["sample"] > 1 and counted[-1]["ns"] > 1
    assert max(one["rate"] for one in counted) > 10_000
    link = done["links"]["in"]
    assert len(link["samples"]) > 1 and link["samples"][-1][1] > 1
    before, behind = (read_marks(tmp_path / f"{name}.marks") for name in ("in", "out"))
    assert before.samples == behind.samples
    assert [(since, 1 << level) for since, level in before.samples] == [
        tuple(sample) for sample in link["samples"]
    ]
    assert before.stored + before.unsampled + before.other >= sent
    assert before.unsampled > sent // 4
    counts = evaluate(tmp_path / "in.marks", tmp_path / "out.marks").counts
    assert (counts.lost, counts.unmatched_egress) == (0, 0)
    assert counts.trimmed_egress > 0


def machine(namespace: Namespace) -> str:
    told = [
        namespace.run(*words.split(), check=False).stdout
        for words in (
            "tc qdisc show", "ip -d link", "ip addr", "ip route", "ip rule", "nft list ruleset",
            "tc filter show dev in ingress", "tc filter show dev out egress",
            "sysctl -a --pattern ^net\\.(core|ipv4\\.(conf|ip_forward))",
        )
    ]  # fmt: skip
    # Timers of a bridge run.
    return re.sub(r"_timer +[\d.]+", "", "\n".join(told))


def test_a_tap_leaves_the_machine_as_it_was(namespace: Namespace, tmp_path: Path) -> None:
    bridge(namespace)
    time.sleep(0.5)  # the bridge's ports settle
    before = machine(namespace)
    assert "clsact" not in before
    options = ["--hash", "packet", "--sample", "1/2", "--budget", "50 %", "--tell", "100 ms"]
    if ctypes.util.find_library("pcap") is not None:
        options += ["--filter", "udp"]
    for how in (signal.SIGINT, signal.SIGKILL, signal.SIGINT):
        tap = observed(namespace, tmp_path, *options)
        namespace.tailtap("generate", "gen", "--rate", "10 kpkt/s", "--count", "2000")
        # No queueing discipline while it runs, either.
        assert "clsact" not in namespace.run("tc", "qdisc", "show").stdout
        tap.process.send_signal(how)
        tap.ended()
        assert machine(namespace) == before
        for file in tmp_path.iterdir():
            file.unlink()


KINDS = {
    "bridge port": ("ip link add dut0 type bridge", "ip link set in master dut0"),
    "bridge": ("ip link add dut0 type bridge", "ip link set in master dut0"),
    "vlan": ("ip link add link in name dut0 type vlan id 5",),
    "bond": (
        "ip link add dut0 type bond mode active-backup",
        "ip link set in down",
        "ip link set in master dut0",
    ),
    "macvlan": ("ip link add link in name dut0 type macvlan mode passthru",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_interfaces(kind: str, namespace: Namespace, tmp_path: Path) -> None:
    for words in KINDS[kind]:
        done = namespace.run(*words.split(), check=False)
        if "Unknown device type" in done.stderr:
            pytest.skip(f"this kernel has no {kind}")
        assert done.returncode == 0, done.stderr
    for name in ("in", "dut0"):
        namespace.run("ip", "link", "set", name, "up", "promisc", "on")
    tags = bytes.fromhex("81000005") if kind == "vlan" else b""
    tapped = "in" if kind == "bridge port" else "dut0"
    time.sleep(0.2)
    tap = namespace.start("tap", tapped, "--write", f"{tmp_path}/x.marks", "--hash", "packet")
    frames = [summed(udp_frame(number)) for number in range(50)]
    send_frames(namespace, "gen", [frame[:12] + tags + frame[12:] for frame in frames])
    wait_for(lambda: namespace.received("in") >= 50, "the packets")
    done = tap.stop()["links"][tapped]
    assert len(set(read_marks(tmp_path / "x.marks").records["key"])) == 50
    assert done["lost"] == 0

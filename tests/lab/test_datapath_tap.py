"""The eBPF taps against real traffic in network namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frames import send_frames, udp_frame
from labtools import PATIENCE_SECONDS, small_disk, wait_for
from namespaces import TAILTAP, Namespace
from stamps import read_stamps


def counts_of(link: dict[str, Any]) -> tuple[int, ...]:
    return tuple(link[name] for name in ("seen", "stored", "lost", "other"))


@pytest.mark.apart
@pytest.mark.parametrize("place", ["own link", "egress"])
def test_no_stamp_is_lost_at_500_kpps(namespace: Namespace, tmp_path: Path, place: str) -> None:
    link, options = ("in:out", []) if place == "own link" else ("gen@egress:out", ["--no-bypass"])
    tap = namespace.start(
        *("tap", f"ingress={link}", "egress=far:drop", "--write", f"{tmp_path}/{{link}}.stamps"),
        *("--records", "500000"),  # room for a second
    )
    sent = namespace.tailtap(
        *("generate", "gen", "--rate", "500 kpkt/s", "--duration", "1.5 s", "--json"),
        *("--warm-up", "0.1 s", "--flows", "10", *options),
    )
    report = json.loads(sent.stdout)
    done = tap.stop()
    links = done["links"]
    warm_up = report["warm_up"]["sent"]
    assert report["sent"] + warm_up + report["failed"] == 800_000
    assert counts_of(links["ingress"]) == (report["sent"], report["sent"], 0, warm_up)
    assert links["egress"]["lost"] == 0
    # The pair between the taps may drop (its queue belongs to the kernel), the taps may not.
    assert links["egress"]["seen"] >= 0.99 * report["sent"]

    _, before = read_stamps(tmp_path / "ingress.stamps")
    _, after = read_stamps(tmp_path / "egress.stamps")
    for stamps in (before, after):
        assert len(np.unique(stamps["id"])) == len(stamps)
        assert np.all(np.diff(stamps["time"].astype(np.int64)) >= 0)
        assert set(stamps["len"]) == {60}
        assert not stamps["flags"].any()
    left = before["time"][np.searchsorted(before["id"], after["id"])]
    assert np.all(after["time"] > left)
    assert before["time"][0] >= report["first_ns"]


@pytest.mark.apart
def test_two_cpus_share_a_ring(namespace: Namespace, tmp_path: Path) -> None:
    """Generators on two CPUs at 250 kpkt/s each into one tap: every packet is stamped once."""
    tap, path = namespace.tapped(tmp_path)
    sent = [
        subprocess.Popen(
            namespace.inside(
                *(TAILTAP, "generate", "gen", "--rate", "250 kpkt/s", "--count", "250000"),
                *("--cpu", str(cpu), "--json"),
            ),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for cpu in (0, 1)
    ]
    reports = [json.loads(generator.communicate(timeout=PATIENCE_SECONDS)[0]) for generator in sent]
    total = sum(report["sent"] for report in reports)
    assert counts_of(tap.stop()["links"]["in"]) == (total, total, 0, 0)
    stamps = read_stamps(path)[1]
    ids, times = np.unique(stamps["id"], return_counts=True)
    assert len(ids) == 250_000 and set(times) == {2}
    assert np.all(np.diff(stamps["time"].astype(np.int64)) >= 0)


def test_tagged_ipv6_and_foreign_frames(namespace: Namespace, tmp_path: Path) -> None:
    tap, path = namespace.tapped(tmp_path)
    one, two = bytes.fromhex("81000005"), bytes.fromhex("88a80006")
    plain = udp_frame(1)
    frames = [
        plain,
        udp_frame(2, tags=one),
        udp_frame(3, tags=two + one),
        udp_frame(4, ipv6=True),
        udp_frame(5, tags=one, ipv6=True),
        udp_frame(6, options=bytes([1, 1, 1, 0])),
        udp_frame(7, options=bytes(40)),
        plain[:46] + b"\x00" + plain[47:],  # another type byte
        plain[:23] + b"\x06" + plain[24:],  # TCP
        plain[:21] + b"\x10" + plain[22:],  # a later fragment
        plain[:46],  # too short for the type byte
        plain[:12] + b"\x08\x06" + bytes(46),  # ARP
    ]
    send_frames(namespace, "gen", frames)
    done = tap.stop()["links"]["in"]
    assert counts_of(done) == (7, 7, 0, 5)
    stamps = read_stamps(path)[1]
    assert list(stamps["id"]) == [1, 2, 3, 4, 5, 6, 7]
    # Tags count, whether in the packet or beside it.
    assert list(stamps["len"]) == [len(frame) for frame in frames[:7]]


HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION = 0, 43, 44, 51, 60


def test_ids_are_found_behind_extension_headers(namespace: Namespace, tmp_path: Path) -> None:
    """Those that the evaluation follows (RFC 8200, section 4), in a tagged packet too."""
    tap, path = namespace.tapped(tmp_path)
    # The length does not count the first 8 bytes; the kind of the next header comes before it.
    short, long = bytes(7), bytes([31]) + bytes(254)
    first, later = bytes([0, 0, 1, 0, 0, 0, 9]), bytes([0, 5, 0xA0, 0, 0, 0, 9])
    chains = [
        [(HOP_BY_HOP, short)],
        [(DESTINATION, long)],
        [(ROUTING, bytes([2]) + bytes(22))],
        [(FRAGMENT, first)],
        [(HOP_BY_HOP, long), (DESTINATION, short), (ROUTING, short), (FRAGMENT, first)],
        [(DESTINATION, short)] * 16,
    ]
    followed = [
        udp_frame(number, ipv6=True, extensions=chain, tags=tags)
        for tags in (b"", bytes.fromhex("88a8000681000005"))
        for number, chain in enumerate(chains, start=1)
    ]
    cut = udp_frame(7, ipv6=True, extensions=[(HOP_BY_HOP, long)])
    others = [
        udp_frame(7, ipv6=True, extensions=[(FRAGMENT, later)]),
        udp_frame(7, ipv6=True, extensions=[(HOP_BY_HOP, short), (FRAGMENT, later)]),
        udp_frame(7, ipv6=True, extensions=[(AUTHENTICATION, short)]),
        udp_frame(7, ipv6=True, extensions=[(DESTINATION, short)] * 17),
        cut[:60],
        cut[:-14],  # the type byte is missing
    ]
    send_frames(namespace, "gen", followed + others)
    done = tap.stop()["links"]["in"]
    assert counts_of(done) == (12, 12, 0, len(others))
    stamps = read_stamps(path)[1]
    assert list(stamps["id"]) == 2 * [1, 2, 3, 4, 5, 6]
    assert list(stamps["len"]) == [len(frame) for frame in followed]


def test_a_qdisc_that_was_there_stays(namespace: Namespace, tmp_path: Path) -> None:
    namespace.run("tc", "qdisc", "add", "dev", "in", "clsact")
    tap, _ = namespace.tapped(tmp_path, name="x.stamps")
    busy = namespace.tailtap("tap", "in", "--write", f"{tmp_path}/y.stamps", check=False)
    assert busy.returncode == 2
    assert "has a tap already" in busy.stderr
    tap.stop()
    assert "clsact" in namespace.run("tc", "qdisc", "show", "dev", "in").stdout
    assert "tap" not in namespace.run("tc", "filter", "show", "dev", "in", "ingress").stdout


def test_an_interface_that_vanishes_is_a_warning(namespace: Namespace, tmp_path: Path) -> None:
    tap, path = namespace.tapped(tmp_path)
    namespace.tailtap("generate", "gen", "--rate", "1 kpkt/s", "--count", "100")
    namespace.run("ip", "link", "del", "gen")
    done = tap.stop()["links"]["in"]
    assert done["warnings"] == ["interface vanished: in"]
    assert counts_of(done) == (100, 100, 0, 0)
    assert len(read_stamps(path)[1]) == 100


def test_kill_9_leaves_a_readable_file_and_an_untapped_interface(
    namespace: Namespace, tmp_path: Path
) -> None:
    tap, path = namespace.tapped(tmp_path, "--records", "1024")
    namespace.tailtap("generate", "gen", "--rate", "100 kpkt/s", "--count", "50000")
    tap.process.kill()
    tap.process.wait()
    counts, stamps = read_stamps(path)
    assert counts == (2**64 - 1,) * 4
    assert len(stamps) > 10_000
    assert np.all(np.diff(stamps["id"].astype(np.int64)) > 0)
    # The kernel took the tap away (Linux 6.6): the next one finds a free place.
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 6):
        again = namespace.tailtap("tap", "in:drop", "--write", str(path), check=False)
        assert (again.returncode, str(path) in again.stderr) == (2, True)
        assert len(read_stamps(path)[1]) == len(stamps)
        path.unlink()
        namespace.start("tap", "in:drop", "--write", str(path)).stop()


def test_what_a_stopped_tap_loses_is_counted(namespace: Namespace, tmp_path: Path) -> None:
    """User space does not run at all for a while: the ring fills up, and the rest is counted."""
    tap, path = namespace.tapped(tmp_path, "--records", "8192")
    generate = ("generate", "gen", "--rate", "50 kpkt/s", "--count", "30000", "--json")
    tap.process.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: state_of(tap.process.pid) == "T", "the tap stops")
        first = json.loads(namespace.tailtap(*generate).stdout)
    finally:
        tap.process.send_signal(signal.SIGCONT)
    wait_for(lambda: len(read_stamps(path)[1]) >= 8192, "the tap goes on")
    second = json.loads(namespace.tailtap(*generate).stdout)
    done = tap.stop()["links"]["in"]
    assert first["failed"] == second["failed"] == 0
    # All that came while it was stopped and found no room, and, if it was given CPU time in time,
    # nothing else.
    assert done["seen"] == 60_000 == done["stored"] + done["lost"]
    assert done["lost"] >= 30_000 - 8192
    counts, stamps = read_stamps(path)
    assert counts == counts_of(done)
    assert len(stamps) == done["stored"]
    assert np.array_equal(stamps["id"][:8192], np.arange(8192))


@pytest.mark.apart
def test_flat_out_every_packet_is_stored_or_counted(namespace: Namespace, tmp_path: Path) -> None:
    """As fast as this machine sends, many times the tap's room, drained while it is filled."""
    words = ("--generator", "af_xdp", "--rate", "50 Mpkt/s", "--count", "1000000")
    sent = namespace.sent(tmp_path, *words, tap=("--records", "262144"))
    seen, stored, lost, _ = sent.counts
    assert seen == sent.report["sent"] == stored + lost
    stamps = sent.stamps
    assert len(stamps) == stored > 262_144
    assert len(np.unique(stamps["id"])) == len(stamps)
    assert np.all(np.diff(stamps["time"].astype(np.int64)) >= 0)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_full_disk_is_one_clear_line_and_exact_counts(
    namespace: Namespace, tmp_path: Path
) -> None:
    room = 64 << 10
    with small_disk(tmp_path, room) as small:
        path = small / "x.stamps"
        tap = namespace.start("tap", "in:drop", "--write", str(path), "--records", "65536")
        namespace.tailtap("generate", "gen", "--rate", "100 kpkt/s", "--count", "40000")
        # It ends by itself as soon as it moves stamps from the ring to the file.
        _, err = tap.ended()
        assert tap.process.returncode == 3
        (seen, stored, lost, other), stamps = read_stamps(path)
        assert stored == len(stamps) == (room - 64) // 16
        assert (seen, other) == (stored + lost, 0)
        assert 16_384 < seen <= 40_000
        assert err == (
            f"tailtap: {path}: cannot write: No space left on device: {stored} of {seen} packets "
            "are stored: make room\n"
        )
        assert np.array_equal(stamps["id"], np.arange(stored))


def test_ids_at_another_place(namespace: Namespace, tmp_path: Path) -> None:
    tag = bytes.fromhex("81000005")
    frames = [
        udp_frame(1),
        udp_frame(2, tags=tag),
        udp_frame(3, ipv6=True)[:57],  # too short for the third key
    ]
    for key, ids in (
        ("42:4:le", [1, int.from_bytes(frames[1][42:46], "little"), 0]),
        ("46:2:be", [0x5500, 2 << 8, 0]),
        ("54:4:be", [0, 0, None]),
        ("14:2:be", [0x4500, None, 0x6000]),
    ):
        path = tmp_path / f"{key}.stamps"
        tap = namespace.start("tap", "in:drop", "--write", str(path), "--key", key)
        send_frames(namespace, "gen", frames)
        done = tap.stop()["links"]["in"]
        expected = [number for number in ids if number is not None]
        assert list(read_stamps(path)[1]["id"]) == expected, key
        assert counts_of(done) == (len(expected), len(expected), 0, 3 - len(expected)), key


def test_other_programs_on_the_interface_still_run(namespace: Namespace, tmp_path: Path) -> None:
    """A passive tap leaves packets to whoever filters them behind it."""
    namespace.run("tc", "qdisc", "add", "dev", "in", "clsact")
    away = ("u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "out")
    namespace.run("tc", "filter", "add", "dev", "in", "ingress", "protocol", "all", *away)
    tap, _ = namespace.tapped(tmp_path, link="in", name="x.stamps")
    namespace.tailtap("generate", "gen", "--rate", "1 kpkt/s", "--count", "10")
    assert counts_of(tap.stop()["links"]["in"]) == (10, 10, 0, 0)
    shown = namespace.run("ip", "-j", "-s", "link", "show", "dev", "far").stdout
    assert json.loads(shown)[0]["stats64"]["rx"]["packets"] == 10

"""`tailtap tap` alone, as on a timestamper host: pcaps, rotation, stopping, being killed."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frames import send_frames, udp_frame
from labtools import frames_of, limited_memory, wait_for
from namespaces import TAILTAP, Namespace
from program import tailtap
from stamps import HEADER, read_stamps


def tshark(path: Path, *fields: str) -> list[list[str]]:
    """The fields of every packet, as Wireshark's dissectors see them; the file must be whole."""
    asked = [word for field in fields for word in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", *asked]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.split("\t") for line in shown.splitlines()]


def capinfos(path: Path) -> dict[str, str]:
    command = ["capinfos", "-T", "-r", "-m", "-M", "-t", "-E", "-c", str(path)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(zip(("name", "type", "encapsulation", "packets"), shown.split(","), strict=True))


def total(link: dict[str, Any]) -> tuple[int, int, int]:
    return link["seen"], link["stored"], link["lost"]


@pytest.mark.parametrize("snap", [None, 34, 1518])
def test_a_pcap_has_the_frames_as_they_were(
    namespace: Namespace, tmp_path: Path, snap: int | None
) -> None:
    path = tmp_path / "in.pcap"
    options = [] if snap is None else ["--snap-length", f"{snap} B"]
    tap = namespace.start("tap", "in", "--write", str(path), *options)
    one, two = bytes.fromhex("81000005"), bytes.fromhex("88a80006")
    frames = [
        udp_frame(1),
        udp_frame(2, tags=one),
        udp_frame(3, tags=two + one),
        udp_frame(4, ipv6=True),
        udp_frame(5) + bytes(range(256)) * 4,
        udp_frame(6)[:12] + b"\x08\x06" + bytes(46),  # ARP
        udp_frame(7)[:14],
        udp_frame(8)[:15],
    ]
    began = time.time_ns()
    send_frames(namespace, "gen", frames)
    ended = time.time_ns()
    done = tap.stop()["links"]["in"]
    assert total(done) == (len(frames), len(frames), 0)
    assert (done["format"], done["clock"], done["other"]) == ("pcap", "realtime", 0)
    found = frames_of(path)
    kept = snap or 128
    assert [bytes_ for *_, bytes_ in found] == [frame[:kept] for frame in frames]
    assert [wire for _, wire, _ in found] == [len(frame) for frame in frames]
    times = [time_ns for time_ns, *_ in found]
    assert began <= times[0] and times == sorted(times) and times[-1] <= ended
    shown = tshark(path, "frame.len", "frame.cap_len")
    assert shown == [[str(len(frame)), str(min(len(frame), kept))] for frame in frames]


def test_the_clock_is_the_one_that_is_said(namespace: Namespace, tmp_path: Path) -> None:
    write = ("--write", f"{tmp_path}/x.file")
    for form, clock, code, now in (
        ("stamps", "monotonic", 1, time.monotonic_ns),
        ("stamps", "realtime", 3, time.time_ns),
        ("pcap", "monotonic", None, time.monotonic_ns),
        ("pcap", "realtime", None, time.time_ns),
    ):
        (tmp_path / "x.file").unlink(missing_ok=True)
        tap = namespace.start("tap", "in", *write, "--format", form, "--clock", clock)
        began = now()
        send_frames(namespace, "gen", [udp_frame(1)])
        ended = now()
        assert tap.stop()["links"]["in"]["clock"] == clock
        data = (tmp_path / "x.file").read_bytes()
        if code is None:
            [(stamp, *_)] = frames_of(tmp_path / "x.file")
        else:
            assert HEADER.unpack_from(data)[3] == code
            stamp = int.from_bytes(data[64:72], "little")
        assert began <= stamp <= ended


def test_files_are_numbered_when_they_get_large(namespace: Namespace, tmp_path: Path) -> None:
    write = ("--write", f"{tmp_path}/{{link}}.pcap", "--rotate", "100 kB", "--records", "1024")
    tap = namespace.start("tap", "in:drop", *write)
    namespace.tailtap("generate", "gen", "--rate", "20 kpkt/s", "--count", "5000")
    done = tap.stop()["links"]["in"]
    assert done["seen"] == 5000 == done["stored"] + done["lost"]
    each = (100_000 - 24) // 76
    files = sorted(tmp_path.iterdir())
    assert [str(file) for file in files] == done["files"]
    assert files[0].name == "in-00001.pcap" and done["file"] == str(files[0])
    packets = [int(capinfos(file)["packets"]) for file in files]
    assert packets[:-1] == [each] * (len(files) - 1)
    assert 1 <= packets[-1] <= each and sum(packets) == done["stored"]
    ids = [int.from_bytes(frame[42:46], "little") for f in files for *_, frame in frames_of(f)]
    assert ids == sorted(ids) and len(set(ids)) == done["stored"]


def test_files_are_numbered_by_time_and_their_counts_add_up(
    namespace: Namespace, tmp_path: Path
) -> None:
    tap, _ = namespace.tapped(
        tmp_path, "--rotate", "1 GB", "--rotate", "200 ms", "--records", "256", name="x.stamps"
    )
    generate = ("generate", "gen", "--rate", "20 kpkt/s", "--duration", "1 s", "--json")
    report = json.loads(namespace.tailtap(*generate, "--warm-up", "0.1 s").stdout)
    done = tap.stop()["links"]["in"]
    files = [read_stamps(Path(file)) for file in done["files"]]
    assert len(files) > 1
    for counts, stamps in files:
        assert counts[0] == counts[1] + counts[2] and counts[1] == len(stamps)
        assert int(stamps["time"][-1] - stamps["time"][0]) < 200_000_000
    begun = [int(stamps["time"][0]) for _, stamps in files]
    assert min(np.diff(begun)) >= 200_000_000
    assert [sum(column) for column in zip(*(counts for counts, _ in files), strict=True)] == [
        *(done["seen"], done["stored"], done["lost"], done["other"])
    ]
    assert (done["seen"], done["other"]) == (report["sent"], report["warm_up"]["sent"])
    times = np.concatenate([stamps["time"] for _, stamps in files]).astype(np.int64)
    assert np.all(np.diff(times) >= 0)


def test_it_ends_after_its_time(namespace: Namespace, tmp_path: Path) -> None:
    began = time.monotonic()
    tap, _ = namespace.tapped(tmp_path, "--duration", "500 ms", link="in", name="x.pcap")
    done = json.loads(tap.ended()[0])["links"]["in"]
    assert time.monotonic() - began >= 0.5
    assert done["stored"] == len(tshark(tmp_path / "x.pcap", "frame.number")) == 0


def test_kill_9_leaves_pcaps_that_everybody_reads(namespace: Namespace, tmp_path: Path) -> None:
    write = ("--write", f"{tmp_path}/{{link}}.pcap", "--flush", "50 ms")
    tap = namespace.start("tap", "a=in:out", "b=far:drop", *write)
    namespace.tailtap("generate", "gen", "--rate", "10 kpkt/s", "--count", "10000")
    files = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    whole = 24 + 10_000 * 76
    wait_for(lambda: all(file.stat().st_size == whole for file in files), "all packets")
    tap.process.kill()
    tap.process.wait()
    for file in files:
        assert int(capinfos(file)["packets"]) == 10_000
        assert len(tshark(file, "frame.number")) == 10_000
    found = tailtap("evaluate", *files, "--json")
    assert json.loads(found.stdout)["counts"]["matched"] == 10_000, found.stderr


def test_too_little_memory(namespace: Namespace, tmp_path: Path) -> None:
    """The kernel charges the ring to the group's memory, where it was locked memory before."""
    write = ("--write", f"{tmp_path}/x.stamps", "--records", str(2**26))
    with limited_memory(400 << 20) as group:
        join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        command = ["sh", "-c", join, "sh", *namespace.inside(TAILTAP, "tap", "in", *write)]
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert result.returncode == 3, result.stderr
    assert "no memory for 67108864 records of 16 B" in result.stderr
    assert "--records" in result.stderr and result.stderr.count("\n") == 1

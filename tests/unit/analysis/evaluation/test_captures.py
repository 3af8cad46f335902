"""Every capture format, plain, compressed, still being written, damaged or unsuitable."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from captures import (
    COMPRESSIONS,
    compressed,
    frame,
    mscap,
    pcap,
    pcapng,
    stamps,
)
from pairs import evaluate_pair, latencies, refusal, said

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.clocks import known
from tailtap.base.errors import InputError

SECOND = 1_000_000_000
Ids = list[tuple[int, int]]
#: Whole microseconds, so that every format holds them exactly.
SENT = [(5 * SECOND + i * 10_000, i) for i in range(500)]
LEFT = [(time + 3_000 + packet_id % 7 * 1_000, packet_id) for time, packet_id in SENT]


def framed(packets: Ids, write: Callable[..., bytes] = pcap, **options: Any) -> bytes:
    return write([(time, frame(packet_id)) for time, packet_id in packets], **options)


@pytest.mark.parametrize("start", [0, 2**32 - 1_000, 2**32 + 5])
def test_mscap_times_that_jump_back_are_unwrapped(start: int, tmp_path: Path) -> None:
    """20 s of packets, stamped modulo 2^32 ns; `start` puts a jump between the first stamps."""
    sides = [[((start + i * 10_000_000 + late) % 2**32, i) for i in range(2_000)]
             for late in (0, 4_000)]  # fmt: skip
    found = evaluate_pair(tmp_path, *map(mscap, sides), format="mscap", throughout=False)
    assert latencies(found) == [4_000] * 2_000
    assert "mscap-unwrapped" in said(found)


@pytest.mark.parametrize(
    "options", [{"tags": [5]}, {"tags": [5, 6]}, {"ipv6": True}, {"ipv6": True, "tags": [7]}]
)
@pytest.mark.parametrize("key", ["auto", "moonsniff", "signature"])
def test_tagged_and_ipv6_frames(options: dict[str, Any], key: str, tmp_path: Path) -> None:
    sides = [pcap((time, frame(i, **options)) for time, i in side) for side in (SENT, LEFT)]
    if key == "signature" and options == {"ipv6": True, "tags": [7]}:
        # The id stands behind byte 63, where a signature ends.
        assert "'signature' does not tell packets apart" in refusal(tmp_path, *sides, key=key)
        return
    found = evaluate_pair(tmp_path, *sides, key=key)
    assert (found.counts.matched, found.max) == (500, 9_000)


# Captures that another process is still writing.

PACKETS = 20_000
WRITER = """
import sys
source, target, first, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = open(source, "rb").read()
with open(target, "wb", buffering=0) as file:
    file.write(data[:first])
    print("begun", flush=True)
    for at in range(first, len(data), step):
        sys.stdin.readline()
        file.write(data[at : at + step])
        print("written", flush=True)
sys.stdin.read()
"""
"""Writes a file piece by piece, as capture programs do: one for each line that it reads.

It prints a line after each piece, and ends when nothing more can come.
"""


def capture(kind: str, delay: int) -> tuple[bytes, int, int]:
    """A capture, the bytes before its first record, and those of each record."""
    times = [(SECOND + 10_000 * i + delay, i) for i in range(PACKETS)]
    # Payloads that do not compress to nothing.
    frames = ((t, frame(i) + (i * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8)) for t, i in times)
    match kind:
        case "mscap":
            return mscap(times), 0, 12
        case "stamps":
            return stamps(times, closed=False), 64, 16
        case "pcapng":
            return pcapng(frames), 28 + 32, 32 + 68
        case _:
            return compressed(pcap(frames), kind), 24, 16 + 68


@pytest.mark.parametrize("kind", ["pcap", "pcapng", "mscap", "stamps", "zstd", "gzip"])
def test_a_capture_is_evaluated_while_it_is_written(tmp_path: Path, kind: str) -> None:
    data, header, record = capture(kind, 700)
    (tmp_path / "whole").write_bytes(data)
    pair = tmp_path / "in.mscap", tmp_path / "out.mscap"
    pair[0].write_bytes(mscap((SECOND + 10_000 * i, i) for i in range(PACKETS)))
    # Every piece of a plain capture ends five bytes into a record.
    step = record * (len(data) // record // 25)
    arguments = [tmp_path / "whole", pair[1], header + step + 5, step]
    command = [sys.executable, "-c", WRITER, *map(str, arguments)]
    seen: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin and writer.stdout
        while writer.stdout.readline():
            # It writes one more piece while this is evaluated.
            writer.stdin.write("\n")
            writer.stdin.flush()
            try:
                found = evaluate(*pair)
            except InputError as error:
                # There is no whole block to decompress.
                assert not seen, error
                continue
            assert found.counts.lost == 0
            if found.counts.outside_ingress == 0:
                break  # The last piece has just been written.
            assert set(said(found)) & {"capture-damaged", "capture-growing"}, found.warnings
            assert "outside-common-time" in said(found)
            assert found.counts.matched + found.counts.outside_ingress == PACKETS
            seen.append(found.counts.matched)
    assert writer.returncode == 0
    assert len(seen) >= 2 and seen == sorted(seen)
    found = evaluate(*pair)
    assert found.counts.matched == PACKETS
    assert set(said(found)) == ({"tap-unclosed"} if kind == "stamps" else set())


# Damaged and unsuitable captures: one clear line, or a warning and what can be had.

INGRESS = [(SECOND + i * 10_000, i) for i in range(200)]
EGRESS = [(time + 3_000, packet_id) for time, packet_id in INGRESS]
IN, OUT = framed(INGRESS), framed(EGRESS)
SAME = b"\2" * 12 + b"\x88\xb5" + bytes(50)
ALL_SAME = pcap((t, SAME) for t, _ in INGRESS), pcap((t, SAME) for t, _ in EGRESS)
SHORT = framed(INGRESS, snap=44), framed(EGRESS, snap=44)
SHORTER = framed(INGRESS, snap=40), framed(EGRESS, snap=40)


def moved(later: int, more: int = 0) -> bytes:
    return framed([(time + later, i + more) for time, i in EGRESS])


def with_length(whole: bytes, at: int, length: int) -> bytes:
    data = bytearray(whole)
    struct.pack_into("<I", data, at, length)
    return bytes(data)


def linked(write: Callable[..., bytes], linktype: int) -> bytes:
    return framed(INGRESS, write, linktype=linktype)


FIRST_DAMAGED = with_length(OUT, 24 + 8, 2**31)
REFUSED: dict[str, tuple[bytes, bytes, Mapping[str, Any], Sequence[str]]] = {
    "empty before": (b"", OUT, {}, ["is empty"]),
    "empty after": (IN, b"", {}, ["is empty"]),
    **{f"nothing in {one}": (compressed(b"", one), OUT, {}, ["is empty"]) for one in COMPRESSIONS},
    "magic": (b"PNG" + IN, OUT, {}, ["not a capture", "504e47", "give --format mscap"]),
    "cut in the magic": (IN[:4], OUT, {}, ["header"]),
    "cut in the header": (IN[:23], OUT, {}, ["header"]),
    "no packets": (pcap([]), OUT, {}, ["no packet in the capture"]),
    "cut in the first record": (IN, FIRST_DAMAGED[:100], {}, ["nothing can be read"]),
    **{
        f"{write.__name__} {number}": (
            linked(write, number), OUT, {}, [f"link type {number} ({what}", "tcpdump -L"],
        )
        for write in (pcap, pcapng)
        for number, what in ((105, "IEEE 802.11"), (127, "IEEE 802.11"), (147, "for private use"))
    },
    **{f"snap {key}": (*SHORT, {"key": key}, ["snap length"])
       for key in ("moonsniff", "signature", "42:4:le")},
    **{f"snap {key}": (*SHORTER, {"key": key}, ["snap length"]) for key in ("auto", "packet")},
    "no packet in common": (IN, moved(0, 10**6), {}, ["no packet of", "'moonsniff'"]),
    "a minute later": (IN, moved(60 * SECOND), {}, ["are there 60.000003 s later"]),
    "later than known": (
        IN, moved(66 * SECOND), {"clocks": known(59 * SECOND, 60 * SECOND)},
        ["are there 6.500003 s later", "--egress-ahead '66 s..66 s'"],
    ),
    "others a minute later": (IN, moved(60 * SECOND, 10**6), {}, ["59.998 s apart"]),
    "equal by signature": (*ALL_SAME, {"key": "signature"}, ["occurs more than once"]),
    "equal without ids": (*ALL_SAME, {"key": "moonsniff"}, ["no packet carries"]),
    "ids by signature": (stamps(INGRESS), OUT, {"key": "signature"}, ["use --key moonsniff"]),
    **{f"key '{key}'": (IN, OUT, {"key": key}, ["is not a key"])
       for key in ("moonsnif", "4:9:le", "4:4", "")},
    "all trimmed": (IN, OUT, {"trim_ns": SECOND}, ["after trimming"]),
    "nanoseconds": (IN, OUT, {"nanoseconds": "yes"}, ["ingress, egress, both"]),
    **{command: (head + bytes(100), OUT, {}, [f"({command} "]) for command, head in (
        ("lz4 -dk", b"\x02\x21\x4c\x18abcd"), ("lzop -dk", b"\x89LZO\0abcd"),
        ("unzip", b"PK\x03\x04abcd"), ("7z x", b"7z\xbc\xaf\x27\x1c"))},
    "swapped": (OUT, IN, {"throughout": False}, ["look swapped"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_one_line(name: str, tmp_path: Path) -> None:
    before, after, options, says = REFUSED[name]
    message = refusal(tmp_path, before, after, **options)
    assert all(part in message for part in says), message
    assert message.count(str(tmp_path / "out")) <= 1


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(IN)
    with pytest.raises(InputError, match="No such file"):
        evaluate(tmp_path / "in", tmp_path / "out")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="no capture in this folder"):
        evaluate(tmp_path / "in", tmp_path / "out")


NG = framed(EGRESS, pcapng)
IN_THE_MIDDLE = NG.index(b"\6\0\0\0", len(NG) // 2)
EMPTY = [(time, frame(i)) for time, i in EGRESS]
EMPTY[10:10] = [(EMPTY[10][0], b"")] * 3
SWAPPED = [*EGRESS[:50], EGRESS[60], *EGRESS[51:60], EGRESS[50], *EGRESS[61:]]
EARLY = sorted((time - 10_000 if i < 5 else time, i) for time, i in EGRESS)
READ: dict[str, tuple[bytes, bytes, Mapping[str, str], Mapping[str, int]]] = {
    "good": (IN, OUT, {}, {"matched": 200}),
    **{
        f"a record of {length}": (
            IN, with_length(OUT, 24 + 100 * 76 + 8, length),
            {"capture-damaged": f"{length} bytes is absurd"}, {"matched": 199},
        )
        for length in (2**31, 300_000)
    },
    "where a record is absurd": (
        IN, with_length(OUT, 24 + 100 * 76 + 8, 2**31), {"capture-damaged": "byte 7624"}, {},
    ),
    **{
        f"a block of {length}": (
            IN, with_length(NG, IN_THE_MIDDLE + 4, length), {"capture-damaged": ""},
            {"matched": 199},
        )
        for length in (0, 8, 13, 2**31)
    },
    "the first record": (IN, FIRST_DAMAGED, {"capture-damaged": ""}, {"matched": 199}),
    "zero length": (
        IN, pcap(EMPTY), {"foreign-packets": ""}, {"matched": 200, "unkeyed_egress": 3},
    ),
    "some cut by the snap length": (
        IN, OUT + framed(EGRESS[-1:], snap=44)[24:], {"snap-length": ""},
        {"matched": 200, "unkeyed_egress": 1},
    ),
    "some noncausal": (
        IN, framed(EARLY), {"noncausal": ""}, {"noncausal": 5, "matched": 195, "lost": 0},
    ),
    "stamps that go backwards": (
        IN, framed(SWAPPED), {"timestamps-backwards": ""}, {"matched": 200, "lost": 0},
    ),
    "stamps that the tap lost": (
        IN, stamps(EGRESS[:150], counts=(200, 150, 50, 3)), {"tap-lost": "lost 50 of 200 stamps"},
        {"matched": 150},
    ),
    "a tap that was killed": (
        IN, stamps(EGRESS, closed=False), {"tap-unclosed": ""}, {"matched": 200},
    ),
    "unmatched behind the device": (
        framed(INGRESS[:199]), OUT, {"unmatched-egress": ""}, {"unmatched_egress": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_warned_of(name: str, tmp_path: Path) -> None:
    before, after, warned, counts = READ[name]
    found = evaluate_pair(tmp_path, before, after)
    told = said(found)
    assert told.keys() == warned.keys()
    assert all(part in told[code] for code, part in warned.items())
    assert {count: getattr(found.counts, count) for count in counts} == counts


def test_what_is_left_of_packets_may_be_enough(tmp_path: Path) -> None:
    assert evaluate_pair(tmp_path, *SHORTER, key="18:2:be").counts.matched == 200
    in_order = evaluate_pair(tmp_path, *ALL_SAME).counts
    assert in_order.matched_in_order == in_order.matched == 200

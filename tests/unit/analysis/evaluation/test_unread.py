"""What a reader does not read is counted by reason, told, and never called the device's loss."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from blocks import (
    MICROSECONDS,
    RADIO,
    block,
    enhanced,
    interface,
    obsolete,
    section,
    simple,
    statistics,
)
from captures import MICROSECONDS as MICROSECONDS_MAGIC
from captures import NANOSECONDS as NANOSECONDS_MAGIC
from captures import frame, mscap, pcap, stamps
from pairs import evaluate_pair, refusal, said

from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Evaluation

SECOND = 1_000_000_000
Packets = list[tuple[int, bytes]]
PACKETS = 200
START = 1_760_000_000 * SECOND
#: Stamps of a real clock: no step, and gaps of many lengths.
random = np.random.default_rng(1)
TIMES = (START + np.cumsum(random.integers(5_000, 15_000, PACKETS))).tolist()
LATENCIES = random.integers(3_000, 4_000, PACKETS).tolist()
LEFT = [time + latency for time, latency in zip(TIMES, LATENCIES, strict=True)]
FRAMES = [frame(number) for number in range(PACKETS)]
BEFORE = list(zip(TIMES, FRAMES, strict=True))
AFTER = list(zip(LEFT, FRAMES, strict=True))


def unread(found: Evaluation, side: str = "egress") -> dict[str, int]:
    counts: dict[str, int] = getattr(found.inputs, side).unread
    assert getattr(found.counts, f"unread_{side}") == sum(
        count
        for reason, count in counts.items()
        if reason not in ("short", "foreign", "tap-lost", "skipped-at-most", "without-end")
    )
    return counts


@pytest.mark.parametrize("order", "<>")
def test_obsolete_packet_blocks_are_read(tmp_path: Path, order: str) -> None:
    head = section(order) + interface(order=order)
    some = [obsolete(time, data, order=order) for time, data in AFTER[::2]]
    others = [enhanced(time, data, order=order) for time, data in AFTER[1::2]]
    mixed = head + b"".join(one + other for one, other in zip(some, others, strict=True))
    found = evaluate_pair(tmp_path, pcap(BEFORE), mixed)
    assert (found.counts.matched, said(found)) == (PACKETS, {})
    assert found.worst(1)[0].latency == max(LATENCIES)


def test_each_reason_is_counted_and_told(tmp_path: Path) -> None:
    """Every interface has its own link type and resolution; what is not read is counted."""
    head = section() + interface() + interface(RADIO) + interface(resolution=0x80 | 30)
    blocks = []
    for number, (time, data) in enumerate(AFTER):
        broken = bytearray(enhanced(time, data))
        broken[20:24] = struct.pack("<I", 5000)  # a frame that is longer than its block
        odd = {
            1: enhanced(time, data, 1),
            2: simple(data),
            3: enhanced(time, data, 9),
            4: enhanced(2**64 - 1, data),
            5: block(0x70, data),
            6: enhanced(-(-(time << 30) // SECOND), data, 2),
            7: bytes(broken),
        }
        blocks.append(odd.get(number % 20, enhanced(time, data)))
    found = evaluate_pair(tmp_path, pcap(BEFORE), head + b"".join(blocks))
    each = PACKETS // 20
    reasons = ("link-type", "without-time", "without-interface", "impossible-time", "damaged",
               "unknown-block")  # fmt: skip
    assert unread(found) == dict.fromkeys(reasons, each)
    assert found.counts.matched == PACKETS - 6 * each
    message = said(found)["unread-packets"]
    for part in ("10 of link type 127", "10 without a stamp", "10 with an impossible stamp",
                 "10 blocks of unknown types", "may not be"):  # fmt: skip
        assert part in message


def test_drops_that_the_file_tells_are_told(tmp_path: Path) -> None:
    """Both counts are of the same packets; those of statistics count from the start on."""
    head = section() + interface() + interface()
    some = b"".join(enhanced(*one, dropped=1 if n < 3 else None) for n, one in enumerate(AFTER))
    old = b"".join(obsolete(*one, dropped=2 if n == 5 else 0xFFFF) for n, one in enumerate(AFTER))
    tail = statistics(4) + statistics(2, 5) + statistics(1, 1, number=1)
    for blocks, dropped in ((some, 3), (some + tail, 7 + 2), (old + section() + interface(), 2)):
        found = evaluate_pair(tmp_path, pcap(BEFORE), head + blocks)
        assert unread(found) == {"dropped": dropped}
        assert f"dropped {dropped} packets" in said(found)["capture-drops"]


def pcapng(packets: Packets) -> bytes:
    return section() + interface() + b"".join(enhanced(time, data) for time, data in packets)


@pytest.mark.parametrize("write", [pcap, pcapng])
@pytest.mark.parametrize("damage", ["length", "garbage", "removed"])
def test_reading_goes_on_behind_damage(
    tmp_path: Path, write: Callable[[Packets], bytes], damage: str
) -> None:
    whole, start = write(AFTER), len(write(AFTER[:100]))
    file = bytearray(whole)
    match damage:
        case "length":
            place = start + (8 if write is pcap else 4)
            file[place : place + 4] = struct.pack("<I", 0x7FFFFFF3)
        case "garbage":
            file[start:start] = random.bytes(10_001)
        case "removed":
            del file[start : start + 30]
    found = evaluate_pair(tmp_path, write(BEFORE), bytes(file))
    lost = 0 if damage == "garbage" else 1
    assert found.counts.lost == lost
    assert found.counts.matched == PACKETS - lost
    assert f"damaged at byte {start}" in said(found)["capture-damaged"]
    skipped = found.inputs.egress.unread["skipped-at-most"]
    assert skipped >= lost and "without-end" not in found.inputs.egress.unread


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_several_places_are_told_and_a_cut_end_keeps_what_came_before(
    tmp_path: Path, write: Callable[[Packets], bytes]
) -> None:
    parts = [len(write(AFTER[:n])) for n in (50, 120)]
    file = bytearray(write(AFTER))[:-13]
    for place in reversed(parts):
        file[place:place] = b"\xff" * 77
    found = evaluate_pair(tmp_path, write(BEFORE), bytes(file))
    assert found.counts.matched == PACKETS - 1
    messages = [one.message for one in found.warnings if one.code == "capture-damaged"]
    assert "ends in mid-record" in messages[0]
    assert f"at 2 places, byte {parts[0]} first" in messages[1]
    assert found.inputs.egress.unread["without-end"]


@pytest.mark.parametrize("kind", ["pcap", "stamps", "mscap"])
def test_one_damaged_stamp_costs_one_packet(tmp_path: Path, kind: str) -> None:
    after = [(time - START + SECOND, number) for number, time in enumerate(LEFT)]
    before = [(time - START + SECOND, number) for number, time in enumerate(TIMES)]
    if kind == "pcap":
        file = bytearray(pcap([(time, frame(number)) for time, number in after]))
        place = 24 + 76 * 100 + 4
        file[place : place + 4] = struct.pack("<I", 3_000_000_000)
    else:
        write, head, length = (stamps, 64, 16) if kind == "stamps" else (mscap, 0, 12)
        file = bytearray(write(after))
        file[head + 100 * length : head + 100 * length + 8] = b"\xff" * 8
    (tmp_path / "in").write_bytes(pcap([(time, frame(number)) for time, number in before]))
    (tmp_path / "out.mscap").write_bytes(bytes(file))
    found = evaluation.evaluate(tmp_path / "in", tmp_path / "out.mscap")
    assert (found.counts.matched, found.counts.lost) == (PACKETS - 1, 1)
    assert unread(found) == {"impossible-time": 1}
    assert "1 with an impossible stamp" in said(found)["unread-packets"]


def with_fcs(packets: Packets) -> Packets:
    return [(time, data + struct.pack("<I", zlib.crc32(data))) for time, data in packets]


def small(packets: Packets) -> Packets:
    """Frames whose bytes 60 to 63 are the check sequence, which signatures then hold."""
    return [(time, data[:42] + data[42:46] + bytes(14)) for time, data in packets]


def by_option(packets: Packets) -> bytes:
    return section() + interface(fcs_len=4) + b"".join(enhanced(*one) for one in packets)


@pytest.mark.parametrize(
    ("after", "fcs_bytes", "warned"),
    [
        (pcap(with_fcs(small(AFTER)), linktype=0x24000001), 4, set()),
        (pcap(with_fcs(small(AFTER)), linktype=0x27FF0001), 4, set()),
        (by_option(with_fcs(small(AFTER))), 4, set()),
        (pcap(with_fcs(small(AFTER))), 4, {"fcs-taken-off"}),
    ],
    ids=["link type", "link type without a length", "option", "all frames"],
)
def test_a_check_sequence_is_no_part_of_the_frame(
    tmp_path: Path, after: bytes, fcs_bytes: int, warned: set[str]
) -> None:
    """The file says it in the upper bits of its link type or an option; or all frames end in it."""
    found = evaluate_pair(tmp_path, pcap(small(BEFORE)), after, key="signature")
    assert (found.counts.matched, set(said(found))) == (PACKETS, warned)
    assert (found.inputs.ingress.fcs_bytes, found.inputs.egress.fcs_bytes) == (0, fcs_bytes)


def test_a_few_right_check_sequences_are_an_accident(tmp_path: Path) -> None:
    found = evaluate_pair(tmp_path, pcap(BEFORE), pcap(with_fcs(AFTER[:5]) + AFTER[5:]))
    assert found.inputs.egress.fcs_bytes == 0


def mislabelled(packets: Packets, order: str = "<") -> bytes:
    file = pcap(packets, order=order)
    return struct.pack(order + "I", MICROSECONDS_MAGIC) + file[4:]


def without_resolution(packets: Packets) -> bytes:
    head = section() + interface(resolution=MICROSECONDS)
    return head + b"".join(enhanced(time, data) for time, data in packets)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (mislabelled, "magic"),
        (partial(mislabelled, order=">"), "magic"),
        (without_resolution, "if_tsresol"),
    ],
    ids=["pcap", "pcap swapped", "pcapng"],
)
def test_nanoseconds_that_are_called_microseconds(
    tmp_path: Path, write: Callable[[Packets], bytes], says: str
) -> None:
    """The first fractions may be below a million. It is an error that names what mends it."""
    shift = SECOND - TIMES[20] % SECOND
    before, after = (
        [(time + shift + 2_000_000 * (n - 20), data) for n, (time, data) in enumerate(side)]
        for side in (BEFORE, AFTER)
    )
    assert any(time % SECOND < 1_000_000 for time, _ in before)
    message = refusal(tmp_path, write(before), write(after))
    assert "its stamps are nanoseconds" in message and says in message
    assert "evaluate with --nanoseconds ingress" in message
    found = evaluate_pair(tmp_path, write(before), write(after), nanoseconds="both")
    assert (found.min, found.max) == (min(LATENCIES), max(LATENCIES))
    assert found.options.nanoseconds == "both"
    found = evaluate_pair(tmp_path, write(before), pcap(after), nanoseconds="ingress")
    assert (found.min, found.max) == (min(LATENCIES), max(LATENCIES))


def cut(packets: Packets, step: int) -> Packets:
    return [(time // step * step, data) for time, data in packets]


def fast(packets: int = 1000) -> tuple[Packets, Packets]:
    """A device that takes 0.3 to 0.7 us."""
    times = START + np.cumsum(np.random.default_rng(2).integers(90_000, 110_000, packets))
    took = np.random.default_rng(3).integers(300, 701, packets)
    frames = [frame(number) for number in range(packets)]
    before = list(zip(times.tolist(), frames, strict=True))
    return before, list(zip((times + took).tolist(), frames, strict=True))


@pytest.mark.parametrize("magic", [MICROSECONDS_MAGIC, NANOSECONDS_MAGIC])
def test_equal_stamps_are_pairs_and_the_resolution_is_in_every_bound(
    tmp_path: Path, magic: int
) -> None:
    """Whether the file says that its stamps are microseconds, or they are only so by their look."""
    before, after = fast()
    found = evaluate_pair(
        tmp_path,
        pcap(cut(before, 1000), magic=magic),
        pcap(cut(after, 1000), magic=magic),
    )
    assert (found.counts.matched, found.counts.noncausal) == (1000, 0)
    assert {found.min, found.max} == {0, 1000}
    assert found.percentile(0.5).value in (0, 1000)
    assert found.within_ns == found.within.resolution_ns == 1000
    assert [side.resolution_ns for side in found.inputs.both] == [1000, 1000]
    assert "1 us (ingress) and 1 us (egress)" in said(found)["stamp-resolution"]
    json = found.as_json()
    assert json["within"] == {"within_ns": 1000, "clocks_ns": 0, "resolution_ns": 1000}
    assert json["latency_ns"]["bounds"]["max"] == [0, 2000]
    assert found.percentile(0.5).low == found.percentile(0.5).value - 1000


def test_regular_traffic_is_no_resolution(tmp_path: Path) -> None:
    """Ideal gaps and delays have divisors in common that are not a clock's."""
    before = [(START + n * 50_000, frame(n)) for n in range(PACKETS)]
    after = [(time + 20_000, data) for time, data in before]
    found = evaluate_pair(tmp_path, pcap(before), pcap(after))
    assert found.within_ns == 0 and said(found) == {}
    assert "within" not in found.as_json()


def test_a_short_window_is_named_and_not_the_key(tmp_path: Path) -> None:
    def later(by: int, which: slice) -> bytes:
        late = set(range(PACKETS)[which])
        moved = [(time + by * (number in late), data) for number, (time, data) in enumerate(AFTER)]
        return pcap(sorted(moved))

    message = refusal(tmp_path, pcap(BEFORE), later(6 * SECOND, slice(None)))
    assert "within --window" in message and "give --window '13 s'" in message
    assert "--egress-ahead '6 s..6 s'" in message and "key" not in message
    tai = refusal(tmp_path, pcap(BEFORE), later(37 * SECOND, slice(None)))
    assert "as TAI and UTC differ" in tai and "--egress-ahead '37 s..37 s'" in tai
    some = evaluate_pair(tmp_path, pcap(BEFORE), later(6 * SECOND, slice(0, None, 10)))
    assert (some.counts.lost, some.counts.unmatched_egress) == (20, 20)
    assert "20 of the first 200 packets" in said(some)["unmatched-egress"]
    assert "give --window '13 s'" in said(some)["unmatched-egress"]
    wide = evaluate_pair(
        tmp_path, pcap(BEFORE), later(6 * SECOND, slice(0, None, 10)), window_ns=13 * SECOND
    )
    assert wide.counts.matched == PACKETS

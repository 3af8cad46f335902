"""What a reader does not read is counted by reason, told, and never called the device's loss."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Evaluation
from tailtap.base.errors import InputError

SECOND = 1_000_000_000
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


def evaluate(folder: Path, before: bytes, after: bytes, **options: Any) -> Evaluation:
    (folder / "in").write_bytes(before)
    (folder / "out").write_bytes(after)
    options = {"throughout": True} | options
    return evaluation.evaluate(folder / "in", folder / "out", **options)


def refusal(folder: Path, before: bytes, after: bytes, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        evaluate(folder, before, after, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def told(found: Evaluation) -> dict[str, str]:
    return {one.code: one.message for one in found.warnings if one.code != "few-packets"}


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
    found = evaluate(tmp_path, pcap(BEFORE), mixed)
    assert (found.counts.matched, told(found)) == (PACKETS, {})
    assert found.worst(1)[0].latency == max(LATENCIES)


def test_each_reason_is_counted_and_told(tmp_path: Path) -> None:
    """Every interface has its own link type and resolution; what is not read is counted."""
    head = section() + interface() + interface(RADIO) + interface(resolution=0x80 | 30)
    times = dict(enumerate(LEFT))
    blocks = []
    for number, data in enumerate(FRAMES):
        match number % 20:
            case 1:
                blocks.append(enhanced(times[number], data, 1))
            case 2:
                blocks.append(simple(data))
            case 3:
                blocks.append(enhanced(times[number], data, 9))
            case 4:
                blocks.append(enhanced(2**64 - 1, data))
            case 5:
                blocks.append(block(0x70, data))
            case 6:
                units = -(-(times[number] << 30) // SECOND)
                blocks.append(enhanced(units, data, 2))
            case 7:  # a frame that is longer than its block
                broken = bytearray(enhanced(times[number], data))
                broken[20:24] = struct.pack("<I", 5000)
                blocks.append(bytes(broken))
            case _:
                blocks.append(enhanced(times[number], data))
    found = evaluate(tmp_path, pcap(BEFORE), head + b"".join(blocks))
    each = PACKETS // 20
    assert unread(found) == {
        "link-type": each,
        "without-time": each,
        "without-interface": each,
        "impossible-time": each,
        "damaged": each,
        "unknown-block": each,
    }
    assert found.counts.matched == PACKETS - 6 * each
    message = told(found)["unread-packets"]
    for part in ("10 of link type 127", "10 without a stamp", "10 with an impossible stamp",
                 "10 blocks of unknown types", "may not be"):  # fmt: skip
        assert part in message


def test_drops_that_the_file_tells_are_told(tmp_path: Path) -> None:
    """Both counts are of the same packets; those of statistics count from the start on."""
    head = section() + interface() + interface()
    packets = [
        enhanced(time, data, dropped=1 if n < 3 else None) for n, (time, data) in enumerate(AFTER)
    ]
    told_by_packets = evaluate(tmp_path, pcap(BEFORE), head + b"".join(packets))
    assert unread(told_by_packets) == {"dropped": 3}
    assert "dropped 3 packets" in told(told_by_packets)["capture-drops"]
    tail = statistics(4) + statistics(2, 5) + statistics(1, 1, number=1)
    both = evaluate(tmp_path, pcap(BEFORE), head + b"".join(packets) + tail)
    assert unread(both) == {"dropped": 7 + 2}
    old = [
        obsolete(time, data, dropped=2 if n == 5 else 0xFFFF)
        for n, (time, data) in enumerate(AFTER)
    ]
    found = evaluate(tmp_path, pcap(BEFORE), head + b"".join(old) + section() + interface())
    assert unread(found) == {"dropped": 2}


def pcapng(packets: list[tuple[int, bytes]]) -> bytes:
    return section() + interface() + b"".join(enhanced(time, data) for time, data in packets)


@pytest.mark.parametrize("write", [pcap, pcapng])
@pytest.mark.parametrize("damage", ["length", "garbage", "removed"])
def test_reading_goes_on_behind_damage(
    tmp_path: Path, write: Callable[[list[tuple[int, bytes]]], bytes], damage: str
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
    found = evaluate(tmp_path, write(BEFORE), bytes(file))
    lost = 0 if damage == "garbage" else 1
    assert found.counts.lost == lost
    assert found.counts.matched == PACKETS - lost
    assert f"damaged at byte {start}" in told(found)["capture-damaged"]
    skipped = found.inputs.egress.unread["skipped-at-most"]
    assert skipped >= lost and "without-end" not in found.inputs.egress.unread


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_several_places_are_told_and_a_cut_end_keeps_what_came_before(
    tmp_path: Path, write: Callable[[list[tuple[int, bytes]]], bytes]
) -> None:
    parts = [len(write(AFTER[:n])) for n in (50, 120)]
    file = bytearray(write(AFTER))[:-13]
    for place in reversed(parts):
        file[place:place] = b"\xff" * 77
    found = evaluate(tmp_path, write(BEFORE), bytes(file))
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
    assert "1 with an impossible stamp" in told(found)["unread-packets"]


def with_fcs(packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [(time, data + struct.pack("<I", zlib.crc32(data))) for time, data in packets]


def small(packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Frames whose bytes 60 to 63 are the check sequence, which signatures then hold."""
    return [(time, data[:42] + data[42:46] + bytes(14)) for time, data in packets]


@pytest.mark.parametrize("linktype", [0x24000001, 0x27FF0001, 1])
def test_a_check_sequence_is_no_part_of_the_frame(tmp_path: Path, linktype: int) -> None:
    """The file says it in the upper bits of its link type; or all frames end in theirs."""
    before, after = small(BEFORE), with_fcs(small(AFTER))
    found = evaluate(tmp_path, pcap(before), pcap(after, linktype=linktype), key="signature")
    assert found.counts.matched == PACKETS
    assert found.inputs.egress.fcs_bytes == 4
    assert found.inputs.ingress.fcs_bytes == 0
    assert set(told(found)) == ({"fcs-taken-off"} if linktype == 1 else set())


def test_pcapng_tells_a_check_sequence_by_option(tmp_path: Path) -> None:
    file = section() + interface(fcs_len=4)
    file += b"".join(enhanced(time, data) for time, data in with_fcs(small(AFTER)))
    found = evaluate(tmp_path, pcap(small(BEFORE)), file, key="signature")
    assert (found.counts.matched, told(found)) == (PACKETS, {})


def test_a_few_right_check_sequences_are_an_accident(tmp_path: Path) -> None:
    after = with_fcs(AFTER[:5]) + AFTER[5:]
    found = evaluate(tmp_path, pcap(BEFORE), pcap(after))
    assert found.inputs.egress.fcs_bytes == 0


def mislabelled(packets: list[tuple[int, bytes]], order: str = "<") -> bytes:
    file = pcap(packets, order=order)
    return struct.pack(order + "I", MICROSECONDS_MAGIC) + file[4:]


@pytest.mark.parametrize("order", "<>")
def test_nanoseconds_under_the_magic_of_microseconds(tmp_path: Path, order: str) -> None:
    """The first fractions may be below a million. It is an error that names what mends it."""
    shift = SECOND - TIMES[20] % SECOND
    before = [(time + shift, data) for time, data in BEFORE]
    after = [(time + shift, data) for time, data in AFTER]
    assert any(time % SECOND < 1_000_000 for time, _ in before)
    far = [(time + 2_000_000 * n, data) for n, (time, data) in enumerate(before)]
    later = [(time + 2_000_000 * n, data) for n, (time, data) in enumerate(after)]
    message = refusal(tmp_path, mislabelled(far, order), mislabelled(later, order))
    assert "its stamps are nanoseconds" in message
    assert "evaluate with --nanoseconds ingress" in message
    assert "magic" in message
    found = evaluate(
        tmp_path, mislabelled(far, order), mislabelled(later, order), nanoseconds="both"
    )
    assert (found.min, found.max) == (min(LATENCIES), max(LATENCIES))
    assert found.options.nanoseconds == "both"
    found = evaluate(
        tmp_path, mislabelled(far, order), pcap(later, order=order), nanoseconds="ingress"
    )
    assert (found.min, found.max) == (min(LATENCIES), max(LATENCIES))


def test_nanoseconds_without_if_tsresol(tmp_path: Path) -> None:
    def write(packets: list[tuple[int, bytes]]) -> bytes:
        head = section() + interface(resolution=MICROSECONDS)
        return head + b"".join(enhanced(time, data) for time, data in packets)

    message = refusal(tmp_path, write(BEFORE), write(AFTER))
    assert "its stamps are nanoseconds" in message and "if_tsresol" in message
    found = evaluate(tmp_path, write(BEFORE), write(AFTER), nanoseconds="both")
    assert (found.min, found.max) == (min(LATENCIES), max(LATENCIES))


def test_nanoseconds_of_another_word(tmp_path: Path) -> None:
    assert "ingress, egress, both" in refusal(
        tmp_path, pcap(BEFORE), pcap(AFTER), nanoseconds="yes"
    )


def cut(packets: list[tuple[int, bytes]], step: int) -> list[tuple[int, bytes]]:
    return [(time // step * step, data) for time, data in packets]


def fast(packets: int = 1000) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
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
    found = evaluate(
        tmp_path,
        pcap(cut(before, 1000), magic=magic),
        pcap(cut(after, 1000), magic=magic),
    )
    assert (found.counts.matched, found.counts.noncausal) == (1000, 0)
    assert {found.min, found.max} == {0, 1000}
    assert found.percentile(0.5).value in (0, 1000)
    assert found.within_ns == found.within.resolution_ns == 1000
    assert [side.resolution_ns for side in found.inputs.both] == [1000, 1000]
    assert "1 us (ingress) and 1 us (egress)" in told(found)["stamp-resolution"]
    json = found.as_json()
    assert json["within"] == {"within_ns": 1000, "clocks_ns": 0, "resolution_ns": 1000}
    assert json["latency_ns"]["bounds"]["max"] == [0, 2000]
    assert found.percentile(0.5).low == found.percentile(0.5).value - 1000


@pytest.mark.parametrize("steps", [(1, 1000), (1000, 1), (1000, 8)])
def test_two_resolutions_make_nothing_noncausal(tmp_path: Path, steps: tuple[int, int]) -> None:
    before, after = fast()
    found = evaluate(tmp_path, pcap(cut(before, steps[0])), pcap(cut(after, steps[1])))
    assert (found.counts.matched, found.counts.noncausal) == (1000, 0)
    assert found.within_ns == 1000
    true = [after[i][0] - before[i][0] for i in range(1000)]
    assert found.min - 1000 <= min(true) and max(true) <= found.max + 1000
    assert found.min > -1000 and found.max < 1700
    assert abs(found.mean - np.mean(true)) < 1000


def test_regular_traffic_is_no_resolution(tmp_path: Path) -> None:
    """Ideal gaps and delays have divisors in common that are not a clock's."""
    before = [(START + n * 50_000, frame(n)) for n in range(PACKETS)]
    after = [(time + 20_000, data) for time, data in before]
    found = evaluate(tmp_path, pcap(before), pcap(after))
    assert found.within_ns == 0 and told(found) == {}
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
    some = evaluate(tmp_path, pcap(BEFORE), later(6 * SECOND, slice(0, None, 10)))
    assert (some.counts.lost, some.counts.unmatched_egress) == (20, 20)
    assert "20 of the first 200 packets" in told(some)["unmatched-egress"]
    assert "give --window '13 s'" in told(some)["unmatched-egress"]
    wide = evaluate(
        tmp_path, pcap(BEFORE), later(6 * SECOND, slice(0, None, 10)), window_ns=13 * SECOND
    )
    assert wide.counts.matched == PACKETS


@pytest.mark.parametrize(
    ("head", "command"),
    [
        (b"\x02\x21\x4c\x18abcd", "lz4 -dk"),
        (b"\x89LZO\0abcd", "lzop -dk"),
        (b"PK\x03\x04abcd", "unzip"),
        (b"7z\xbc\xaf\x27\x1c", "7z x"),
    ],
)
def test_other_compressions_name_what_undoes_them(
    tmp_path: Path, head: bytes, command: str
) -> None:
    message = refusal(tmp_path, head + bytes(100), pcap(AFTER))
    assert f"({command} {tmp_path / 'in'})" in message


def test_what_was_not_read_is_stored_and_read_again(tmp_path: Path) -> None:
    before, after = fast()
    file = section() + interface(resolution=6) + simple(FRAMES[0])
    file += b"".join(enhanced(time // 1000, data) for time, data in after)
    found = evaluate(tmp_path, pcap(before), file)
    found.write(tmp_path / "stored")
    again = evaluation.Evaluation.load(tmp_path / "stored")
    assert again.inputs == found.inputs and again.counts == found.counts
    assert again.within == found.within and again.within.resolution_ns == 1000
    assert again.counts.unread_egress == 1

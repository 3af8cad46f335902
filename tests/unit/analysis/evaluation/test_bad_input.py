"""Damaged and unsuitable captures: one clear line, or a warning and what can be had."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from captures import COMPRESSIONS, compressed, frame, mscap, pcap, pcapng, stamps

from tailtap.analysis import evaluation
from tailtap.analysis.evaluation import Evaluation
from tailtap.base.errors import InputError

SECOND = 1_000_000_000
INGRESS = [(SECOND + i * 10_000, i) for i in range(200)]
EGRESS = [(time + 3_000, packet_id) for time, packet_id in INGRESS]


def framed(packets: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    return [(time, frame(packet_id)) for time, packet_id in packets]


GOOD_IN = pcap(framed(INGRESS))
GOOD_OUT = pcap(framed(EGRESS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").write_bytes(GOOD_IN)
    (tmp_path / "out").write_bytes(GOOD_OUT)
    return tmp_path


def evaluate(folder: Path, **options: Any) -> Evaluation:
    """Both captures ran all the time."""
    options = {"throughout": True} | options
    return evaluation.evaluate(folder / "in", folder / "out", **options)


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        evaluate(folder, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def codes(found: Evaluation) -> set[str]:
    return {warning.code for warning in found.warnings} - {"few-packets"}


def test_the_good_captures_are_good(folder: Path) -> None:
    assert codes(evaluate(folder)) == set()


def test_missing(folder: Path) -> None:
    (folder / "out").unlink()
    assert "No such file" in refusal(folder)


def test_a_folder_in_place_of_a_file(folder: Path) -> None:
    (folder / "out").unlink()
    (folder / "out").mkdir()
    assert "no capture in this folder" in refusal(folder)


@pytest.mark.parametrize("side", ["in", "out"])
def test_empty(folder: Path, side: str) -> None:
    (folder / side).write_bytes(b"")
    assert "is empty" in refusal(folder)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_nothing_compressed(folder: Path, compression: str) -> None:
    (folder / "in").write_bytes(compressed(b"", compression))
    assert "is empty" in refusal(folder)


def test_wrong_magic(folder: Path) -> None:
    (folder / "in").write_bytes(b"PNG" + GOOD_IN)
    message = refusal(folder)
    assert "not a capture" in message and "504e47" in message and "give --format mscap" in message


@pytest.mark.parametrize("length", [4, 23])
def test_cut_within_the_header(folder: Path, length: int) -> None:
    (folder / "in").write_bytes(GOOD_IN[:length])
    assert "header" in refusal(folder)


def test_no_packets(folder: Path) -> None:
    (folder / "in").write_bytes(pcap([]))
    assert "no packet in the capture" in refusal(folder)


@pytest.mark.parametrize("cut", [1, 60, 75])
@pytest.mark.parametrize("kind", ["pcap", "pcapng", "stamps", "mscap"])
def test_truncated_in_mid_record(folder: Path, kind: str, cut: int) -> None:
    data = {
        "pcap": GOOD_OUT,
        "pcapng": pcapng(framed(EGRESS)),
        "stamps": stamps(EGRESS),
        "mscap": mscap(EGRESS),
    }[kind]
    (folder / "out").unlink()
    (folder / "out.mscap").write_bytes(data[: len(data) - cut])
    found = evaluation.evaluate(folder / "in", folder / "out.mscap", throughout=True)
    assert codes(found) == ({"capture-damaged"} if cut % 12 or kind != "mscap" else set())
    expected = {"pcap": 1, "pcapng": 1, "stamps": -(-cut // 16), "mscap": -(-cut // 12)}
    assert found.counts.lost == expected[kind]
    assert found.counts.matched == 200 - expected[kind]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_data_cut_off(folder: Path, compression: str) -> None:
    # Random payloads, so that half of the compressed file holds about half of the packets.
    packets = [
        (time, data + bytes((i * 7919 + j * j) % 251 for j in range(400)))
        for i, (time, data) in enumerate(framed(EGRESS))
    ]
    data = compressed(pcap(packets), compression)
    (folder / "out").write_bytes(data[: len(data) * 2 // 3])
    message = ""
    try:
        found = evaluate(folder)
    except InputError as error:
        # zstd delivers whole blocks only: nothing may have come out.
        message = str(error)
        assert compression in message and "broken" in message
    else:
        assert codes(found) == {"capture-damaged"}
        assert 0 < found.counts.matched < 200


@pytest.mark.parametrize("length", [2**31, 300_000])
def test_absurd_record_length(folder: Path, length: int) -> None:
    data = bytearray(GOOD_OUT)
    struct.pack_into("<I", data, 24 + 100 * 76 + 8, length)
    (folder / "out").write_bytes(data)
    found = evaluate(folder)
    assert codes(found) == {"capture-damaged"}
    assert found.counts.matched == 199
    (warning,) = (w for w in found.warnings if w.code == "capture-damaged")
    assert f"{length} bytes is absurd" in warning.message and "byte 7624" in warning.message


@pytest.mark.parametrize("length", [0, 8, 13, 2**31])
def test_absurd_block_length(folder: Path, length: int) -> None:
    data = bytearray(pcapng(framed(EGRESS)))
    block = len(data) // 2
    while data[block : block + 4] != b"\6\0\0\0":
        block += 1
    struct.pack_into("<I", data, block + 4, length)
    (folder / "out").write_bytes(data)
    found = evaluate(folder)
    assert codes(found) == {"capture-damaged"}
    assert found.counts.matched == 199


def test_damage_in_the_first_record(folder: Path) -> None:
    data = bytearray(GOOD_OUT)
    struct.pack_into("<I", data, 24 + 8, 2**31)
    (folder / "out").write_bytes(data)
    assert evaluate(folder).counts.matched == 199
    (folder / "out").write_bytes(data[:100])
    message = refusal(folder)
    assert "nothing can be read" in message and message.count(str(folder)) == 1


def test_zero_length_records(folder: Path) -> None:
    packets = framed(EGRESS)
    packets[10:10] = [(packets[10][0], b"")] * 3
    (folder / "out").write_bytes(pcap(packets))
    found = evaluate(folder)
    assert found.counts.matched == 200
    assert found.counts.unkeyed_egress == 3
    assert codes(found) == {"foreign-packets"}


@pytest.mark.parametrize("write", [pcap, pcapng])
@pytest.mark.parametrize("linktype", [105, 127, 147])
def test_other_link_types(folder: Path, write: object, linktype: int) -> None:
    assert callable(write)
    (folder / "in").write_bytes(write(framed(INGRESS), linktype=linktype))
    message = refusal(folder)
    what = "for private use" if linktype == 147 else "IEEE 802.11"
    assert f"link type {linktype} ({what}" in message and "tcpdump -L" in message


def test_snap_length_too_short(folder: Path) -> None:
    for snap, keys in ((44, ("moonsniff", "signature", "42:4:le")), (40, ("auto", "packet"))):
        for side, packets in (("in", INGRESS), ("out", EGRESS)):
            (folder / side).write_bytes(pcap(framed(packets), snap=snap))
        for key in keys:
            assert "snap length" in refusal(folder, key=key)
    assert evaluate(folder, key="18:2:be").counts.matched == 200


def test_some_packets_cut_by_the_snap_length(folder: Path) -> None:
    data = pcap(framed(EGRESS)) + pcap(framed(EGRESS[-1:]), snap=44)[24:]
    (folder / "out").write_bytes(data)
    found = evaluate(folder)
    assert codes(found) == {"snap-length"}
    assert (found.counts.matched, found.counts.unkeyed_egress) == (200, 1)


def test_swapped(folder: Path) -> None:
    with pytest.raises(InputError, match="look swapped"):
        evaluation.evaluate(folder / "out", folder / "in")


def test_some_noncausal_packets_are_a_warning(folder: Path) -> None:
    egress = [(time - 10_000 if i < 5 else time, i) for time, i in EGRESS]
    (folder / "out").write_bytes(pcap(framed(sorted(egress))))
    found = evaluate(folder)
    assert found.counts.noncausal == 5
    assert found.counts.matched == 195
    assert found.counts.lost == 0
    assert codes(found) == {"noncausal"}


def test_no_packet_in_common(folder: Path) -> None:
    (folder / "out").write_bytes(pcap(framed([(time, i + 10**6) for time, i in EGRESS])))
    message = refusal(folder)
    assert "no packet of" in message and "'moonsniff'" in message


def test_captures_of_different_times(folder: Path) -> None:
    (folder / "out").write_bytes(pcap(framed([(time + 60 * SECOND, i) for time, i in EGRESS])))
    assert "are there 60.000003 s later" in refusal(folder)
    (folder / "out").write_bytes(
        pcap(framed([(time + 60 * SECOND, i + 10**6) for time, i in EGRESS]))
    )
    assert "59.998 s apart" in refusal(folder)


def test_packets_that_all_look_the_same(folder: Path) -> None:
    same = b"\2" * 12 + b"\x88\xb5" + bytes(50)
    for side, packets in (("in", INGRESS), ("out", EGRESS)):
        (folder / side).write_bytes(pcap([(time, same) for time, _ in packets]))
    found = evaluate(folder)
    assert found.counts.matched_in_order == found.counts.matched == len(INGRESS)
    assert "occurs more than once" in refusal(folder, key="signature")
    assert "no packet carries" in refusal(folder, key="moonsniff")


def test_signature_of_id_captures(folder: Path) -> None:
    (folder / "in").write_bytes(stamps(INGRESS))
    assert "use --key moonsniff" in refusal(folder, key="signature")


@pytest.mark.parametrize("key", ["moonsnif", "4:9:le", "4:4", ""])
def test_texts_that_are_no_key(folder: Path, key: str) -> None:
    assert "is not a key" in refusal(folder, key=key)


def test_nothing_left_after_trimming(folder: Path) -> None:
    assert "after trimming" in refusal(folder, trim_ns=SECOND)


def test_timestamps_that_go_backwards(folder: Path) -> None:
    expected = evaluate(folder)
    shuffled = list(EGRESS)
    shuffled[50], shuffled[60] = shuffled[60], shuffled[50]
    (folder / "out").write_bytes(pcap(framed(shuffled)))
    found = evaluate(folder)
    assert codes(found) == {"timestamps-backwards"}
    assert found.counts == expected.counts
    assert found.as_json()["latency_ns"] == expected.as_json()["latency_ns"]
    assert found.gaps("egress").edges.tolist() == expected.gaps("egress").edges.tolist()
    assert found.gaps("egress").counts.tolist() == expected.gaps("egress").counts.tolist()


def test_stamps_that_the_tap_lost_are_told_apart_from_loss(folder: Path) -> None:
    (folder / "out").write_bytes(stamps(EGRESS[:150], counts=(200, 150, 50, 3)))
    found = evaluate(folder)
    assert codes(found) == {"tap-lost"}
    (warning,) = (w for w in found.warnings if w.code == "tap-lost")
    assert "lost 50 of 200 stamps" in warning.message


def test_a_tap_that_was_killed(folder: Path) -> None:
    (folder / "out").write_bytes(stamps(EGRESS, closed=False))
    found = evaluate(folder)
    assert found.counts.matched == 200
    assert codes(found) == {"tap-unclosed"}


def test_unmatched_packets_after_the_device_are_a_warning(folder: Path) -> None:
    (folder / "in").write_bytes(pcap(framed(INGRESS[:199])))
    found = evaluate(folder)
    assert found.counts.unmatched_egress == 1
    assert codes(found) == {"unmatched-egress"}

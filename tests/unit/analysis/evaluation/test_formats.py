"""Every capture format, plain and compressed, gives the same evaluation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from captures import (
    COMPRESSIONS,
    MICROSECONDS,
    compressed,
    erf,
    frame,
    mscap,
    pcap,
    pcapng,
    stamps,
)

from tailtap.analysis import evaluation
from tailtap.base.errors import InputError

SECOND = 1_000_000_000
#: Whole microseconds, so that every format holds them exactly.
INGRESS = [(5 * SECOND + i * 10_000, i) for i in range(500)]
EGRESS = [(time + 3_000 + packet_id % 7 * 1_000, packet_id) for time, packet_id in INGRESS]

type_of = Callable[[list[tuple[int, int]]], bytes]


def framed(write: Callable[..., bytes], packets: list[tuple[int, int]], **options: Any) -> bytes:
    return write([(time, frame(packet_id)) for time, packet_id in packets], **options)


FORMATS: dict[str, tuple[str, type_of]] = {
    "pcap ns": ("pcap", partial(framed, pcap)),
    "pcap ns swapped": ("pcap", partial(framed, pcap, order=">")),
    "pcap us": ("pcap", partial(framed, pcap, magic=MICROSECONDS)),
    "pcap us swapped": ("pcap", partial(framed, pcap, magic=MICROSECONDS, order=">")),
    "pcapng ns": ("pcapng", partial(framed, pcapng)),
    "pcapng us": ("pcapng", partial(framed, pcapng, tsresol=None)),
    "pcapng ps": ("pcapng", partial(framed, pcapng, tsresol=12)),
    "pcapng 2^-30": ("pcapng", partial(framed, pcapng, tsresol=0x80 | 30)),
    "pcapng swapped": ("pcapng", partial(framed, pcapng, order=">")),
    "erf": ("erf", partial(framed, erf)),
    "mscap": ("mscap", mscap),
    "stamps": ("stamps", stamps),
}


@pytest.mark.parametrize("compression", ["plain", *COMPRESSIONS])
@pytest.mark.parametrize("name", FORMATS)
def test_format(name: str, compression: str, tmp_path: Path) -> None:
    expected, write = FORMATS[name]
    # The kind is told by content: the names say nothing, but for those that have no magic.
    suffix = f".{expected}" if expected in ("erf", "mscap") else ".dat"
    for side, packets in (("in", INGRESS), ("out", EGRESS)):
        (tmp_path / f"{side}{suffix}").write_bytes(compressed(write(packets), compression))
    found = evaluation.evaluate(tmp_path / f"in{suffix}", tmp_path / f"out{suffix}")
    assert found.inputs.ingress.format == expected
    assert found.key == "moonsniff"
    assert found.counts.matched == 500
    assert found.inputs.ingress.first_ns == INGRESS[0][0]
    latencies, counts = found.distribution
    assert latencies.tolist() == [3_000 + i * 1_000 for i in range(7)]
    assert counts.tolist() == [72, 72, 72, 71, 71, 71, 71]
    coarse = name.startswith(("pcap us", "pcapng us"))
    codes = ["stamp-resolution", "few-packets"] if coarse else ["few-packets"]
    assert [warning.code for warning in found.warnings] == codes
    assert found.within_ns == (1_000 if coarse else 0)


def test_formats_can_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(stamps(INGRESS))
    (tmp_path / "out").write_bytes(framed(pcapng, EGRESS))
    assert evaluation.evaluate(tmp_path / "in", tmp_path / "out").counts.matched == 500


def test_mscap_by_option(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(mscap(INGRESS))
    (tmp_path / "out").write_bytes(mscap(EGRESS))
    found = evaluation.evaluate(tmp_path / "in", tmp_path / "out", format="mscap")
    assert found.counts.matched == 500


@pytest.mark.parametrize("start", [0, 2**32 - 1_000, 2**32 + 5])
def test_mscap_times_that_jump_back_are_unwrapped(start: int, tmp_path: Path) -> None:
    """20 s of packets, stamped modulo 2^32 ns; `start` puts a jump between the first stamps."""
    ingress = [(start + i * 10_000_000, i) for i in range(2_000)]
    egress = [(time + 4_000, packet_id) for time, packet_id in ingress]
    for name, packets in (("in.mscap", ingress), ("out.mscap", egress)):
        (tmp_path / name).write_bytes(mscap((time % 2**32, key) for time, key in packets))
    found = evaluation.evaluate(tmp_path / "in.mscap", tmp_path / "out.mscap")
    assert found.counts.matched == 2_000
    assert found.min == found.max == 4_000
    assert "mscap-unwrapped" in {warning.code for warning in found.warnings}


@pytest.mark.parametrize(
    "options", [{"tags": [5]}, {"tags": [5, 6]}, {"ipv6": True}, {"ipv6": True, "tags": [7]}]
)
@pytest.mark.parametrize("key", ["auto", "moonsniff", "signature"])
def test_tagged_and_ipv6_frames(options: dict[str, Any], key: str, tmp_path: Path) -> None:
    for name, packets in (("in", INGRESS), ("out", EGRESS)):
        frames = [(time, frame(i, **options)) for time, i in packets]
        (tmp_path / name).write_bytes(pcap(frames))
    if key == "signature" and options == {"ipv6": True, "tags": [7]}:
        # The id stands behind byte 63, where a signature ends.
        with pytest.raises(InputError, match="'signature' does not tell packets apart"):
            evaluation.evaluate(tmp_path / "in", tmp_path / "out", key=key)
        return
    found = evaluation.evaluate(tmp_path / "in", tmp_path / "out", key=key)
    assert found.counts.matched == 500
    assert found.max == 9_000


def test_a_long_stream_is_read_in_pieces(tmp_path: Path) -> None:
    """Records across the borders of the decompression buffer, of changing lengths."""
    packets = [(SECOND + i * 1_000, frame(i) + bytes(i % 1400)) for i in range(5_000)]
    later = [(time + 700, data) for time, data in packets]
    (tmp_path / "in").write_bytes(compressed(pcap(packets), "zstd"))
    (tmp_path / "out").write_bytes(compressed(pcapng(later), "gzip"))
    found = evaluation.evaluate(tmp_path / "in", tmp_path / "out")
    assert found.counts.matched == 5_000
    assert found.min == found.max == 700

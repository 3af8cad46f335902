"""Damaged captures: refused in one line, or read in part; what is read is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.base.errors import TailtapError
from tests.simulation.captures import Recorded, Row, written
from tests.simulation.draw import Draw
from tests.simulation.frames import traffic
from tests.simulation.traffic import packets
from tests.simulation.trial import Trial

MAGICS = (
    b"",
    bytes.fromhex("4d3cb2a10200040000000000000000000000ffff01000000"),
    bytes.fromhex("0a0d0d0a1c0000004d3c2b1a01000000ffffffffffffffff1c000000"),
    b"\x89TTSTMP\n\x01\0\x10\0",
    b"\x89TTMARK\n\x01\0\x18\0",
    bytes.fromhex("28b52ffd"),
    bytes.fromhex("1f8b08"),
)
"""What files of several formats begin with."""


def run(draw: Draw, folder: Path) -> None:
    """A capture behind a device that loses nothing, or the one before it, is damaged."""
    made, kind = packets(draw), traffic(draw)
    frames = kind.kind != "ids" or kind.device != "bridge" or draw.has("frames", 0.7)
    numbers = made.arrived[: draw.count("damaged packets", 20, 400)]
    if not numbers.size:
        return
    sides = {
        side: Recorded(tuple(Row(int(ns[n]), int(n), frame(int(n)), int(ns[n])) for n in order))
        for side, order, ns, frame in (
            ("ingress", np.sort(numbers), made.sent, kind.before),
            ("egress", numbers, made.left, kind.behind),
        )
    }
    files = {side: written(draw, side, folder, rows, frames=frames) for side, rows in sides.items()}
    side = draw.choice("damaged side", tuple(files))
    path = files[side].source.files[0]
    how = draw.choice("damage", tuple(DAMAGE))
    path.write_bytes(DAMAGE[how](path.read_bytes(), draw.stream("damage")))
    try:
        key = draw.choice("key", ("auto", "auto", "moonsniff", "signature", "42:4:le"))
        found = evaluate(files["ingress"].source, files["egress"].source, key=key)
    except TailtapError as error:
        assert "\n" not in str(error)
        return
    assert all("\n" not in one.message for one in found.warnings)
    adds_up(found)
    framed = files[side].format.startswith("pcap")
    if how == "cut short" or (how == "garbage within" and framed):
        whole = {(made.sent[n], made.left[n]) for n in numbers}
        assert {packet[1:3] for packet in found.worst()} <= whole
        assert found.lost_at_least == 0
    whole_keys = found.key != "signature" and len(files[side].source.files) == 1
    # Those that others overtook may still have been in the device.
    if how == "cut short" and whole_keys and (np.diff(numbers) > 0).all():
        assert found.counts.lost == 0


def adds_up(found: Evaluation) -> None:
    """Whatever the numbers are, they agree with each other."""
    counts = found.counts
    assert counts.ingress == (
        counts.matched + counts.lost + counts.outside_ingress + counts.not_forwarded
        + counts.to_device + counts.duplicate_ingress + counts.noncausal_ingress
        + counts.trimmed_ingress
    )  # fmt: skip
    assert counts.merged_ingress or counts.egress == (
        counts.matched + counts.duplicate_egress + counts.noncausal + counts.unmatched_egress
        + counts.outside_egress + counts.parts_egress + counts.trimmed_egress
    )  # fmt: skip
    values, times = found.distribution
    assert times.sum() == counts.matched and (np.diff(values) > 0).all()
    assert found.min == values[0] and found.max == values[-1]
    mean = float(values @ times) / counts.matched
    assert found.mean == pytest.approx(mean, abs=1 + found.within_ns)
    for packet in found.worst():
        assert packet.latency == packet.egress_ns - packet.ingress_ns


def cut_short(data: bytes, draw: np.random.Generator) -> bytes:
    return data[: int(draw.integers(len(data)))]


def flipped(data: bytes, draw: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for at in draw.integers(0, len(data), int(draw.integers(1, 6))):
        changed[at] ^= 1 << int(draw.integers(8))
    return bytes(changed)


def without_some(data: bytes, draw: np.random.Generator) -> bytes:
    at = int(draw.integers(len(data)))
    return data[:at] + data[at + int(draw.integers(1, 200)) :]


def with_garbage(data: bytes, draw: np.random.Generator) -> bytes:
    at = int(draw.integers(len(data)))
    return data[:at] + draw.bytes(int(draw.integers(1, 20_000))) + data[at:]


def anything(_: bytes, draw: np.random.Generator) -> bytes:
    return MAGICS[int(draw.integers(len(MAGICS)))] + draw.bytes(int(draw.integers(0, 400)))


DAMAGE = {
    "cut short": cut_short,
    "flipped bits": flipped,
    "bytes removed": without_some,
    "garbage within": with_garbage,
    "anything": anything,
}
TRIAL = Trial("damage", run)

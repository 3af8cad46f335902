"""Packets are followed through devices that change them, and each took what it took."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from captures import pcap
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from tailtap.analysis.evaluation import Evaluation, evaluate
from tests.simulation.devices import ADD, FOLLOWED, LAYERS, Device, any_sent, on_the_wire, sent
from tests.simulation.draw import Draw
from tests.simulation.trial import Trial

START_NS, STEP_NS, LEAST_NS = 1_000_000_000_000_000, 40_000, 7_000


def captured(folder: Path, name: str, frames: list[tuple[int, Packet]], snap: int = 65535) -> Path:
    """A capture of frames with their times in ns; `snap` bytes of each."""
    path = folder / name
    rows = [(START_NS + time_ns, bytes(frame)) for time_ns, frame in frames]
    path.write_bytes(pcap(rows, snap=snap))
    return path


def passed(
    folder: Path,
    frames: list[Packet],
    devices: Sequence[Device],
    draw: random.Random,
    snap: int = 65535,
    *,
    turned: bool = False,
) -> tuple[Evaluation, dict[int, int]]:
    """What is found out of frames through devices, and what each took by when it came, in ns.

    Devices that are `turned` undo what these do.
    """
    before, after, took = [], [], {}
    for number, frame in enumerate(frames):
        time_ns = STEP_NS * number
        changed = Ether(bytes(frame))
        for device in devices:
            changed = device(changed, draw)
        came, left = (changed, frame) if turned else (frame, changed)
        before.append((time_ns, came))
        if draw.random() >= 0.1:
            latency = LEAST_NS + draw.randrange(3 * STEP_NS)
            took[START_NS + time_ns] = latency
            after.append((time_ns + latency, left))
    after.sort(key=lambda row: row[0])
    sides = (("before.pcap", before), ("after.pcap", after))
    paths = (captured(folder, *side, snap) for side in sides)
    return evaluate(*paths, throughout=True), took


def in_a_row(draw: random.Random) -> list[Device]:
    """A router that marks packets, and one to three devices that add headers, innermost first."""
    order = [name for layer in LAYERS for name in layer].index
    chosen = (draw.choice(layer) for layer in draw.sample(LAYERS, draw.randrange(1, 4)))
    return [ADD[name] for name in ["router", "marks", *sorted(chosen, key=order)]]


def run(draw: Draw, folder: Path) -> None:
    """Devices in a row; or one that adds a header or takes it off, or whose key is known."""
    chance = random.Random(draw.between("chance", 0, 1 << 30))
    number = draw.count("packets", 12, 30)
    turned, key = False, "packet"
    if draw.has("known device", 0.3):
        made, devices, key = FOLLOWED[draw.choice("known device", list(FOLLOWED))]
        frames = [made(n, chance) for n in range(3 * number)]
    elif draw.has("one header", 0.4):
        devices = [ADD[draw.choice("one header", sorted(ADD))]]
        frames = [any_sent(n, chance) for n in range(number)]
        turned = draw.has("turned", 0.5)
    else:
        v6 = draw.has("IPv6", 0.3)
        frames = [on_the_wire(sent(n, chance, v6=v6)) for n in range(number)]
        devices = in_a_row(chance)
    found, took = passed(folder, frames, devices, chance, turned=turned)
    assert found.key == key
    require_all(found, took, len(frames))


def require_all(found: Evaluation, took: dict[int, int], sent: int) -> None:
    """Each packet that left was found, with what it took, and no other."""
    counts = found.counts
    assert {packet.ingress_ns: packet.latency for packet in found.worst()} == took
    assert (counts.matched, counts.lost) == (len(took), sent - len(took))
    assert counts.unmatched_egress == counts.noncausal == counts.duplicate_egress == 0


TRIAL = Trial("devices", run, every=3)

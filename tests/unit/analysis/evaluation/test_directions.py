"""Captures that hold both directions: each is told apart and evaluated by itself."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest
from blocks import enhanced, interface, section
from captures import pcap
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import latencies, said
from program import in_process
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from tailtap.analysis.compare import compare_runs
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation import evaluate as evaluate_captures
from tailtap.analysis.evaluation.clocks import known
from tailtap.analysis.evaluation.evaluate import Direction
from tailtap.analysis.runs.reader import finished_runs
from tailtap.base.errors import InputError

#: Both captures run all the time.
evaluate = partial(evaluate_captures, throughout=True)

START = 1_700_000_000_000_000_000
CLIENT, SERVER, NEAR, FAR = (f"02:00:00:00:00:0{number}" for number in range(1, 5))
INSIDE, OUTSIDE, PUBLIC = "10.0.0.7", "203.0.113.9", "198.51.100.1"
Stamped = tuple[int, bytes]
Took = tuple[int, int]
"""What a packet took there, and one back, in ns."""


class World:
    """A device between two captures, each on one side of it: packets pass in both directions."""

    def __init__(self, ahead_ns: int = 0) -> None:
        self.ahead_ns = ahead_ns
        self.client: list[Stamped] = []
        self.server: list[Stamped] = []
        self.there: list[int] = []
        self.back: list[int] = []

    def send(self, time: int, took: int, packet: Packet, moved: Packet, *, back: bool) -> None:
        """A packet enters at `time` and leaves as `moved` after `took`."""
        sides = [self.client, self.server]
        first, second = sides[::-1] if back else sides
        first.append((time, bytes(packet)))
        second.append((time + took, bytes(moved)))
        (self.back if back else self.there).append(took)

    def write(self, folder: Path) -> tuple[Path, Path]:
        paths = folder / "client.pcap", folder / "server.pcap"
        paths[0].write_bytes(pcap(sorted(self.client)))
        paths[1].write_bytes(pcap(sorted((t + self.ahead_ns, d) for t, d in self.server)))
        return paths


def packet(
    number: int, ends: tuple[str, str], macs: tuple[str, str], ports: tuple[int, int], ttl: int = 64
) -> Packet:
    ip = IP(src=ends[0], dst=ends[1], id=number % 65536, ttl=ttl)
    data = number.to_bytes(8, "big") + bytes(12)
    return Ether(src=macs[0], dst=macs[1]) / ip / UDP(sport=ports[0], dport=ports[1]) / Raw(data)


def of_both(
    world: World, number: int, *, router: bool = False, nat: bool = False, took: Took | None = None
) -> None:
    """A request and its answer, through a device that routes, or translates addresses as well."""
    near, far = ((CLIENT, NEAR), (FAR, SERVER)) if router or nat else ((CLIENT, SERVER),) * 2
    inside, outside = (INSIDE if nat else PUBLIC, OUTSIDE), (PUBLIC, OUTSIDE)
    ports, moved = (4000, 53), (61_000 if nat else 4000, 53)
    time, ttl = START + number * 200_000, 63 if router or nat else 64
    there, back = took or (8_000 + number, 12_000 + number)
    ask = packet(number, inside, near, ports)
    world.send(time, there, ask, packet(number, outside, far, moved, ttl), back=False)
    answer = packet(number + 9000, outside[::-1], far[::-1], moved[::-1])
    answered = packet(number + 9000, inside[::-1], near[::-1], ports[::-1], ttl)
    world.send(time + 90_000, back, answer, answered, back=True)


def passing(world: World, count: int, *, router: bool = False) -> World:
    for number in range(count):
        of_both(world, number, router=router)
    return world


def exact(found: Evaluation, world: World) -> bool:
    """Whether both directions are as they were made."""
    assert found.back is not None
    return latencies(found) == sorted(world.there) and latencies(found.back) == sorted(world.back)


def hold(found: Evaluation, world: World) -> None:
    """Each direction has as many packets as were made, and their ends to what the clocks leave."""
    assert found.back is not None
    for one, truth in ((found, world.there), (found.back, world.back)):
        assert (one.counts.matched, one.counts.noncausal) == (len(truth), 0)
        assert abs(one.min - min(truth)) <= one.within_ns
        assert abs(one.max - max(truth)) <= one.within_ns


def test_both_directions_of_one_clock_are_told_apart(tmp_path: Path) -> None:
    world = passing(World(), 300)
    client, server = world.write(tmp_path)
    found = evaluate(client, server)
    assert exact(found, world) and found.back is not None
    assert set(said(found)) == {"both-directions"} and not said(found.back)
    assert found.within_ns == 0 and found.counts.lost == found.counts.noncausal == 0
    assert [Path(side.path).name for side in found.back.inputs.both] == [
        "server.pcap",
        "client.pcap",
    ]
    found.write(tmp_path / "stored")
    assert exact(Evaluation.load(tmp_path / "stored"), world)
    # The captures in the other order are the same with there and back exchanged.
    assert latencies(evaluate(server, client)) == sorted(world.back)
    ways: dict[Direction, list[int]] = {"there": world.there, "back": world.back}
    stored = finished_runs(tmp_path / "stored")
    for run, lasted in zip(stored, (world.there, world.back), strict=True):
        assert isinstance(run.evaluation, Evaluation)
        assert latencies(run.evaluation) == sorted(lasted)
    for direction, expected in ways.items():
        one = evaluate(client, server, direction=direction)
        assert latencies(one) == sorted(expected) and one.back is None


def test_ways_are_no_repeats_of_each_other(tmp_path: Path) -> None:
    captures = passing(World(), 300).write(tmp_path)
    for name in ("one", "other"):
        evaluate(*captures).write(tmp_path / name)
    loads = compare_runs([("", tmp_path / "one"), ("", tmp_path / "other")], None).loads
    ways = [f"5 kpkt/s, direction {way}" for way in ("back", "there")]
    assert [one.load for one in loads] == ways
    assert [len(row.repeats) for one in loads for row in one.configurations] == [1] * 4
    words = ("--history", tmp_path / "h", "--commit", "a", "--date", "2026-01-01T00:00:00+00:00")
    assert in_process("history", "add", tmp_path / "one", *words).returncode == 0
    shown = in_process("history", "show", *words[:2], "--json").stdout
    assert sorted(one["load"] for one in json.loads(shown)["series"]) == ways


def test_what_came_in_and_what_went_out_is_told_from_links(tmp_path: Path) -> None:
    """One capture of all packets before the device, and one of all behind it, on one clock."""
    world = World()
    draw = random.Random(5)
    before, after = [], []
    for number in range(400):
        back = number % 2 == 1
        ends = (OUTSIDE, PUBLIC) if back else (PUBLIC, OUTSIDE)
        macs = (SERVER, CLIENT) if back else (CLIENT, SERVER)
        one = bytes(packet(number, ends, macs, (53, 53)))
        time, took = START + number * 100_000, draw.randrange(8_000, 30_000)
        before.append((time, one))
        after.append((time + took, one))
        (world.back if back else world.there).append(took)
    (tmp_path / "in").write_bytes(pcap(before))
    (tmp_path / "out").write_bytes(pcap(sorted(after)))
    found = evaluate(tmp_path / "in", tmp_path / "out")
    assert exact(found, world) and found.clocks is None
    assert found.back is not None and found.back.inputs.ingress.path == found.inputs.ingress.path
    together = evaluate(tmp_path / "in", tmp_path / "out", direction="both")
    assert together.back is None and latencies(together) == sorted(world.there + world.back)


def test_both_directions_and_both_sides_of_a_router_in_one_file(tmp_path: Path) -> None:
    """A mirror port shows four hardware addresses: two of each side."""
    world = passing(World(), 100, router=True)
    (tmp_path / "both").write_bytes(pcap(sorted(world.client + world.server)))
    found = evaluate(tmp_path / "both")
    assert exact(found, world) and found.clocks is None
    chosen = [side.chosen for side in found.inputs.both]
    assert chosen == [f"from:{CLIENT},{NEAR}", f"from:{FAR},{SERVER}"]


def test_both_directions_at_two_interfaces_of_one_file(tmp_path: Path) -> None:
    world = passing(World(2_000_000), 100)
    ahead = [(time + world.ahead_ns, data) for time, data in world.server]
    packets = sorted(
        (time, on, data) for on, side in enumerate((world.client, ahead)) for time, data in side
    )
    (tmp_path / "both").write_bytes(
        section()
        + interface() * 2
        + b"".join(enhanced(time, data, on) for time, on, data in packets)
    )
    found = evaluate(tmp_path / "both")
    assert [side.chosen for side in found.inputs.both] == ["interface:0", "interface:1"]
    assert found.clocks is not None
    hold(found, world)


def test_a_flow_that_the_device_loses_has_a_direction(tmp_path: Path) -> None:
    """No packet of it is behind the device: who sent it tells where it went."""
    world = passing(World(), 100)
    for number in range(30):
        lost = packet(number + 500, (PUBLIC, "192.0.2.1"), (CLIENT, SERVER), (1, 2))
        world.client.append((START + number * 100_000, bytes(lost)))
    stranger = Ether(src="02:00:00:00:00:77", dst="ff:ff:ff:ff:ff:ff") / ARP(psrc="192.0.2.8")
    world.client.append((START + 17, bytes(stranger)))
    found = evaluate(*world.write(tmp_path))
    assert found.back is not None
    assert (found.counts.matched, found.counts.lost) == (100, 30)
    assert (found.back.counts.matched, found.back.counts.lost) == (100, 0)
    # Nobody knows where the last one went: it is counted on its side, and is not lost.
    assert found.counts.unkeyed_ingress == found.back.counts.unkeyed_egress == 1
    assert found.inputs.ingress.unread == {"direction-unknown": 1}
    assert "direction-unknown" in said(found)


def test_one_direction_is_evaluated_as_ever(tmp_path: Path) -> None:
    world = passing(World(), 50)
    world.client, world.server = (
        [(time, data) for time, data in side if Ether(data).src == CLIENT]
        for side in (world.client, world.server)
    )
    pair = world.write(tmp_path)
    found = evaluate(*pair)
    assert (found.counts.matched, found.back, said(found)) == (50, None, {})
    with pytest.raises(InputError, match="direction back: no packets go both ways"):
        evaluate(*pair, direction="back")


@given(
    st.lists(st.tuples(*[st.integers(3_000, 35_000)] * 2), min_size=40, max_size=80),
    st.one_of(st.just(0), st.integers(40_000, 10**9), st.integers(-(10**9), -40_000)),
    st.sampled_from(("bridge", "router", "nat")),
)
@settings(max_examples=25, deadline=None)
def test_each_direction_is_exact_within_the_stated_interval(
    tmp_path_factory: pytest.TempPathFactory, took: list[Took], ahead_ns: int, device: str
) -> None:
    """Any difference of the clocks that the packets show; where it is known, nothing is open."""
    world = World(ahead_ns)
    for number, each in enumerate(took):
        of_both(world, number, router=device == "router", nat=device == "nat", took=each)
    pair = world.write(tmp_path_factory.mktemp("both"))
    found = evaluate(*pair)
    assert found.back is not None
    assert (found.clocks is None) == (ahead_ns == 0)
    assert found.clocks is None or all(
        least <= ahead_ns <= most for least, most in found.clocks.ahead_ns
    )
    for one, truth in ((found, world.there), (found.back, world.back)):
        assert one.counts.lost == 0
        pairs = zip(latencies(one), sorted(truth), strict=True)
        assert all(abs(value - true) <= one.within_ns for value, true in pairs)
    assert exact(evaluate(*pair, clocks=known(ahead_ns, ahead_ns)), world)

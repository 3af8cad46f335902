"""Interfaces as they are named, and a look at their packets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailtap.base.errors import InputError
from tailtap.measure.observe import interfaces
from tailtap.measure.observe.interfaces import (
    PLACES,
    Interface,
    Place,
    Target,
    find,
    parse_target,
    passed,
)
from tailtap.measure.observe.look import PARTS, Looked, Options, Passing, ways_of

HERE = Place("/proc/self/ns/net", "this namespace")


def interface(text: str) -> Interface:
    target = parse_target(text)
    inode = Path(HERE.path).stat().st_ino
    return Interface(target, HERE, inode, 1, "veth", "veth", (), {}, False)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("lo", "lo", ["arrival egress", "egress arrival", "arrival arrival", "egress egress"]),
        ("lo@arrival", "lo", ["arrival egress", "arrival arrival"]),
        ("lo", "lo@egress", ["arrival egress", "egress egress"]),
        ("lo@egress", "lo@egress", ["egress egress"]),
        # Of one interface: a packet would be its own answer.
        ("lo", None, ["arrival egress", "egress arrival"]),
    ],
)
def test_ways_that_packets_may_take(first: str, second: str | None, expected: list[str]) -> None:
    came = interface(first)
    left = came if second is None else interface(second)
    options = Options(came.target, None if second is None else left.target)
    ways = ways_of(options, came, left)
    assert [f"{one.at} {other.at}" for one, other in ways] == expected
    assert {end.interface for way in ways for end in way} == {came, left}


@pytest.mark.parametrize(
    ("packets", "chosen"),
    [((60, 0, 0, 900), 0), ((60, 70, 0, 0), 1), ((3, 0, 0, 900), 3), ((3, 2, 0, 40), 0)],
)
def test_the_usual_ways_are_taken_where_they_have_enough(
    packets: tuple[int, ...], chosen: int
) -> None:
    came, left = interface("lo"), interface("lo")
    ways = ways_of(Options(came.target, left.target), came, left)
    found = [Looked(way, "", "", count) for way, count in zip(ways, packets, strict=True)]
    assert max(found, key=Looked.order) is found[chosen]


def nothing(seen: tuple[int, int], idle: int = 0, before: int = 0) -> str:
    """What is said of so many packets seen, of `before` more that the interface has counted."""
    came, left = interface("lo@arrival"), interface("lo@egress")
    options = Options(came.target, left.target)
    ways = ways_of(options, came, left)
    received, sent = passed("lo")["lo"]
    counted = {"lo": (received - before, sent - before)}
    earlier = dict.fromkeys((came, left), counted)
    counts = dict(zip(ways[0], seen, strict=True))
    return Passing(options, ways, counts, earlier, 0, idle * PARTS).nothing()


def test_traffic_that_is_not_there_is_not_the_key() -> None:
    none = nothing((0, 0), idle=5)
    assert none.startswith("no packet passed both places within 5 s: no packet came in by lo, no ")
    assert "wait for traffic" in none and "key" not in none
    ended = nothing((30, 1), idle=3)
    assert "30 packets came in by lo, 1 packet left through lo; none in the last 3 s" in ended
    assert "the traffic has ended" in ended and "key" not in ended
    assert "; give --key (docs/explanation/latency.md)" in nothing((30, 30))


def test_what_the_interface_counts_and_no_hook_sees_is_named() -> None:
    sent = nothing((300, 0), before=1000)
    assert "lo sent 1," in sent and "PACKET_QDISC_BYPASS" in sent and "@arrival" in sent
    received = nothing((0, 300), before=1000)
    assert "lo received 1," in received and "AF_XDP may have taken them" in received


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("eth0", Target("eth0", "eth0")),
        ("eth0.5@egress", Target("eth0.5@egress", "eth0.5", at="egress")),
        ("blue/eth0", Target("blue/eth0", "eth0", "", "blue")),
        (
            "/proc/8/ns/net/eth0@arrival",
            Target("/proc/8/ns/net/eth0@arrival", "eth0", "", "/proc/8/ns/net", "arrival"),
        ),
        ("container:web/eth0", Target("container:web/eth0", "eth0", "container", "web")),
        ("pid:12/eth0", Target("pid:12/eth0", "eth0", "pid", "12")),
        ("pod:x-1/eth0", Target("pod:x-1/eth0", "eth0", "pod", "x-1")),
    ],
)
def test_a_target_is_a_place_and_an_interface(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    ["", "/", "a/", "/eth0", "container:/eth0", "tv:x/eth0", "eth0@", "eth0@both", "@egress"],
)
def test_what_names_no_interface_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_target(text)


def test_a_process_has_its_own_namespace() -> None:
    place = find(parse_target(f"pid:{os.getpid()}/lo"))
    assert Path(place.path).stat().st_ino == Path("/proc/self/ns/net").stat().st_ino
    assert find(parse_target("lo")).words == "this machine"


@pytest.mark.parametrize(
    "place", ["pid:4194999", "pid:x", "nowhere", "container:tt-no", "pod:tt-no"]
)
def test_what_is_not_there_is_refused(place: str) -> None:
    with pytest.raises(InputError, match=place.partition(":")[2] or place):
        find(parse_target(f"{place}/eth0"))


@pytest.mark.parametrize("name", ["-x", "a b/../c"])
def test_names_are_no_options_and_no_paths(name: str) -> None:
    for kind in ("container", "pod"):
        with pytest.raises(InputError):
            PLACES[kind][1](name)


def test_a_container_of_two_programs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each of them states it in its own folder."""
    monkeypatch.setattr(interfaces, "ASKED", {})
    states = {}
    for program, pid in (("crun", os.getpid()), ("runc", os.getppid())):
        (tmp_path / program / "web").mkdir(parents=True)
        (tmp_path / program / "web" / "state").write_text(f'{{"pid": {pid}}}')
        states[program] = (f"{tmp_path}/{program}/{{name}}/state", ("pid",))
    monkeypatch.setattr(interfaces, "STATES", states)
    with pytest.raises(InputError, match="crun and runc each run one"):
        PLACES["container"][1]("web")
    del states["runc"]
    found = PLACES["container"][1]("web")
    assert (found.path, found.virtualization) == (f"/proc/{os.getpid()}/ns/net", "container")
    (tmp_path / "crun" / "web" / "state").write_text("no JSON")
    with pytest.raises(InputError, match="none of this name runs here"):
        PLACES["container"][1]("web")

"""Interfaces as they are named, a look at their packets, and who served them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import RECORD, SOFTIRQ, TASK

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
from tailtap.measure.observe.look import PARTS, End, Looked, Options, Passing, ways_of
from tailtap.measure.observe.serving import Serving, contexts, cpus_at, serving_of
from tailtap.records.live import Moment
from tailtap.records.stamps import MARK

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


NET_RX, TIMER = 3, 1
NGINX, POLLER, SHELL = range(4_195_000, 4_195_003)
"""Numbers that no process of this machine has."""
SPAN = 1_000_000


def one_end(**other: Any) -> Interface:
    known: dict[str, Any] = {
        "target": parse_target("eth0"), "place": Place("/proc/self/ns/net", "this machine"),
        "inode": 1, "index": 2, "kind": "veth", "words": "veth", "steered": (), "interrupts": {},
        "is_threaded": False,
    }  # fmt: skip
    return Interface(**(known | other))


@pytest.mark.parametrize("at", ["arrival", "egress"])
def test_what_is_said_of_stamps_at_a_card(at: Moment) -> None:
    """They are the kernel's, whatever the card could do; what has no clock needs no such word."""
    said = [End(one_end(kind=kind), at).stamped() for kind in ("veth", "physical")]
    assert said[1].startswith(said[0])
    assert ["The stamp is the kernel's: a card" in one for one in said] == [False, True]


def traced(folder: Path, events: list[tuple[int, int, int, int, int]]) -> Path:
    """A trace of CPUs 0 and 1; each event is its CPU, start, duration, kind and id."""
    rows = np.zeros(len(events), RECORD)
    for name, column in zip(
        ("cpu", "start", "dur", "kind", "id"), zip(*events, strict=True), strict=True
    ):
        rows[name] = column
    (folder / "trace.events").write_bytes(b"TTTRACE1" + rows.tobytes())
    names = {"pids": {f"{NGINX}": "nginx", f"{POLLER}": "poller", f"{SHELL}": "shell"}}
    said = {"schema": "tailtap.trace/1", "cpus": [0, 1], "started_ns": 0, "ended_ns": SPAN,
            "served": None, "names": names}  # fmt: skip
    (folder / "trace.json").write_text(json.dumps(said))
    return folder


def left(*packets: tuple[int, int]) -> Any:
    """Marks of packets that left on a CPU at a time."""
    rows = np.zeros(len(packets), MARK)
    cpus, rows["time_ns"] = zip(*packets, strict=True)
    rows["cpu"] = np.array(cpus) + 1
    return rows


def found(folder: Path, events: list[tuple[int, int, int, int, int]], marks: Any) -> Serving:
    one = one_end()
    return serving_of(one, one, contexts(traced(folder, events), marks), is_behind=False)


def test_a_softirq_within_a_task_serves(tmp_path: Path) -> None:
    """Whose task it was does not matter."""
    events = [
        (0, 0, SPAN, TASK, SHELL),
        (0, 100, 50, SOFTIRQ, NET_RX),
        (0, 300, 50, SOFTIRQ, NET_RX),
    ]
    serving = found(tmp_path, events, left((0, 120), (0, 340)))
    assert [str(server) for server in serving.servers] == ["softirq"]
    assert serving.cpus == [0] and serving.cores == 1 and not serving.unknown
    assert serving.found == ["100 % of the packets left while the softirq had CPU 0"]
    assert serving.networks == [1]


def test_a_thread_that_sleeps_serves_on_both_cpus(tmp_path: Path) -> None:
    """A softirq of another kind, and one on another CPU, are none of the packets'."""
    events = [(0, 0, 200, TASK, NGINX), (1, 400, 200, TASK, NGINX), (0, 100, 50, SOFTIRQ, TIMER),
              (1, 100, 50, SOFTIRQ, NET_RX)]  # fmt: skip
    serving = found(tmp_path, events, left((0, 120), (1, 500)))
    assert [str(server) for server in serving.servers] == [f"task:{NGINX}"]
    assert serving.rows[0].threads == {f"{NGINX}": "nginx"} and serving.cpus == [0, 1]
    assert serving.cores == 2


def test_a_thread_that_never_sleeps_polls(tmp_path: Path) -> None:
    serving = found(tmp_path, [(1, 0, SPAN, TASK, POLLER)], left((1, 10), (1, 20)))
    assert [str(server) for server in serving.servers] == [f"poll:{POLLER}"]


def test_two_kinds_of_servers_are_two_and_a_rare_one_is_none(tmp_path: Path) -> None:
    events = [(0, 0, 500, TASK, NGINX), (0, 600, 10, TASK, SHELL), (0, 700, 200, SOFTIRQ, NET_RX)]
    packets = [(0, time) for time in (*range(0, 500, 50), 605, *range(700, 890, 10))]
    serving = found(tmp_path, events, left(*packets))
    assert [str(server) for server in serving.servers] == [
        "softirq=softirq@0",
        f"task=task:{NGINX}@0",
    ]
    assert [round(row.share or 0, 2) for row in serving.rows] == [0.63, 0.33]


@pytest.mark.parametrize("marks", [left((0, 2 * SPAN)), left((0, 500)), np.empty(0, MARK)])
def test_what_nobody_saw_is_said(marks: Any, tmp_path: Path) -> None:
    """Packets after the trace, none while anything ran, none at all."""
    serving = found(tmp_path, [(0, 0, 100, TASK, NGINX)], marks)
    assert [str(server) for server in serving.servers] == ["softirq"]
    assert serving.unknown == ["nobody was seen serving packets: it is taken for the softirq"]
    assert serving.cpus


def test_cards_and_steering_add_their_cpus(tmp_path: Path) -> None:
    events = [(0, 100, 50, SOFTIRQ, NET_RX)]
    seen = contexts(traced(tmp_path, events), left((0, 120)))
    one = one_end(steered=[2], interrupts={"33": (4, 5), "34": tuple(range(64))})
    other = one_end(inode=9, is_threaded=True)
    serving = serving_of(one, other, seen, is_behind=False)
    assert serving.cpus == [0, 2, 4, 5] and serving.networks == []
    assert serving.found[:-1] == [
        "interrupt 33 of eth0 may go to CPUs 4-5",
        "interrupt 34 of eth0 may go to CPUs 0-63",
        "packets of eth0 are steered to CPUs 2 (RPS)",
        "threads of the kernel poll eth0 (threaded NAPI)",
    ]
    assert "which network namespaces packets pass between both interfaces" in serving.unknown


def test_where_a_thread_was_when_it_answered(tmp_path: Path) -> None:
    events = [(0, 0, 200, TASK, NGINX), (1, 400, 200, TASK, NGINX), (0, 400, 300, TASK, SHELL),
              (1, 700, 50, SOFTIRQ, NET_RX)]  # fmt: skip
    times = np.array([100, 500, 720, 900], np.uint64)
    folder = traced(tmp_path, events)
    assert cpus_at(folder, times, [NGINX]).tolist() == [1, 2, 0, 0]
    assert cpus_at(folder, times, []).tolist() == [0, 0, 2, 0]

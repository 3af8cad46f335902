"""Who served packets, by a trace and the packets' marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import RECORD, SOFTIRQ, TASK

from tailtap.measure.observe.interfaces import Interface, Place, parse_target
from tailtap.measure.observe.look import End
from tailtap.measure.observe.serving import Serving, contexts, cpus_at, serving_of
from tailtap.records.live import Moment
from tailtap.records.stamps import MARK

NET_RX, TIMER = 3, 1
NGINX, POLLER, SHELL = range(4_195_000, 4_195_003)
"""Numbers that no process of this machine has."""
SPAN = 1_000_000


def interface(**other: Any) -> Interface:
    known: dict[str, Any] = {
        "target": parse_target("eth0"), "place": Place("/proc/self/ns/net", "this machine"),
        "inode": 1, "index": 2, "kind": "veth", "words": "veth", "steered": (), "interrupts": {},
        "is_threaded": False,
    }  # fmt: skip
    return Interface(**(known | other))


@pytest.mark.parametrize("at", ["arrival", "egress"])
def test_what_is_said_of_stamps_at_a_card(at: Moment) -> None:
    """They are the kernel's, whatever the card could do; what has no clock needs no such word."""
    said = [End(interface(kind=kind), at).stamped() for kind in ("veth", "physical")]
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
    one = interface()
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
    one = interface(steered=[2], interrupts={"33": (4, 5), "34": tuple(range(64))})
    other = interface(inode=9, is_threaded=True)
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

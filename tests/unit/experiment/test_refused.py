"""What does not go together in an experiment file is one line, with its line and its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiment_files import complaint

from tailtap.experiment.model import Experiment
from tailtap.host.knobs import KNOBS

PLATFORMS = """\
name: platforms
traffic: {}
vary:
  dut.platform: [bare-metal, container, vm]
  dut.kernel: [vanilla, rt]
exclude:
"""

CLAIMS = """\
name: claims
dut: {cpus: [1]}
traffic: {rate: 10 kpkt/s, duration: 2 s, cpu: 0}
vary: {dut.platform: [wire, bare-metal, container]}
claims:
  - says: A container is no later than bare metal.
    for: {dut.platform: container}
    against: {dut.platform: bare-metal}
    at: p99.9
    is: no worse
    by: 5 %
  - {id: quick, says: It is quick., for: {dut.platform: container}, require: ["p99.9 < 1 ms"]}
scales:
  fast: {vary.traffic.rate: [1 Mpkt/s]}
"""

FIGURES = """\
name: drawn
traffic: {rate: 50 kpkt/s, duration: 2 s}
vary:
  dut.platform: [wire, bare-metal]
  traffic.rate: [10 kpkt/s, 20 kpkt/s]
figures:
  - kind: hdr
    panels: traffic.rate
    series: {by: dut.platform, order: [bare-metal], names: {wire: Floor}}
    runs: {traffic.rate: [10 kpkt/s]}
    axes: {y: {scale: linear, range: [0 us, 200 us]}}
    line: p99.9 < 1 ms
    beside: {path: tree, where: {vm/rt: {dut.platform: bare-metal}}}
"""

BRANCHING: dict[str, Any] = {
    "forwarder": "kernel-route",
    "nodes": {"fw": {"forwarder": "tc-mirred"}, "r": {"platform": "container", "count": 3}},
    "links": ["in - fw - r1 - r2 - out", "fw - r3 - out"],
    "flows": {
        "a": {"path": ["in", "fw", "r1", "r2", "out"], "rate": "2 kpkt/s"},
        "b": {"path": ["in", "fw", "r3", "out"], "size": "256 B", "pattern": "poisson"},
    },
}

ROUTED: dict[str, Any] = {**BRANCHING, "nodes": {"fw": {}, "r": {"count": 3}}}

PATH = ["in", "fw", "r3", "out"]

SERVER = "{server: {command: dnsmasq, listens: 'udp:53'}}"

TRAFFIC = "{generator: external, external: {command: 'dnsperf -s {server}'}}"

MATCH = "{match: transactions}"


def written(
    dut: str = f"forwarder: {SERVER}",
    traffic: str = TRAFFIC,
    evaluation: str = MATCH,
    more: str = "",
) -> str:
    return (
        f"name: a\ndut: {{{dut}, cpus: [1]}}\ntraffic: {traffic}\nevaluation: {evaluation}\n{more}"
    )


LINES = [
    ("dut: {line: 65}", "65 is wrong, wanted: 64 or less"),
    (
        "dut: {line: 64, forwarder: kernel-route}",
        "traffic.ttl: packets with a time to live of 64 end before the end of a line of 64",
    ),
    ("dut: {forwarder: kernel-route}\ntraffic: {ttl: 1}", "it must be 2 or more"),
    (
        "dut: {line: 2, platform: vm, huge_pages: true}",
        "dut.huge_pages: huge pages are reserved for one virtual machine, not for dut1 and",
    ),
    (
        "dut: {line: 2, forwarder: testpmd}",
        "dut.line: dut1 and dut2 share CPU 1, and forwarder testpmd needs CPUs of its own",
    ),
    ("dut: {line: 2, irq: core}", "dut.irq: core gives each node a core of its own"),
    ("dut: {line: [a]}", "dut.line: dut.nodes has no a: describe it there"),
    ("dut: {line: [b], nodes: {a: {}}}", "dut.line: dut.nodes has no b: known: a"),
    ("dut: {line: [a, a, a2], nodes: {a: {}, a2: {}}}", "something else is called a2"),
    ("dut: {line: [tap], nodes: {tap: {}}}", "something else is called tap"),
    ("dut: {nodes: {a: {}, b: {}}}", "dut.nodes: dut.line names none of these nodes"),
    ("dut: {line: [A], nodes: {A: {}}}", "'A' does not do: write at most 12 small letters"),
    ("dut: {line: [a], nodes: {a: {line: 2}}}", "dut.nodes.a.line: a node does not have this"),
    ("dut: {line: [a], nodes: {a: {cpu: 1}}}", "dut.nodes.a.cpu: unknown key: did you mean 'c"),
    ("dut: {line: [a], nodes: {a: {cpus: [2]}}}", "dut.nodes.a.cpus: CPU 2 is none of dut.cpu"),
    (
        "dut: {line: [a], nodes: {a: {cpus: one}}}",
        "dut.nodes.a.cpus: 'one' is wrong, wanted: CPU number",
    ),
    (
        "dut: {line: [a], nodes: {a: {memory: 1 GiB}}}",
        "dut.nodes.a.memory: platform bare-metal does not have this key",
    ),
    (
        "dut: {memory: 1 GiB, line: [a], nodes: {a: {}}}",
        "dut.memory: platform bare-metal does not have this key",
    ),
    (
        "dut: {line: [a, b], nodes: {a: {forwarder: testpmd}, b: {}}}",
        "a and b share CPU 1, and forwarder testpmd needs CPUs of its own",
    ),
    (
        "dut: {line: [a, b], nodes: {a: {platform: wire}, b: {}}}",
        "dut.line: platform wire cannot form a line",
    ),
    (
        "dut: {line: [a], nodes: {a: {forwarder: {fault: {holds: 1}}}}}",
        "dut.nodes.a.forwarder.fault.holds: unknown key: did you mean 'hold'",
    ),
]

HOPS = [
    ("{taps: hops}", "a single device is one hop: make dut.line 2 or more"),
    ("{taps: hops, platform: wire, line: 3}", "platform wire has no nodes"),
    ("{taps: hops, ports: [a, b]}", "a single device is one hop"),
    ("{taps: queues, ports: [a, b], line: 3}", "choose taps: hops"),
    ("{taps: hops, line: 3, napi: threads}", "choose napi: softirq"),
    ("{taps: each, line: 3}", "wanted: ends or hops or queues"),
]

NEIGHBOURS = [
    ("{x: cpu}", "dut.neighbours.x: a neighbour is one kind with its options"),
    ("{x: {cpuu: {}}}", "there is no neighbour 'cpuu': did you mean 'cpu'"),
    ("{x: {cpu: 3}}", "the options of cpu are a mapping"),
    ("{x: {cpu: {busy: 20}}}", "dut.neighbours.x.cpu.cpus: this key is missing"),
    ("{x: {cpu: {cpus: [1], busi: 3}}}", "cpu.busi: unknown key: did you mean 'busy'"),
    ("{x: {cpu: {cpus: [1, 1]}}}", "a CPU is named twice in [1, 1]"),
    ("{x: {cpu: {cpus: [1], busy: 101}}}", "cpu.busy"),
    ("{x: {cpu: {cpus: [1], period: 1 us}}}", "a period lasts from 100 us to 10 s"),
    ("{x: {cache: {cpus: [1], size: 8 B}}}", "it reads from 4 KiB to 4 GiB"),
    ("{x: {packets: {cpus: [1], rate: 9, burst: 65}}}", "packets.burst"),
    ("{Xx: {cpu: {cpus: [1]}}}", "dut.neighbours.Xx"),
]

NETWORKS: list[tuple[dict[str, Any], str]] = [
    ({"line": 2}, "dut.links: dut.line says which nodes there are already"),
    ({"links": ["in - fw - rr - out"]}, "dut.links: dut.nodes has no rr: known: fw, r1"),
    ({"links": ["in fw out"]}, "dut.links[0]: 'in fw out' joins no nodes: write names with"),
    ({"links": ["fw - in - r1"]}, "in only begins such a chain"),
    ({"links": ["in - out"]}, "in and out cannot be joined"),
    ({"links": ["in - fw - fw - out"]}, "fw and fw cannot be joined"),
    ({"flows": {"a": {}}}, "dut.flows.a: there are several ways, in - fw - r1 - r2 - out and"),
    ({"flows": {}}, "dut.links: there are several ways"),
    ({"links": ["fw - r1 - out"], "flows": {"a": {}}}, "no links lead from in to out"),
    ({"flows": {"a": {"path": ["in", "r1", "out"]}}}, "a.path: no link joins in and r1: from"),
    ({"flows": {"a": {"path": ["fw", "out"]}}}, "dut.flows.a.path: write the names of nodes"),
    ({"flows": {"a": {"path": ["in", ["fw"], "out"]}}}, "a.path: write the names of nodes"),
    ({"flows": {"a": {"path": "fw"}}}, "dut.flows.a.path: write the names of nodes"),
    (
        {"flows": {"a": {"path": ["in", "fw", "r1", "fw", "r3", "out"]}}},
        "dut.flows.a.path: fw is there twice",
    ),
    ({"flows": {"a": {"path": PATH, "rat": 1}}}, "dut.flows.a.rat: unknown key: did you mean"),
    (
        {"flows": {"a": {"path": PATH, "duration": "1 s"}}},
        "dut.flows.a.duration: all flows have this key in common",
    ),
    ({"flows": {"a": {"path": PATH, "rate": "fast"}}}, "dut.flows.a.rate: 'fast'"),
    (
        {"flows": {"a": {"path": PATH, "size": "9 B"}}},
        "dut.flows.a.size: 9 B is no Ethernet frame",
    ),
    ({"flows": {"a": {"path": PATH, "ttl": 2}}}, "dut.flows.a.ttl: packets with a time"),
    ({"flows": {"A": {"path": PATH}}}, "write at most 24 small letters"),
    ({"nodes": {"fw": {}, "r": {"count": 0}}}, "dut.nodes.r.count: this is a number from 1"),
    ({"nodes": {"fw": {}, "r": {"count": "3"}}}, "dut.nodes.r.count: this is a number from 1"),
    (
        {"nodes": {"fw": {}, "r": {"count": 3}, "r2": {}}},
        "dut.nodes: something else is called r2",
    ),
    (
        {"nodes": {"in": {}, "r": {"count": 3}}},
        "dut.nodes: something else is called in",
    ),
    (
        {"nodes": {"fw": {}, "r": {"count": 3, "platform": "wire"}}},
        "dut.links: platform wire cannot form a line",
    ),
    ({"irq": "core"}, "dut.irq: core gives each node a core of its own"),
    ({"taps": "hops", "napi": "threads"}, "choose napi: softirq"),
]

OVER = [
    ("{line: 2, forwarder: kernel-route, over: {sriov: [a, a]}}",
     ("dut.over.sriov: packets between functions of one card pass no cable: name two cards "
     "that one joins")),
    (("{line: 2, forwarder: kernel-route, ports: [a, b], over: {sriov: [e, b]}}\n"
     "tap: {ports: [c, d]}"),
     ("dut.over.sriov: b has the cable before or behind the DuT, and a card has one cable: name "
     "another one")),
    ("{line: 2, forwarder: tc-mirred, over: {sriov: [a, b]}}",
     ("dut.over: a network card gives a virtual function only what is addressed to it, and "
     "dut1 is no router: make kernel-route or nat or nftables or dpdk-l3fwd its forwarder, or "
     "leave dut.over out")),
    ("{line: 2, forwarder: kernel-route, taps: hops, over: {sriov: [a, b]}}",
     ("dut.taps: a packet that comes from a cable is received long after it was handed over, "
     "and nothing tells when that was: choose taps: ends, or leave dut.over out")),
    ("{line: 2, forwarder: kernel-route, queues: 1}",
     ("dut.queues: links of the lab have one queue: name network cards with dut.ports or "
     "dut.over, measure on a testbed, or leave it out")),
]  # fmt: skip

SERVERS = [
    (written(evaluation="{}"), "evaluation.match: no packet passes server: take transactions"),
    (written(traffic="{}"), "traffic.generator: tailtap's own packets ask server nothing"),
    (
        written(dut=f"forwarder: {SERVER}, platform: wire"),
        "dut.forwarder: platform wire has no DuT that could answer",
    ),
    (written(dut=f"forwarder: {SERVER}, line: 2"), "dut.line: server has one port"),
    (
        written(dut=f"line: [a, b], nodes: {{a: {{forwarder: {SERVER}}}, b: {{}}}}"),
        "dut.nodes: server is no node of a line",
    ),
    (
        written(dut="forwarder: tc-mirred"),
        "evaluation.match: the DuT hands packets on and answers none",
    ),
    (written(more="tap: {format: stamps}\n"), "tap.format: stamps do not tell requests"),
    (written(more="tap: {kind: passive}\n"), "tap.kind: only inline taps stamp both ways"),
    (written(more="trace: thin\n"), "trace: a trace is joined with stamps"),
    (
        written(evaluation="{match: transactions, transaction: dsn}"),
        "evaluation.transaction: there is no kind 'dsn': did you mean 'dns'?",
    ),
    (
        "name: a\ntraffic: {}\nevaluation: {transaction: dns}\n",
        "evaluation.transaction: this is for evaluation.match: transactions",
    ),
    (
        "name: a\ntraffic: {}\ntap: {format: pcap}\n",
        "traffic.warm_up: a pcap has the packets of the warm-up as well",
    ),
    (
        "name: a\ntraffic: {warm_up: 0 s}\ntap: {format: pcap}\nevaluation: {key: packt}\n",
        "evaluation.key: 'packt' is not a key",
    ),
    ("name: a\ntraffic: {}\ntap: {snap_length: 20 B}\n", "tap.snap_length: a pcap keeps 64 B"),
]

TUNING = [
    ("fast", "dut.tuning"),
    ("[no-such-knob]", "there is no knob or group 'no-such-knob'"),
    ("{without: no-such-knob}", "there is no knob or group 'no-such-knob'"),
    ("{with: timers}", "dut.tuning"),
    ("ablation", "dut.tuning"),
]

CASES = [
    ("{traffic.cpu: 1}", ":3: cases: write a list of mappings from key paths to values, "),
    ("\n  - traffic.cpu", ":4: cases[0]: write a list of mappings from key paths to values, "),
    ("[{}]", ":3: cases[0]: write a list of mappings"),
    (
        "\n  - {traffic.cpu: 1}\n  - {traffic.cpu: 0, dut.cpus: [1]}",
        (":5: cases[1]: dut.cpus is missing in cases[0]: all cases name the same key paths"),
    ),
    (
        "\n  - {traffic.cpu: 0, dut.cpus: [1]}\n  - {traffic.cpu: 1}",
        (":5: cases[1]: dut.cpus is missing in cases[1]: all cases name the same key paths"),
    ),
    (
        "\n  - {dut.cpus: [1], traffic.cpu: 0}\n  - {traffic.cpu: 0, dut.cpus: [1]}",
        ":5: cases[1]: {'traffic.cpu': 0, 'dut.cpus': [1]} is in the list twice",
    ),
    (
        "\n  - repeat: 2",
        (
            ":4: cases[0].repeat: only a path into dut, traffic, tap, evaluation can vary, "
            "such as traffic.rate, and trace, interrupts"
        ),
    ),
    (
        "\n  - {dut.options: {}, dut.options.drop: [1]}",
        ":4: cases[0].dut.options.drop: dut.options varies as a whole already",
    ),
    (
        "\n  - traffic.rate: 1 kpkt/s\n  - traffic.rate: 10 kpps",
        ":5: cases[1].traffic.rate: '10 kpps' is not a packet rate",
    ),
    (
        "\n  - dut.ports: [a, b]",
        (
            ":4: cases[0].dut.ports: these are one end of two cables: name the cards "
            "at the other with tap.ports"
        ),
    ),
    (
        "\n  - {traffic.duration: 2 s}\n  - {traffic.duration: 1 s}\nevaluation: {trim: 1 s}",
        (
            ":6: evaluation.trim: a trim of 1 s leaves nothing of 1 s of traffic, with "
            "cases[1].traffic.duration (/e.yaml:5)"
        ),
    ),
]

EXCLUDED = [
    (
        "  - {dut.platform: xen}\n",
        (
            ":7: exclude[0].dut.platform: 'xen' is none of the values of this key: "
            "bare-metal, container, vm"
        ),
    ),
    (
        "  - dut.platform: vm\n  - dut.platform: [vm, xen]\n",
        ":8: exclude[1].dut.platform: 'xen' is none of the values of this key",
    ),
    (
        "  - dut.platform: []\n",
        ":7: exclude[0].dut.platform: [] is none of the values of this key",
    ),
    (
        "  - dut.platfrom: vm\n",
        ":7: exclude[0].dut.platfrom: this key does not vary: did you mean 'dut.platform'?",
    ),
    (
        "  - traffic.rate: 10 kpkt/s\n",
        ":7: exclude[0].traffic.rate: this key does not vary: known: dut.platform",
    ),
    (
        "  - dut.platform: [bare-metal, container]\n  - dut.platform: vm\n",
        (":6: exclude: this excludes every combination: nothing is left to measure"),
    ),
    ("  - vm\n", ":7: exclude[0]: write a list of mappings from varied key paths"),
    ("  dut.platform: vm\n", ":6: exclude: write a list of mappings from varied key paths"),
]

CLAIMED = [
    ("{dut.platform: container}\n", "{dut.platfrm: container}\n",
     "e.yaml:7: claims[0].for.dut.platfrm: this key does not vary: did you mean"),
    ("bare-metal}", "vm}",
     "e.yaml:8: claims[0].against.dut.platform: 'vm' is none of the values of this key: wire"),
    ("against: {dut.platform: bare-metal}", "against: {dut.platform: container}",
     "e.yaml:8: claims[0].against: these are the runs that it is about"),
    ("at: p99.9", "at: p999", "e.yaml:9: claims[0].at: 'p999' is no percentile"),
    ("    at: p99.9\n", "", "e.yaml:8: claims[0].against: at is missing"),
    ("no worse", "wrose", "e.yaml:10: claims[0].is: 'wrose' is wrong, wanted: 'better'"),
    ("    by: 5 %\n", "", "e.yaml:10: claims[0].is: no worse needs a share: write by: 5 %"),
    ("5 %", "0 %", "e.yaml:11: claims[0].by: leave it out instead of 0 %"),
    ("no worse\n    by: 5 %", "better\n    by: 100 %", "e.yaml:11: claims[0].by: nothing is"),
    ('["p99.9 < 1 ms"]', '["p99.9 < 1"]', "e.yaml:12: claims[1].require[0]: 'p99.9 < 1'"),
    (', require: ["p99.9 < 1 ms"]', "", "e.yaml:12: claims[1].says: a claim has one test"),
    (', require: ["p99.9 < 1 ms"]', ', require: [loss == 0], by: 5 %',
     "e.yaml:12: claims[1].by: this belongs to against"),
    ("id: quick", "id: claim-1", "e.yaml:12: claims[1].id: claim-1 is claimed twice"),
    ("id: quick", "idd: quick", "e.yaml:12: claims[1].idd: unknown key: did you mean 'id'"),
    ("{vary.traffic.rate: [1 Mpkt/s]}", "{claims: []}",
     "e.yaml:14: scales.fast.claims: a scale cannot set claims"),
]  # fmt: skip

DRAWN = [
    ("kind: hdr", "kind: hdrs", ":7: figures[0].kind: there is no kind of figure 'hdrs'"),
    ("panels: traffic.rate", "panels: traffic.rat", ":8: figures[0].panels: nothing varies by"),
    ("order: [bare-metal]", "order: [vm]", ":9: figures[0].series: 'vm' is no value of dut.pl"),
    ("names: {wire", "names: {wires", "'wires' is no value of dut.platform"),
    ("[10 kpkt/s]}", "[30 kpkt/s]}", ":10: figures[0].runs.traffic.rate: '30 kpkt/s' is no"),
    ("200 us", "200", ":11: figures[0].axes.y.range: 200 has no unit"),
    ("0 us, 200", "300 us, 200", "the axis ends before it begins"),
    ("scale: linear", "scale: log", "a logarithmic axis does not reach 0"),
    ("p99.9 < 1 ms", "loss < 1 %", ":12: figures[0].line: 'loss < 1 %' is no line in a figure"),
    ("path: tree", "tree: tree", ":13: figures[0].beside.tree: unknown key"),
    ("{dut.platform: bare", "{dut.kernel: bare", "nothing varies by 'dut.kernel'"),
    ("kind: hdr", "kind: hdr\n    over: traffic.rate", "hdr does not have this key"),
    ("kind: hdr", "kind: percentile\n    percentile: p100", "is no percentile"),
    ("kind: hdr", "kind: counter", "name what is counted"),
    ("kind: hdr", "kind: counter\n    counter: LOC", "'0 us' is no number"),
    (
        "name: drawn",
        "name: drawn\nscales: {more: {vary.traffic.rate: [1 Mpkt/s]}}",
        "10 kpkt/s",
    ),
]
TRAFFICS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"bidirectional": True}, "traffic.bidirectional: a network has a flow for"),
    ({}, {"flows": {"dst": "10.1.0.1"}},
     "a and b go to the same address, by which fw cannot tell them apart"),
    ({}, {"ttl": 3}, "traffic.ttl: packets with a time to live of 3 end before"),
    ({"route_by": "port", "links": ["in - fw - r1 - r2 - out", "r1 - out"],
      "flows": {"a": {"path": ["in", "fw", "r1", "r2", "out"]},
                "b": {"path": ["in", "fw", "r1", "out"]}}},
     {"flows": {"dport": "53"}}, "a and b go to the same UDP port, by which r1"),
    ({"taps": "hops", "flows": {"a": {"path": PATH}, "b": {"path": [*PATH]}}}, {},
     "a and b both enter r3 at to-fw, where a tap cannot tell them apart"),
]  # fmt: skip
EVENTS = [
    ("{at: 3 s, run: ls}", "packets end after 3 s"),
    ("{at: 1 s, run: ls, where: moon}", "there is no 'moon': known are dut, generator, host"),
    ("{at: 1 s, run: 'ls {x}'}", "{x} stands for nothing"),
    ("{at: 1 s, run: []}", "run"),
    ("{at: 0 s, every: 1 us, run: ls}", "these are more than 10,000"),
    ("{at: 1 s, run: ls}\ntap: {format: pcap}", "these are joined with stamps"),
]
PORTS = [
    ("ports: [a, b]}\ntap: {ports: [c, b]", "dut.ports and tap.ports must be four different"),
    ("ports: [a, b]", "ports: these are one end"),
    ("ports: [a]}\ntap: {ports: [c, d]", "dut.ports"),
    ("ports: ['a b', b]}\ntap: {ports: [c, d]", "dut.ports"),
]
BOOT = [knob.name for knob in KNOBS if knob.settable == "boot"]


def mistakes() -> Iterator[tuple[str, str]]:
    for text, said in LINES:
        yield f"name: line\n{text}\n" + ("" if "traffic:" in text else "traffic: {}\n"), said
    for dut, said in HOPS:
        ports = "tap: {ports: [c, d]}\n" if "ports" in dut else ""
        yield f"name: line\ndut: {dut}\n{ports}traffic: {{}}\n", said
    yield from ((f"dut: {{neighbours: {text}}}", said) for text, said in NEIGHBOURS)
    line = "{line: [a, b], nodes: {a: {neighbours: {}}, b: {}}}"
    yield f"dut: {line}", "a node does not have this key"
    for changes, traffic, said in (*((one, {}, said) for one, said in NETWORKS), *TRAFFICS):
        content = {"name": "n", "dut": {**ROUTED, **changes}, "traffic": traffic}
        yield yaml.safe_dump(content, sort_keys=False), said
    end = "traffic: {rate: 1 kpkt/s, duration: 1 s}\n"
    yield from ((f"name: a\ndut: {dut}\n{end}", f"/e.yaml:2: {said}") for dut, said in OVER)
    boot = ((f"[{name}]", "cannot be set while the machine runs: set it with") for name in BOOT)
    for tuning, said in (*TUNING, *boot):
        yield f"name: a\ndut: {{tuning: {tuning}}}\n{end}", said
    yield from SERVERS
    yield from ((f"name: a\ndut: {{{ports}}}\n{end}", said) for ports, said in PORTS)
    sent = "traffic: {rate: 10 kpkt/s, duration: 3 s, warm_up: 0 s}\n"
    yield from ((f"name: a\n{sent}events:\n- {event}\n", said) for event, said in EVENTS)
    yield from ((f"name: a\ntraffic: {{}}\ncases: {text}\n", said) for text, said in CASES)
    yield from ((PLATFORMS + text, said) for text, said in EXCLUDED)
    for whole, rows in ((CLAIMS, CLAIMED), (FIGURES, DRAWN)):
        for old, new, said in rows:
            assert old in whole
            yield whole.replace(old, new), said


@pytest.mark.parametrize(("text", "said"), list(mistakes()))
def test_what_cannot_be_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


@pytest.mark.parametrize(
    ("node", "paths", "expected"),
    [
        ("testpmd", [["fw", "r1"], ["fw", "r2"]], "fw has 4 ports, which forwarder testpmd cannot"),
        ("tc-mirred", [["r1", "fw"], ["r1", "fw"]], "fw sends packets of to-r1 more than one way"),
        ("tc-mirred", [["fw", "r1"], ["fw", "r1"]], None),
        ("xdp", [["fw", "r1"], ["fw", "r2"]], None),
        ("suricata", [["fw", "r1"]], None),
    ],
)
def test_a_node_branches_as_far_as_its_forwarder_can(
    tmp_path: Path, node: str, paths: list[list[str]], expected: str | None
) -> None:
    nodes = {"fw": {"forwarder": node, "cpus": [1]},
             "r": {"forwarder": "kernel-route", "count": 2, "cpus": [2]}}  # fmt: skip
    links = ["in - fw - r1 - out", "fw - r2 - out", "in - r1", "fw - out"]
    flows = {f"f{n}": {"path": ["in", *path, "out"]} for n, path in enumerate(paths)}
    dut = {"cpus": [1, 2, 3], "irq": "none", "nodes": nodes, "links": links, "flows": flows}
    content = {"name": "n", "dut": dut, "traffic": {}}
    if expected is None:
        Experiment.model_validate(content)
    else:
        message = complaint(tmp_path, yaml.safe_dump(content, sort_keys=False))
        assert expected in message
        assert "kernel-route" in message.partition(": take ")[2]

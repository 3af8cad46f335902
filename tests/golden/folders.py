"""The folders that the stories are about: one of each kind, and the same each time."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import comparisons
import experiment_folders
import numpy as np
import runs
import two_clocks
from captures import frame, pcap, write_many
from exchanges import dns, ping
from made_records import rewrite, wiring
from placed_runs import large, placed_run, recorded, tuned, write_ablation
from pos_trees import write_crate, write_histograms, write_old_tree
from published_trees import write_tree
from tails import write_tail
from tool_texts import FORTIO, RESULTS
from traced import HOG, KWORKER, STEAL, ticks
from traced import traffic as packets
from traced import write_run as write_traced

from tailtap.host.cpu.cpus import Numa
from tailtap.lab.topology.graph import Node
from tailtap.lab.topology.graphs import network, smallest
from tailtap.lab.topology.placement import Placed, Placement, facts
from tests.fuzz import readers
from tests.simulation.clocks import Clock
from tests.simulation.device import NAMES

SECOND = 1_000_000_000
REQUIRED = ("--require", "p99.9 < 1 ms", "--require", "return_level(24 h) < 1 ms",
            "--require", "reliability(1 ms) >= 99.999 %", "--profile", "urllc-5g")  # fmt: skip
LOOPS = [{"pkt_sz": 64, "pkt_rate": rate} for rate in (100_000, 200_000)]
LOG = (
    "\x1b[0;34m[Device: id=0] TX\x1b[0m: 0.1000 Mpps, 54.40 Mbit/s (70.40 Mbit/s with framing)\n"
    "\x1b[1;36m[Device: id=1] RX\x1b[0m: 0.0990 (StdDev 0.1) Mpps, 53.86 (StdDev 1) Mbit/s "
    "(69.70 Mbit/s with framing), total 990 packets with 67320 bytes (incl. CRC)\n"
    "\x1b[0;34m[Device: id=0] TX\x1b[0m: 0.1000 (StdDev 0.1) Mpps, 54.40 (StdDev 1) Mbit/s "
    "(70.40 Mbit/s with framing), total 1000 packets with 68000 bytes (incl. CRC)\n"
)
NETWORK = """\
name: network
question: Which way is slower?
dut:
  forwarder: kernel-route
  cpus: [0]
  nodes: {firewall: {forwarder: tc-mirred}, router: {count: 3}}
  links: [in - firewall - router1 - router2 - out, firewall - router3 - out]
  flows:
    upstream: {path: [in, firewall, router1, router2, out], rate: 10 kpkt/s}
    beside: {path: [in, firewall, router3, out]}
traffic: {rate: 1 kpkt/s}
vary: {dut.route_by: [address, port]}
repeat: 2
"""

PLACED_FIGURES = """\
figures:
  - {kind: hdr, panels: traffic.rate,
     series: {by: dut.platform, order: [container, bare-metal], names: {wire: Floor}}}
  - {kind: worst, series: dut.platform}
  - {kind: percentile, percentile: p99, over: traffic.rate, series: dut.platform, line: p99 < 1 ms}
  - {kind: loss, over: {by: traffic.rate, order: [50 kpkt/s], names: {10 kpkt/s: slow}},
     series: dut.platform}
  - {kind: tail-latency, panels: traffic.rate, series: dut.platform}
  - {kind: grades, series: dut.platform}
  - {kind: shape}
"""
"""Figures whose panels, lines and values stand for what varies."""
COUNTED_FIGURES = """\
  - {kind: counter, counter: LOC, per: packet}
  - {kind: counter, counter: NET_RX softirq, per: LOC}
  - {kind: counter, counter: cycles}
  - {kind: counter, counter: LOC, per: cycles}
  - {kind: shape, method: tailtap}
"""
MODELLED_FIGURES = """\
figures:
  - {kind: divergence, series: dut.platform}
  - {kind: thresholds}
  - {kind: shape}
  - {kind: shape, method: tailtap}
  - {kind: stationarity, series: dut.platform}
  - {kind: exceedances, panels: dut.platform}
"""


def own(folder: Path) -> None:
    """Ten finished runs and a failed one, as Parquet only."""
    experiment_folders.write_experiment(folder, packets=3_000)
    (folder / "experiment.yaml").write_text(
        "name: container-vs-bare-metal\nquestion: What does a container cost?\n"
        "require: [p99 < 1 ms, loss == 0]\nclaims:\n"
        "- {says: A wire keeps its time., for: {dut.platform: wire}, require: [p99 < 1 ms]}\n"
        "- {says: Half are quicker than light., require: [median < 1 ns]}\n" + PLACED_FIGURES
    )


def modelled(folder: Path) -> None:
    """Two runs of a hundred thousand packets."""
    random = np.random.default_rng(1)
    for number in (1, 2):
        run = experiment_folders.write_run(
            folder, number, {"dut.platform": "container"}, repeat=number, packets=300
        )
        latency = 4_000 + (random.pareto(3, 100_000) * 2_000).astype(np.int64)
        shutil.rmtree(run / "evaluation")
        write_tail(run / "evaluation", latency, lost=100 * (number - 1))
    (folder / "experiment.yaml").write_text(f"name: modelled\n{MODELLED_FIGURES}")


def captured(folder: Path) -> None:
    """Captures of packets, flows, two clocks, requests and answers; samples of interrupts."""
    folder.mkdir()
    times = [SECOND + 100_000 * number for number in range(20_000)]
    write_many(folder / "in.pcap", times, range(20_000))
    took = [500 + (80_000 if number % 1000 < 10 else 0) + number % 7 for number in range(20_000)]
    there = [number for number in range(20_000) if number % 3_000 != 2_999]
    write_many(folder / "out.pcap", [times[n] + took[n] for n in there], there)
    rows = [f"{at * 10_000};{at // 10};{at}\r\n" for at in range(300)]
    (folder / "irq.csv").write_text(
        "timestamp_us;TLB_shootdowns_CPU1;LOC_Local_timer_interrupts_CPU1\r\n" + "".join(rows)
    )
    two_clocks.TwoClocks(Clock(5_000_000, 1e-6)).write(folder / "clocks", 3)
    asks, says = [], []
    for number in range(300):
        time = SECOND + 1_000_000 * number
        asks += [(time, ping(True, number)), (time + 10, dns(True, number, "a.example"))]
        says.append((time + 50_000 + 97 * number, ping(False, number)))
        if number % 10:
            says.append((time + 300_001, dns(False, number, "a.example")))
    # The server's clock is ahead by a millisecond.
    server = [(time + 1_007_000, packet) for time, packet in asks]
    server += [(time + 998_000, packet) for time, packet in says]
    sides = {"asks": asks, "says": says, "both": asks + says, "server": server}
    for name, side in sides.items():
        (folder / f"{name}.pcap").write_bytes(pcap(sorted(side)))
    ports = [(number, struct.pack(">H", 1_000 + number % 10)) for number in range(3_420)]
    flows = [(times[n], frame(n)[:34] + port + frame(n)[36:]) for n, port in ports]
    dropping = [(time + 7_000, packet) for n, (time, packet) in enumerate(flows) if n % 10 != 3]
    (folder / "flows.pcap").write_bytes(pcap(flows))
    (folder / "dropping.pcap").write_bytes(pcap(dropping))
    tagged = [(time + 900, frame(n, tags=[7 + (n % 5 == 0)])) for n, time in enumerate(times[:50])]
    (folder / "tagged.pcap").write_bytes(pcap(tagged))


def traced(folder: Path) -> None:
    """Repeats whose late packets have causes, of which one is from outside."""
    random = np.random.default_rng(8)
    causes = (
        ((HOG, 9, (600_000, 1_200_000)), (KWORKER, 12, (200_000, 400_000))),
        ((STEAL, 6, (400_000, 800_000)),),
    )
    for number, ones in enumerate(causes, 1):
        told = packets(number, 0.5, *ones, rate=10_000, more=ticks(0.5, 9_000))
        hog = {"pid": HOG.id, "command": "hog --busy 1ms", "policy": "FIFO", "priority": 50,
               "cgroup": "/system.slice/batch.service"}  # fmt: skip
        tasks = NAMES | {"tasks": {str(HOG.id): hog}}
        run = write_traced(folder / f"runs/{number:03}-traced", told, names=tasks)
        rewrite(run / "run.json", number=number, repeat=number)
        ingress, egress = told.made.sent, told.made.left
        bounds = np.arange(ingress[0], ingress[-1], 2_000_000)
        late = ingress[egress - ingress > 100_000]
        rises = {"LOC_timer_CPU1": 50 * np.histogram(late, bounds)[0]}
        for decoy in range(12):
            rises[f"{decoy}_decoy_CPU1"] = random.poisson(3, bounds.size - 1)
        columns = [(bounds - bounds[0]) // 1_000, bounds, np.full(bounds.size, 1_000)]
        columns += [np.append(0, np.cumsum(one)) for one in rises.values()]
        names = ["timestamp_us", "monotonic_ns", "took_ns", *rises]
        rows = [names, *np.column_stack(columns).tolist()]
        text = "".join(";".join(map(str, row)) + "\r\n" for row in rows)
        (run / "interrupts.csv").write_text(text)
    (folder / "experiment.yaml").write_text("name: traced\n")


def drawn(folder: Path) -> None:
    """A run whose interrupts were counted on two CPUs, of which one is the device's."""
    readers.write_drawn(folder)
    [run] = folder.glob("runs/*")
    head = "timestamp_us;LOC_Local_timer_interrupts_CPU1;LOC_Local_timer_interrupts_CPU0;"
    head += "24_PCI-MSI_eth0_CPU1;NET_RX_softirq_CPU1"
    rows = [head, "0;100;7;5;1", "1000000;350;9;5;11", "2000000;600;9;8;21"]
    (run / "interrupts.csv").write_text("\r\n".join([*rows, ""]))
    (folder / "experiment.yaml").write_text(readers.FIGURES + COUNTED_FIGURES)


def observed(folder: Path) -> None:
    """A run of a device that was there before."""
    points = [
        {"target": f"blue/{name}", "interface": name, "at": "arrival", "inode": 7,
         "kind": "veth, a port of the bridge br0", "namespace": "network namespace blue",
         "stamped": "As the interface is handed a packet."}
        for name in ("eth0", "eth1")
    ]  # fmt: skip
    servers = [
        {"by": "task", "cpus": [2, 3], "threads": {"81": "nginx"}, "share": 0.96},
        {"by": "softirq", "cpus": [3]},
    ]
    observed = {
        "points": points, "servers": servers, "found": ["one thing", "another"],
        "unknown": ["who sends"],
        "cost": {"budget": 0.02, "taps": 0.0061, "trace": 0.012, "measured_ns": 1},
    }  # fmt: skip
    comparisons.write_run(folder, 1, {}, packets=4_000, changes={"observed": observed})


def searched(folder: Path) -> None:
    folder.mkdir()
    readers.write_search(folder)


def ranked(folder: Path) -> None:
    """Four runs of each of two devices, of which one takes twice as long."""
    for at in range(8):
        platform, scale = (("bare-metal", 1.0), ("container", 2.0))[at // 4]
        comparisons.write_run(
            folder, at + 1, {"dut.platform": platform}, scale=scale, repeat=at % 4 + 1,
            packets=60_000,
        )  # fmt: skip


def published(folder: Path) -> None:
    """Runs whose results are exported as the papers published theirs, and imported again."""
    for number, platform in enumerate(("wire", "bare-metal", "container"), 1):
        experiment_folders.write_run(folder, number, {"dut.platform": platform}, packets=3_000)


def pos(folder: Path) -> None:
    """Trees of pos of both layouts with histograms."""
    write_histograms(write_old_tree(folder / "old", LOOPS) / "loadgen", range(len(LOOPS)))
    write_histograms(write_crate(folder / "new", LOOPS) / "files/a", range(len(LOOPS)))


def strange(folder: Path) -> None:
    """Trees of others in which something is missing, damaged, there twice or oddly named."""
    _, tree = write_tree(folder / "made", packets=300)
    shutil.move(tree, folder / "files")
    stem = folder / "files/wire/latencies-pre-rate10000-repeat0.pcap.zst"
    (stem.parent / f"{stem.name}.trim_ms0.stats.csv").unlink()
    for kind, old, new in (
        ("percentiles", "0.5,", "0.5"),
        ("worst", ",", ",1"),
        ("hist", "00,", ""),
    ):
        [file] = stem.parent.glob(f"{stem.name}.*.{kind}.csv")
        file.write_text(file.read_text().replace(old, new, 4))
    for file in list(stem.parent.glob("*rate50000-repeat0*")):
        name = file.name.replace("-repeat0", "-repeat0-l2fwd").replace("trim_ms0", "trim_ms1500")
        file.rename(file.with_name(name))
    shutil.copytree(folder / "files/bare-metal", folder / "files/copy")
    shutil.rmtree(folder / "made")
    loadgen = write_old_tree(folder / "old", [*LOOPS, *LOOPS, {"kernel": "rt"}]) / "loadgen"
    write_histograms(loadgen, (0, 1))
    (loadgen / "histogram_run1.csv").write_text("1000,5\nlatency\n")
    (loadgen / "throughput_run2.log").write_text(LOG)
    (loadgen / "throughput_run3.log").write_text(LOG[: len(LOG) // 2])
    [*_, last] = sorted(loadgen.glob("*_run4.loop"))
    last.write_text("{'pkt_sz': 64, 'kernel': 'rt'}")  # as old versions wrote it
    last.with_suffix(".status").write_text("failed\n")
    last.with_name("2020-10-08_00-00-00_000001_again_run0.loop").write_text('{"kernel": 1}')
    last.with_name("2020-10-08_00-00-00_000001_again_run1.loop").write_text('{"kernel": ')
    (folder / "old/config/allocation.json").write_text("[]")
    crate = write_crate(folder / "new", LOOPS)
    (crate / "config/a/hardware.json").unlink()
    next(crate.glob("scripts/b/*_run01.loop")).unlink()


def tools(folder: Path) -> None:
    folder.mkdir()
    for name, text in RESULTS.items():
        (folder / f"{name}.txt").write_text(text)
    for repeat in (1, 2):
        (folder / f"base-{repeat}.json").write_text(json.dumps({**FORTIO, "ActualQPS": repeat}))


def broken(folder: Path) -> None:
    """Runs of which one is whole; the others failed, were interrupted, or lack something."""
    runs.write_experiment(folder, (2_000,) * 4)
    (folder / "results.duckdb").unlink()
    _, no_file, no_table, no_stamps, _ = sorted((folder / "runs").iterdir())
    (no_file / "evaluation/evaluation.json").unlink()
    (no_table / "evaluation/worst.parquet").write_bytes(b"")
    (no_stamps / "egress.stamps").unlink()
    runs.write_run(folder / "runs", 6, status="interrupted")


def lossy(folder: Path) -> None:
    """Two platforms at three rates: one loses what is above its limit, and of the last run the
    generator did not send all."""
    runs = [(platform, rate, repeat) for platform in ("wire", "bare-metal")
            for rate in (20_000, 40_000, 80_000) for repeat in (1, 2)]  # fmt: skip
    for number, (platform, rate, repeat) in enumerate(runs, 1):
        limit = {"wire": 1e9, "bare-metal": 50_000}[platform] * (1.02 - 0.02 * repeat)
        experiment_folders.write_run(
            folder, number, {"dut.platform": platform, "traffic.rate": f"{rate // 1000} kpkt/s"},
            repeat=repeat, packets=5_000, rate=rate, loss=max(0.0, 1 - limit / rate),
            achieved=70_400.0 if number == 12 else None,
        )  # fmt: skip


def read(folder: Path) -> None:
    """Repeats of two platforms with what was counted, drawn and done beside the latencies."""
    elapsed = 2 * SECOND
    for number in range(1, 9):
        platform, repeat = ("bare-metal", "container")[number > 4], (number - 1) % 4 + 1
        run = experiment_folders.write_run(
            folder, number, {"dut.platform": platform}, repeat=repeat, packets=400
        )
        counted = {"branches": 70, "context-switches": 100 * number}
        window = {"elapsed_ns": 1, "events": counted, "scope": "dut.cpus", "cpus": [1],
                  "estimated": ["branches"], "by_cpu": {}, "kinds": {"LOC": 5}}  # fmt: skip
        taps = json.loads((run / "run.json").read_text())["taps"]
        taps["ingress"] |= {"seen": 90, "other": 10}
        energy = {"package-0": 170_000_000, "package-0/core": 90_000_000,
                  "package-0/dram": 10_000_000, "psys": 500_000_000}  # fmt: skip
        rewrite(
            run / "run.json", taps=taps,
            counters={"run": window, "lifetime": window | {"scope": "machine"}},
            energy={"elapsed_ns": elapsed, "energy_uj": energy if number != 2 else {},
                    "platform_watts": {"before": 212, "after": None}},
        )  # fmt: skip
    events = [
        {"name": "reload", "where": "dut", "command": ["nft"], "at_ns": 5, "window_ns": 5,
         "begin_ns": 1_000_000, "end_ns": 3_000_000, "status": 0, "after_ns": 300_000_000,
         "within_ns": off,
         "blocked": {"begin_ns": 1, "ns": 40_000, "least_ns": 20_000, "most_ns": 60_000},
         "around": {"time_ns": 10, "packets": 200, "lost": 0, "max_ns": 50_000}}
        for off in (0, 114_000)
    ]  # fmt: skip
    # Packets were received on another node than that of a card, by threads.
    held = Placed((1,), {"tt-in": "ens1", "tt-out": "ens2"}, {"tt-in": (6, 7)})
    numa = Numa((0, 1, 6, 7), {0: (0, 1), 1: (6, 7)}, {"ens1": 1, "ens2": 0})
    graph = smallest("namespace", (1,), placement=Placement("node", napi="threads", queues=1))
    other = {"time_ns": 99, "packets": 9, "lost": 1, "max_ns": 7_000}
    rewrite(run / "run.json", events=events, beside_events=other,
            placement=facts("dut", held, numa), **wiring(graph))  # fmt: skip
    (folder / "experiment.yaml").write_text("name: read\nrequire: ['median < 1 s']\n")


def flows(folder: Path) -> None:
    """Two flows through a network that were measured together, twice."""
    nodes = [Node(name, "dut") for name in ("fw", "r1", "r2")]
    wired = wiring(network(nodes, {"voice": ["fw", "r1"], "bulk": ["fw", "r2"]}))
    for number, (flow, repeat, loss) in enumerate(
        (("voice", 1, None), ("bulk", 1, 0.25), ("voice", 2, 0.0), ("bulk", 2, 0.0)), 1
    ):
        experiment_folders.write_run(
            folder, number, {"dut.neighbours": {}, "flow": flow}, repeat=repeat, packets=4_000,
            loss=loss, warnings=[{"code": "no-device", "message": "not traced"}], changes=wired,
        )  # fmt: skip


def placed(folder: Path) -> None:
    """What ran where on machines of every kind, and what their audits say."""
    scratch = folder / "scratch"
    intel, amd, cloud = (
        recorded(name, scratch / name)
        for name in ("intel-two-sockets", "amd-epyc-four-nodes", "cloud-vm")
    )
    did = {"reached": 1, "done": 9, "cpu_ns": 9, "elapsed_ns": 9}
    noise = {"batch": {"kind": "cpu", "unit": "share", "asked": 1, "cpus": {"1": did, "8": did}}}
    away = {"environment": large(), "tuning": tuned(scratch / "sender", [], role="generator")}
    left = tuned(scratch / "left", [])
    left["left"] = {"device-interrupts": "the kernel refuses", "gone": "it is not there"}
    apart = [{"name": name, "task": "dut", "kind": "namespace", "cpus": [cpu]}
             for name, cpu in (("a", 1), ("b", 8), ("c", 8))]  # fmt: skip
    path = [
        "gen:tt-gen",
        "tap:tt-b",
        *(f"{one}:tt-{end}" for one in "abc" for end in ("in", "out")),
    ]
    cards = (("ens1f0", "ens5f0"), ("ens5f1", "ens1f1"))
    places: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (intel, {"dut": [1, 2], "generator": 6, "taps": [0, 3]}),
        (intel, {"dut": [1, 2], "generator": 6, "taps": [3], "neighbours": noise}),
        (intel, {"dut": [1, 2], "generator": 3, "taps": [0, 3], "nodes": apart,
                 "flows": [{"name": "forward", "path": path, "stamped": []}],
                 "placement": {"ports": {"a:tt-in": {"cpus": [1]}, "b:tt-in": {"cpus": [8]},
                                         "c:tt-in": {"cpus": [8]}}}}),
        (amd, {"dut": [17, 18, 50], "generator": 49, "taps": [0]}),
        (large(), {"dut": [2, 3], "generator": 4, "taps": [0], "ports": cards}),
        (large(), {"dut": [31, 32], "generator": 33, "taps": [0, *range(2, 31), 34]}),
        (cloud, {"dut": [1], "generator": 0, "taps": [0], "tuning": left,
                 "placement": {"ports": {"tt-in": {"cpus": [0]}, "tt-out": {"cpus": []}}}}),
        (cloud, {"dut": [1], "generator": 40, "taps": [41], "stations": {"generator": away}}),
    ]  # fmt: skip
    for number, (machine, where) in enumerate(places, 1):
        run = placed_run(folder, number, machine, variables={"place": f"{number}"}, **where)
    audit = {"isolated-cpus": {"answer": "met", "value": "1", "wanted": "contains 1"},
             "nohz-full": {"answer": "not-applicable", "value": None, "wanted": None}}  # fmt: skip
    guest = {"role": "vm-guest", "cpus": "1", "left": {"rcu-nocbs": "not built"}, "audit": audit}
    interrupt = {"port": "tt-in", "cpus": [], "handled": {"6": 12, "7": 3}}
    rewrite(run / "run.json", platform={"tuning": guest}, card_interrupts={"45": interrupt})
    write_ablation(scratch / "ablation")
    shutil.move(scratch / "ablation" / "runs", folder / "ablation/runs")
    shutil.rmtree(scratch)


def described(folder: Path) -> None:
    folder.mkdir()
    (folder / "network.yaml").write_text(NETWORK)
    readers.write_texts(folder)


def other(folder: Path) -> None:
    """Nothing."""


FOLDERS = {
    make.__name__: make
    for make in (own, modelled, captured, traced, drawn, observed, searched, lossy, read, flows,
                 placed, ranked, published, pos, strange, tools, broken, described, other)
} | {
    "improved": readers.write_trace,
    "guest": readers.write_guest,
    "line": readers.write_line,
    "mixed": readers.write_imported,
}  # fmt: skip

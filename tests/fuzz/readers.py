"""The table of readers: what each is given, what of it is damaged, and what is typed."""

from __future__ import annotations

import atexit
import json
import shutil
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from devices import Bench, sharp
from experiment_folders import write_run as write_evaluated
from guests import HOST_HOG, write_guest_run
from identities import write_planted
from improvements import helped, improvement, store, trial
from placed_runs import placed_run, recorded, tuned
from pos_trees import write_crate, write_old_tree
from postgres import cluster, programs
from published_trees import write_mixed
from runs import write_experiment, write_line_run, write_pair
from sampled import write_sampled
from sites import write_site
from traced import HOG, KWORKER, STEAL, traffic
from traced import write_run as write_traced

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.tail import model_runs
from tailtap.analysis.undisturbed import keep_undisturbed
from tailtap.base.errors import MachineError
from tailtap.measure.search.methods import settings_of
from tests.fuzz.reader import Reader
from tests.simulation.machine import What
from tests.simulation.tracer import Told

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTBED = """\
hosts:
  loadgen: {ssh: loadgen, power: {kind: command, status: a, switch_on: b, switch_off: c}}
  stamper: {ssh: stamper, python: /usr/bin/python3}
  dut: {ssh: dut}
cables:
  - {ends: [loadgen:g0, dut:d0], splitter: stamper:t0}
  - {ends: [loadgen:g1, dut:d1], splitter: stamper:t1}
roles: {dut: dut, generator: loadgen, timestamper: stamper}
"""
ENERGY = {
    "elapsed_ns": 2_000_000_000,
    "energy_uj": {"package-0": 170_000_000, "package-0/core": 90_000_000, "psys": 500_000_000},
    "platform_watts": {"before": 212, "after": 230},
}
COUNTERS = {
    "run": {"elapsed_ns": 1, "scope": "dut.cpus", "cpus": [1], "estimated": ["branches"],
            "events": {"branches": 70, "context-switches": 120},
            "kinds": {"LOC": 90, "NET_RX softirq": 7}, "kinds_by_cpu": {"1": {"LOC": 90}}},
    "lifetime": {"elapsed_ns": 2, "scope": "machine", "cpus": [0, 1], "estimated": [],
                 "events": {"branches": 90, "context-switches": 340}},
}  # fmt: skip
READS = (
    ("report", "{input}", "--out", "{out}"),
    ("compare", "{input}"),
    ("model", "{input}", "--out", "{out}"),
    ("verdict", "{input}", "--require", "p99 < 1 ms", "--require", "loss == 0"),
    ("verdict", "{input}", "--require", "gap(max) < 1 s", "--json"),
)
"""What looks at runs."""
EXPORTS = tuple(
    ("export", "{input}", "--to", to, "--out", "{out}")
    for to in ("csv", "parquet", "hgrm", "papers", "pos")
)
PACKETS = 600


def write_runs(folder: Path) -> None:
    """An experiment with stamps and evaluations, its file and its plan."""
    write_experiment(folder, (PACKETS, PACKETS))
    # Another reader has databases: opening one takes longer than all else here.
    (folder / "results.duckdb").unlink()
    text = "name: again\ntraffic: {rate: 1 kpkt/s, duration: 1 s}\nrequire: [p99 < 1 ms]\n"
    (folder / "experiment.yaml").write_text(text)
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/run.json"))]
    kept = ("number", "slug", "repeat", "variables", "parameters")
    rows = [{key: record[key] for key in kept} for record in records]
    rows.append({**rows[0], "number": 9, "slug": "009-bare-metal"})
    plan = {"schema": "tailtap.plan/1", "name": "again", "runs": rows}
    (folder / "plan.json").write_text(json.dumps(plan))


FIGURES = """\
figures:
  - {kind: hdr, panels: [dut.platform, traffic.rate], line: p99 < 1 ms, repeats: worst,
     axes: {x: {range: [50 %, null]}, y: {scale: linear, range: [0 us, 9 ms]}}}
  - {kind: percentile, percentile: p99, over: {by: dut.platform, names: {bare-metal: x}}}
  - {kind: counter, counter: LOC, per: second, runs: {dut.platform: [bare-metal, wire]}}
  - {kind: interrupts}
  - {kind: thresholds, series: dut.platform}
  - {kind: models, sign: {Bare: [dut.platform=bare-metal]}}
  - {kind: grades, beside: {where: {bare-metal: {dut.platform: bare-metal}}}}
"""


def write_drawn(folder: Path) -> None:
    """Runs with tail models and samples of interrupts, and a file that asks for figures."""
    write_evaluated(folder, 1, {"dut.platform": "bare-metal"}, packets=PACKETS)
    model_runs([folder])
    [run] = folder.glob("runs/*")
    rows = ["timestamp_us;LOC_Local_timer_CPU1;NET_RX_softirq_CPU1", "0;1;2", "9;5;8", "20;6;9"]
    (run / "interrupts.csv").write_text("\r\n".join([*rows, ""]))
    (folder / "experiment.yaml").write_text(FIGURES)


def write_placed(folder: Path) -> None:
    """Runs that say of their machine whatever runs say."""
    scratch = folder / "scratch"
    there = recorded("cloud-vm", scratch / "machine")
    told = tuned(scratch / "tuned", ["stat-interval", "hung-task"])
    for number, platform in enumerate(("bare-metal", "container"), 1):
        placed_run(folder, number, there, platform=platform, dut=[1], generator=0, taps=[0],
                   tuning=told, energy=ENERGY, counters=COUNTERS)  # fmt: skip
    shutil.rmtree(scratch)


def write_line(folder: Path) -> None:
    write_line_run(folder / "runs")


def _traffic(*made: What) -> Told:
    kinds = ((one, 4, (300_000, 400_000)) for one in made)
    return traffic(5, 0.2, *kinds, rate=10_000)


def write_trace(folder: Path) -> None:
    """A run with a trace that was explained, of an improvement."""
    write_traced(folder / "runs" / "001-traced", _traffic(HOG, KWORKER))
    store(folder, improvement(helped("groups"), trial("kernel-threads")))
    explain_runs([folder])


def write_stolen(folder: Path) -> None:
    """A run whose time around pauses from outside was left out."""
    run = write_traced(folder / "runs" / "001-stolen", _traffic(HOG, STEAL))
    assert keep_undisturbed(finished_runs(run)[0]) is not None


def write_guest(folder: Path) -> None:
    """A run in a virtual machine with the traces of both machines."""
    write_guest_run(folder / "runs" / "001-guest", _traffic(HOG, KWORKER, HOST_HOG))


def write_search(folder: Path) -> None:
    settings = settings_of((0.0, 0.5), 1_000, 500_000)
    bench = Bench(sharp(40_000), able=70_000)
    bench.store(folder, settings, bench.search("mlr", settings))
    write_evaluated(folder / "latency", 1, {"traffic.rate": "40 kpkt/s"}, packets=PACKETS)


def write_pos(folder: Path) -> None:
    """Trees of pos of both layouts, one of them with a crate."""
    loops = [{"rate": 10, "size": 64}, {"rate": 20, "size": 64}]
    write_old_tree(folder / "old", loops)
    write_crate(folder / "new", loops)


def write_imported(folder: Path) -> None:
    """Published files, and own runs beside what was imported of them."""
    write_mixed(folder / "made", packets=PACKETS)
    shutil.move(folder / "made" / "tree", folder / "tree")
    shutil.move(folder / "made" / "experiment", folder / "experiment")
    shutil.rmtree(folder / "made")


def write_texts(folder: Path) -> None:
    for name in ("quickstart", "line", "tenants", "neighbours", "patterns", "which-knob"):
        shutil.copy(EXAMPLES / f"{name}.yaml", folder)


def write_pair_of_captures(folder: Path) -> None:
    evaluate(*write_pair(folder, PACKETS, 1)).write(folder / "evaluation")


def write_samples(folder: Path) -> None:
    """An evaluation, and samples of interrupts by another recorder."""
    write_sampled(folder, 2_000)


@cache
def postgresql() -> str:
    """The address of a server that ends with this process."""
    binaries = programs()
    if binaries is None:
        raise MachineError("PostgreSQL is not installed: apt install postgresql")
    running = ExitStack()
    atexit.register(running.close)
    return running.enter_context(cluster(binaries))


READERS = (
    Reader("runs", write_runs,
           ("runs/*/run.json", "runs/*/evaluation/evaluation.json", "plan.json",
            "experiment.yaml"),
           (*READS, *EXPORTS, ("evaluate", "{input}"), ("verdict", "{input}"))),
    Reader("tables", write_runs,
           ("runs/*/evaluation/*.parquet",), (*READS, *EXPORTS)),
    Reader("stamps", write_runs,
           ("runs/*/*.stamps",), (("evaluate", "{input}"),)),
    Reader("captures", write_pair_of_captures,
           ("*.stamps", "evaluation/evaluation.json"),
           (("evaluate", "{input}/in.stamps", "{input}/out.stamps"),
            ("evaluate", "{input}/in.stamps", "{input}/out.stamps", "--out", "{out}"),
            ("evaluate", "{input}/in.stamps", "{input}/out.stamps", "--out",
             "{input}/evaluation"))),
    Reader("postgresql", write_runs,
           ("runs/*/run.json", "runs/*/evaluation/evaluation.json",
            "runs/*/evaluation/*.parquet"),
           (("export", "{input}", "--to", "{beside}"),), postgresql),
    Reader("interrupts", write_samples,
           ("irq.csv", "irq.csv", "evaluation/*"),
           (("interrupts", "{input}/evaluation", "--samples", "{input}/irq.csv", "--json",
             "--out", "{out}"),
            ("interrupts", "{input}/evaluation", "--samples", "{input}/irq.csv",
             "--offset", "6500 ms"))),
    Reader("database", write_imported,
           ("experiment/results.duckdb",),
           (("report", "{input}/experiment", "--out", "{out}"),
            ("compare", "{input}/experiment"),
            ("evaluate", "{input}/experiment"),
            ("import", "{input}/tree", "--into", "{input}/experiment"))),
    Reader("machines", write_placed, ("runs/*/run.json",), READS),
    Reader("figures", write_drawn,
           ("experiment.yaml", "experiment.yaml", "runs/*/tail.json", "runs/*/interrupts.csv"),
           (("report", "{input}", "--out", "{out}"),)),
    Reader("hops", write_line,
           ("runs/*/run.json", "runs/*/evaluation/evaluation.json",
            "runs/*/evaluation/hop*.parquet"),
           (*READS, *EXPORTS)),
    Reader("trace", write_trace,
           ("runs/*/run.json", "runs/*/trace.json", "runs/*/trace.events", "runs/*/causes.json",
            "runs/*/causes-*.parquet", "runs/*/evaluation/evaluation.json", "improve.json"),
           (("explain", "{input}"),
            ("report", "{input}", "--out", "{out}"),
            ("export", "{input}", "--to", "perfetto", "--out", "{out}"),
            ("export", "{input}", "--to", "csv", "--out", "{out}"))),
    Reader("undisturbed", write_stolen,
           ("runs/*/undisturbed/*", "runs/*/trace.events", "runs/*/trace.json",
            "runs/*/ingress.stamps", "runs/*/evaluation/evaluation.json"),
           (("verdict", "{input}", "--undisturbed", "--require", "p99 < 1 ms"),
            ("report", "{input}", "--out", "{out}"),
            ("explain", "{input}"))),
    Reader("guest", write_guest,
           ("runs/*/trace-guest.json", "runs/*/trace-guest.events", "runs/*/guest-*.stamps",
            "runs/*/run.json"),
           (("explain", "{input}"),
            ("report", "{input}", "--out", "{out}"))),
    Reader("search", write_search, ("search.json",),
           (("report", "{input}", "--out", "{out}"),)),
    Reader("pos", write_pos,
           ("old/**/*.loop", "old/**/*.json", "new/scripts/**/*.loop", "new/**/*.json",
            "new/ro-crate-metadata.json"),
           (("import", "{input}", "--into", "{out}/results.duckdb"),)),
    Reader("published", write_imported, ("tree/**/latencies*",),
           (("import", "{input}/tree", "--into", "{out}/results.duckdb"),)),
    Reader("site", write_site,
           ("site/site.json", "site/SHA256SUMS", "site/ro-crate-metadata.json",
            "site/experiment.yaml", "site/runs/*/run.json", "site/runs/*/evaluation/*",
            "site/runs/*/*.stamps"),
           (("reproduce", "{input}/site", "--level", "captures"),)),
    Reader("repeated", write_pos, ("old/**/*.loop", "new/**/*.json", "new/ro-crate-metadata.json"),
           (("reproduce", "{input}/new"),)),
    Reader("results", write_imported, ("tree/**/latencies*",),
           (("reproduce", "{input}/tree"),)),
    Reader("experiment", write_texts, ("quickstart.yaml",),
           (("run", "{input}/quickstart.yaml", "--check"),)),
    *(Reader(f"experiment {name}", write_texts, (f"{name}.yaml",),
             (("run", f"{{input}}/{name}.yaml", "--check"),))
      for name in ("line", "tenants", "neighbours", "patterns", "which-knob")),
    Reader("to publish", write_planted,
           ("experiment.yaml", "testbed.yaml", "runs/*/run.json", "runs/*/forwarder.log",
            "runs/*/evaluation/*"),
           (("publish", "{input}", "--check"),)),
)  # fmt: skip
"""All of them."""

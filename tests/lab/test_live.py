"""`tailtap run --live --metrics`: numbers while it runs, and who gives them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from holding import HOLD_MS, RATE, holding, recording, wait_beside
from labtools import (
    TAILTAP,
    Machine,
    counts_of,
    own_machine,
    record,
    wait_for,
    write_experiment,
)
from live_numbers import numbers
from program import tailtap
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tailtap._core import TRACE_KINDS
from tailtap.analysis.live.counting import PRECISION, SCHEMA
from tailtap.analysis.live.numbers import Board
from tailtap.lab.platforms.vm import kernels
from tailtap.measure.observe.look import SHARED, name_of
from tailtap.records.live import RecordingRecord
from tailtap.records.record import read
from tailtap.show.live.server import LOOPBACK, Address, Server

EXPERIMENT = """
name: watched
dut: {forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 10 kpkt/s, size: 64 B, duration: 8 s, warm_up: 1 s, cpu: 0}
trace: thin
"""


def had_cpu(events: Path, cpu: int) -> set[int]:
    words = np.frombuffer(events.read_bytes(), "<u8", offset=8).reshape(-1, 4).astype(np.int64)
    is_task = (words[:, 1] >> 32 & 0xFF == TRACE_KINDS["task"]) & (words[:, 1] >> 48 == cpu)
    return set((words[is_task, 3] & 0xFFFFFFFF).tolist())


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 3,
    reason="who counts needs a CPU besides those of the generator, which polls, and of the DuT",
)
def test_a_run_is_watched_and_the_device_s_cpu_is_left_alone(tmp_path: Path) -> None:
    out, said = tmp_path / "out", tmp_path / "said"
    experiment = write_experiment(tmp_path, EXPERIMENT)
    command = [*TAILTAP, "run", str(experiment), "--out", str(out), "--live", "--json"]
    with said.open("w") as errors:
        running = subprocess.Popen(
            [*command, "--metrics", "127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=errors
        )
    seen: list[dict[str, Any]] = []
    metrics = ""
    threads: set[int] = set()
    try:
        wait_for(lambda: len(re.findall("http", said.read_text())) == 2, "addresses")
        page = re.findall(r"numbers so far: (\S+)", said.read_text())[0]
        of_metrics = re.findall(r"metrics so far: (\S+)", said.read_text())[0]

        def looked() -> bool:
            nonlocal metrics
            with urllib.request.urlopen(f"{page}numbers.json") as answer:
                content = answer.read()
            if content:
                seen.append(json.loads(content)["flows"][0])
            ask = urllib.request.Request(
                of_metrics, headers={"Accept": "application/openmetrics-text"}
            )
            with urllib.request.urlopen(ask) as answer:
                metrics = answer.read().decode()
            tasks = Path(f"/proc/{running.pid}/task").iterdir()
            threads.update(int(task.name) for task in tasks)
            return bool(seen) and seen[-1]["matched"] > 10_000

        wait_for(looked, "numbers meanwhile")
        assert running.poll() is None
    finally:
        running.wait(120)
    assert "tailtap_latency_seconds_bucket" in metrics
    assert list(text_string_to_metric_families(metrics))
    run = out / "runs" / "001-watched"
    kept = record(run)
    assert "written-meanwhile" in [warning["code"] for warning in kept["warnings"]]
    counts = counts_of(run)
    counted = [one["ingress"] for one in seen]
    assert counted == sorted(counted) and counted[-1] <= counts["ingress"]
    assert not threads & had_cpu(run / "trace.events", 1)


SCRAPING = """\
global: {{scrape_interval: 1s}}
scrape_configs:
  - {{job_name: tailtap, static_configs: [{{targets: ['{address}']}}]}}
"""


@pytest.mark.slow
def test_prometheus_reads_native_histograms(tmp_path: Path) -> None:
    """Debian's, which is unpacked and not installed."""
    program = kernels.unpacked("prometheus") / "usr/bin/prometheus"
    board, shown = Board(), numbers()
    board.hang(shown)
    with socket.create_server((LOOPBACK, 0)) as free:
        place = f"{LOOPBACK}:{free.getsockname()[1]}"
    with Server(Address(LOOPBACK, 0), board, page=False) as server:
        (tmp_path / "config.yaml").write_text(SCRAPING.format(address=server.address))
        words = [f"--config.file={tmp_path}/config.yaml", f"--storage.tsdb.path={tmp_path}/data"]
        words += [f"--web.listen-address={place}", "--enable-feature=native-histograms"]
        with (tmp_path / "log").open("w") as log:
            running = subprocess.Popen([program, *words], stdout=log, stderr=log)

        def asked(query: str) -> list[float]:
            address = f"http://{place}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            with urllib.request.urlopen(address) as answer:
                rows = json.load(answer)["data"]["result"]
            return [float(row["value"][1]) for row in rows]

        def is_scraped() -> bool:
            assert running.poll() is None, (tmp_path / "log").read_text()
            try:
                return bool(asked("histogram_count(tailtap_latency_seconds)"))
            except OSError:  # it does not listen yet
                return False

        try:
            wait_for(is_scraped, "a native histogram", 100)
            [flow] = shown.flows
            assert asked("histogram_count(tailtap_latency_seconds)") == [flow.matched]
            assert asked("tailtap_lost_packets_total") == [flow.lost]
            for one in flow.percentiles:
                if one.supported:
                    [found] = asked(f"histogram_quantile({one.p}, tailtap_latency_seconds)")
                    width = 2 ** (1 / 2**SCHEMA) * (1 + PRECISION)
                    assert 1 / width < found * 1e9 / one.value < width, one.p
        finally:
            running.kill()
            running.wait()


def incidents(out: Path) -> list[Path]:
    return sorted((out / "runs").glob("*-incident-*"))


def test_a_packet_that_was_held_makes_a_run_like_any_other(tmp_path: Path) -> None:
    out, then = tmp_path / "out", tmp_path / "then"
    command = f'echo "$TAILTAP_PACKETS $TAILTAP_INCIDENT" >> {then}'
    words = ("--incidents", "1", "--then", command)
    with own_machine() as machine, holding(machine), recording(machine, out, *words) as running:
        wait_beside(running, then.exists, "an incident")
        # The machine itself may have made that one, before the first packet was held.
        wait_for(lambda: machine.received("sink", "eth0") > 5 * RATE, "a packet that was held", 200)
        time.sleep(2)
        running.send_signal(signal.SIGINT)
        said, errors = running.communicate(timeout=200)
    assert running.returncode == 0, errors
    told = json.loads(said)
    assert told == json.loads((out / "recording.json").read_text())
    [incident] = incidents(out)
    late, place = then.read_text().split()
    assert (place, int(late) > 0) == (str(incident), True)
    kept = told["numbers"]["incidents"]
    assert (kept["kept"], kept["last"]) == (1, incident.name)
    assert kept["dropped"] == told["dropped_limit"]
    [flow] = told["numbers"]["flows"]
    assert flow["max_ns"] >= HOLD_MS * 1_000_000 and flow["matched"] > RATE
    run = record(incident)
    assert run["status"] == "done" and len(run["observed"]["points"]) == 2
    assert run["trace"]["ended_ns"] > run["trace"]["started_ns"]
    assert (incident / "causes.json").is_file() and (incident / "report/index.html").is_file()
    found = json.loads((incident / "evaluation/evaluation.json").read_text())
    above = [row for row in found["worst"] if row["latency"] >= HOLD_MS // 2 * 1_000_000]
    assert 1 <= len(above) <= int(late) + 1
    done = tailtap("explain", out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert not own_of(running, out)


@pytest.mark.slow
def test_causes_are_named_meanwhile_where_nothing_is_kept(tmp_path: Path) -> None:
    """Of a second now and then, by a program that is told the numbers."""
    out, said = tmp_path / "out", tmp_path / "said"
    words = ["observe", "device/in@arrival", "sink/eth0@arrival", "--out", str(out)]
    words += ("--budget", "100 %", "--metrics", "127.0.0.1:0")
    with own_machine() as machine, holding(machine), said.open("w") as errors:
        machine.run("ip", "link", "set", "lo", "up")
        running = subprocess.Popen(machine.command(*TAILTAP, *words), stderr=errors, text=True)
        try:
            wait_for(lambda: "metrics so far: " in said.read_text(), "the address", 200)
            [address] = re.findall(r"metrics so far: http://(\S+?)/", said.read_text())

            wait_for(lambda: sum(told(machine, address, CAUSES)) > 0, "causes", 200)
            assert told(machine, address, "tailtap_tap_lost_packets") == [0.0]
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait(200) == 0
    assert not list((out / "runs").iterdir()) and not own_of(running, out)


CAUSES = "tailtap_cause_delay_seconds"
ASK = """
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Accept": sys.argv[2]})
print(urllib.request.urlopen(asked).read().decode())
"""


def told(machine: Machine, address: str, name: str) -> list[float]:
    """The values of a metric on an address of a machine's; none before there are any."""
    words = (f"http://{address}/metrics", "application/openmetrics-text")
    done = machine.run(sys.executable, "-c", ASK, *words)
    assert done.returncode == 0, done.stderr
    metrics = text_string_to_metric_families(done.stdout.rstrip("\n") + "\n")
    found = [one for one in metrics if one.name == name]
    return [sample.value for one in found for sample in one.samples]


def own_of(running: subprocess.Popen[str], out: Path) -> list[Path]:
    name = name_of("*", running.pid)
    return [*SHARED.glob(name), *out.glob(name)]


def test_after_a_kill_incidents_are_whole_and_the_rest_is_cleared(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with own_machine() as machine, holding(machine):
        with recording(machine, out, "--trace", "none") as running:
            wait_beside(running, lambda: len(incidents(out)) > 0, "an incident")
            running.kill()
            running.wait()
        assert len(own_of(running, out)) == 2
        cleaned = machine.tailtap("clean")
        assert cleaned.returncode == 0 and not own_of(running, out), cleaned.stdout
    for incident in incidents(out):
        assert record(incident)["status"] == "done"
        assert (incident / "evaluation/evaluation.json").is_file()
    assert read(out / "recording.json", RecordingRecord).finished is None

"""`tailtap run --live --metrics`: numbers while it runs, and who gives them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labtools import TAILTAP, record, wait_for, write_experiment
from live_numbers import numbers
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tailtap._core import TRACE_KINDS
from tailtap.analysis.live.counting import PRECISION, SCHEMA
from tailtap.analysis.live.numbers import Board
from tailtap.lab.platforms.vm import kernels
from tailtap.show.live.server import LOOPBACK, Address, Server

EXPERIMENT = """
name: watched
dut: {forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 10 kpkt/s, size: 64 B, duration: 8 s, warm_up: 1 s, cpu: 0}
trace: thin
"""


def had_cpu(events: Path, cpu: int) -> set[int]:
    """The threads that had a CPU, by a trace."""
    words = np.frombuffer(events.read_bytes(), "<u8", offset=8).reshape(-1, 4).astype(np.int64)
    is_task = (words[:, 1] >> 32 & 0xFF == TRACE_KINDS["task"]) & (words[:, 1] >> 48 == cpu)
    return set((words[is_task, 3] & 0xFFFFFFFF).tolist())


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
    counts = json.loads((run / "evaluation/evaluation.json").read_text())["counts"]
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

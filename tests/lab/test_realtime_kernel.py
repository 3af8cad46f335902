"""The lab on a real-time kernel of Linux 6.10 or newer, where threads receive what is steered."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standing import standing
from traces import SOFTIRQ, TASK, Trace

from tailtap.lab.platforms import Dut, DutSpec
from tailtap.lab.platforms.vm import VmOptions, kernels
from tailtap.remote.guest import GuestHost

TAILTAP = str(Path(sys.executable).with_name("tailtap"))
PACKAGE = re.compile(r"linux-image-(6\.1[0-9]|[7-9]\.[0-9]+)\.\S+-rt-amd64(-unsigned)?")
EXPERIMENT = """\
name: threads
dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 200 pkt/s, duration: 3 s, warm_up: 200 ms, cpu: 2, slip_limit: 1 s}
trace: thin
"""
PACKETS = 600
NET_RX, SERVED = 3, 1 << 48
MODULES = ("veth", "sch_ingress", "act_mirred", "cls_matchall")

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def guest() -> Iterator[Dut]:
    """A machine with such a kernel, and three CPUs."""
    told = subprocess.run(["apt-cache", "search", "--names-only", "linux-image-.*-rt-amd64"],
                          capture_output=True, text=True, check=False).stdout  # fmt: skip
    names = sorted(line.split()[0] for line in told.splitlines())
    found = [name for name in names if PACKAGE.fullmatch(name)]
    if not found:
        pytest.skip(
            "no real-time kernel of Linux 6.10 or newer in this machine's lists of packages"
        )
    image = next((kernels.unpacked(found[-1]) / "boot").glob("vmlinuz-*"))
    options = {"memory": "1024 MiB", "kernel": str(image)}
    with standing("vm", DutSpec((0, 1), VmOptions.model_validate(options))) as (_, device):
        device.host.run(["modprobe", "-a", *MODULES])
        yield device


@pytest.mark.timeout(900)
def test_the_thread_of_the_core_s_backlog_serves(guest: Dut, tmp_path: Path) -> None:
    """It is what has the core while packets are forwarded, and no softirq receives there."""
    host = guest.host
    assert isinstance(host, GuestHost)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    host.put(tmp_path / "experiment.yaml", Path("/run/experiment.yaml"))
    command = [TAILTAP, "run", "/run/experiment.yaml", "--out", "/run/out", "--json", "--quiet"]
    [run] = json.loads(host.run(command, seconds=300).stdout)["runs"]
    assert run["evaluation"]["counts"]["matched"] == PACKETS
    for name in ("trace.json", "trace.events"):
        host.get(Path("/run/out/runs/001-threads", name), tmp_path / name)
    trace = Trace.read(tmp_path)
    served = trace.said["served"]
    [thread] = served["pids"]
    assert (served["by"], served["cpus"]) == ("task", [1])
    assert trace.said["names"]["pids"][str(thread)] == "backlog_napi/1"
    stretches = trace.of(TASK, id=thread, cpu=1)
    assert stretches.size > PACKETS // 4  # one may serve several packets
    assert (stretches["aux"] & SERVED != 0).all()
    packets = [row for row in trace.of(SOFTIRQ, id=NET_RX, cpu=1) if not row["flags"]]
    assert len(packets) < PACKETS // 4
    causes = explained(host)
    assert not [row for row in causes["causes"] if row["detail"] == "backlog_napi/1"]


def explained(host: GuestHost) -> dict[str, Any]:
    words = ["explain", "/run/out/runs/001-threads", "--late", "p95", "--json", "--quiet"]
    found: dict[str, Any] = json.loads(host.run([TAILTAP, *words], seconds=300).stdout)
    return found

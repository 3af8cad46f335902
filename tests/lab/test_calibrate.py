"""`tailtap calibrate` on hosts that ssh reaches, whose splitters lose, or copy the other fibre."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from labtools import all_came, record, was_made
from ssh_hosts import Hosts, ssh_hosts
from testbeds import as_it_was

LAB = """
hosts:
  tester: {{ssh: {tester}, python: /usr/bin/python3}}
  dut: {{ssh: {dut}, python: /usr/bin/python3}}
cables:
  - {{ends: [tester:lit0, dut:lit1], splitter: tester:seen-lit0}}
  - {{ends: [dut:lit2, tester:lit3], splitter: tester:seen-lit2}}
roles: {{dut: dut, generator: tester, timestamper: tester}}
ssh_config: ssh_config
"""
FEW, MANY = 1_000, 40_000
"""Packets a second. A backlog of the kernel holds all of the first load, with their copies: none is
lost, however late it is served.
"""
DROPPED, HELD = range(1, 3_000, 2), range(1_000)
"""Ids of packets that the splitter does not copy, and of those that it copies late."""
DELAY_MS = 3
OTHER_FIBRE = "ingress protocol all u32 match u32 0 0 action mirred egress mirror"
HELD_SECONDS = 0.1


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with ssh_hosts(folder, ["tester", "dut"]) as made:
        made.split_cable((("tester", "lit0"), ("dut", "lit1")), "tester")
        made.split_cable((("dut", "lit2"), ("tester", "lit3")), "tester")
        (folder / "lab.yaml").write_text(LAB.format(**made.addresses))
        yield made


def calibrated(hosts: Hosts, rate: int) -> dict[str, dict[str, Any]]:
    """The checks by their names, of loads of 300 ms up to a rate."""
    words = ("--length", "2 m", "--rate", f"{rate} pkt/s", "--time", "300 ms", "--json")
    with as_it_was(hosts):
        done = hosts.controller.tailtap("calibrate", str(hosts.folder / "lab.yaml"), *words)
    assert done.returncode == 1, (done.stdout, done.stderr)
    told = json.loads(done.stdout)
    assert not told["right"]
    return {check["name"]: check for check in told["checks"]}


@contextlib.contextmanager
def held(hosts: Hosts, host: str) -> Iterator[None]:
    """Within, each generator of a host is stopped again and again while it sends."""
    over = Event()

    def hold() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # in time on any busy machine
        while not over.wait(0.02):
            for thread in hosts.threads(host):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{thread}/cmdline").read_bytes()
                    if b"\0generate\0" in words and os.getpriority(os.PRIO_PROCESS, thread) < 0:
                        os.kill(thread, signal.SIGSTOP)
                        time.sleep(HELD_SECONDS)
                        os.kill(thread, signal.SIGCONT)

    thread = Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_what_is_as_it_should_be_is_ok(hosts: Hosts) -> None:
    found = calibrated(hosts, FEW)
    cables = [one for one in found.values() if one["area"] == "cables"]
    assert [one["state"] for one in cables] == ["ok", "ok"]
    for tap in ("seen-lit0", "seen-lit2"):
        loss = found[f"tester:{tap}: loss"]
        assert loss["state"] == "ok", loss
        assert loss["found"].startswith("none of ")
    median = found["tester:lit0 to tester:seen-lit0"]["found"].split(" at the median of ")[0]
    assert median.endswith(("us", "ns")), median
    assert found["tester:lit0: 64 B"]["found"].startswith(("reaches ", "sends at most "))
    assert found["tester: clocks"]["state"] == "missing"
    assert found["tester:lit0: vfio-pci"]["state"] == "untested"


WIRE = """
name: wire
dut: {platform: wire}
traffic: {rate: 5 kpkt/s, duration: 400 ms, warm_up: 100 ms, cpu: 0, slip_limit: 1 s}
"""


def test_the_way_between_both_splitters_is_a_run(hosts: Hosts, tmp_path: Path) -> None:
    """Once the two plugs of the device are joined, which a check says."""
    experiment = tmp_path / "wire.yaml"
    experiment.write_text(WIRE)
    words = ["run", str(experiment), "--testbed", str(hosts.folder / "lab.yaml"), "--out"]
    with as_it_was(hosts):
        checked = hosts.controller.tailtap(*words, str(tmp_path / "out"), "--check")
        assert "join the two plugs" in checked.stdout + checked.stderr
        for command in (
            "ip link add join0 type veth peer name join1",
            "ip link set join0 master split-lit0 up",
            "ip link set join1 master split-lit2 up",
        ):
            assert hosts.controller.run(*command.split()).returncode == 0
        done = hosts.controller.tailtap(*words, str(tmp_path / "out"))
        hosts.controller.run("ip", "link", "del", "join0")
    assert was_made(done), done.stderr
    [run] = (tmp_path / "out/runs").iterdir()
    assert all_came(run, 2000)
    [link] = record(run)["links"]
    assert link["cards"] == ["lit0", "lit3"]
    assert [link[one]["card"] for one in ("splitter", "splitter_behind")] == [
        "seen-lit0",
        "seen-lit2",
    ]


def test_faults_that_are_put_in_are_found(hosts: Hosts) -> None:
    """A splitter on the other fibre, one that leaves packets out and copies others late, and a
    generator that is held.
    """
    controller = hosts.controller
    for command in (
        "ip link add copy0 type veth peer name copy1",
        "ip link set seen-lit0-s nomaster",
        "ip link set copy0 master split-lit0 up",
        "ip link set copy1 up",
        "ip link set seen-lit2-s nomaster",
        "tc qdisc add dev lit3-s clsact",
        f"tc filter add dev lit3-s {OTHER_FIBRE} dev seen-lit2-s",
    ):
        done = controller.run(*command.split())
        assert done.returncode == 0, (command, done.stderr)
    ids = {"--drop": DROPPED, "--hold": HELD}
    faults = [word for name, ones in ids.items() for word in (name, ",".join(map(str, ones)))]
    words = ("forward", "copy1", "seen-lit0-s", *faults, "--hold-for", f"{DELAY_MS} ms")
    with held(hosts, "tester"), controller.start(*words) as splitter:
        found = calibrated(hosts, MANY)
        splitter.terminate()
    wrong = found["dut:lit2 - tester:lit3"]
    assert wrong["state"] == "missing"
    assert wrong["found"] == (
        "tester:seen-lit2 sees what tester:lit3 sends, and dut:lit2 sends what is measured: it is "
        "on the other fibre"
    )
    loss = found["tester:seen-lit0: loss"]
    assert loss["state"] == "poor"
    lost, sent = re.match(r"lost ([\d,]+) of ([\d,]+) packets", loss["found"]).groups()  # type: ignore[union-attr]
    assert 0.1 < int(lost.replace(",", "")) / int(sent.replace(",", "")) < 0.9, loss
    assert " before its card" in loss["found"]
    length = found["tester:lit0 to tester:seen-lit0"]
    assert length["state"] == "poor"
    # Later where others have the core of whoever copies.
    assert DELAY_MS <= float(length["found"].split(" ms at the median")[0]) < 3 * DELAY_MS
    generator = found["tester:lit0: 64 B"]
    assert generator["state"] == "poor"
    held_for = re.search(r"1 % leave later than ([\d.]+) ms", generator["found"])
    assert held_for is not None, generator
    assert float(held_for[1]) > 0.5 * HELD_SECONDS * 1000

"""`tailtap observe` on devices that somebody else built."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built_devices import BACK, RATE, TO, Built, bridge, container, line, nat, program, switch
from handovers import SENT, SKB, TUN, Port, Recording, not_near, recording
from injectors import hog
from labtools import TAILTAP, Machine, frames_of, own_machine, processes, record, wait_for
from marks import read_marks
from program import tailtap
from read_pages import run, steps
from standing import standing as standing_dut

from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.vm import VmOptions
from tailtap.lab.topology.graphs import TAPS
from tailtap.measure.observe.look import SHARED, name_of

DEVICES = {"bridge": bridge, "nat": nat, "line": line}
WITH_FOLDER = {"container": (container, "podman"), "ovs": (switch, "ovs-vswitchd")}
"""These start programs: how, and which one has to be there."""
ANY_COST = ("--budget", "100 %")
"""A machine that does other things as well has a trace that costs more."""
PATIENCE_SECONDS = 280
"""How long an observation of two seconds may take on a machine that is busy."""


@contextmanager
def standing(device: str, folder: Path) -> Iterator[Built]:
    with own_machine() as machine:
        if device in WITH_FOLDER:
            make, program = WITH_FOLDER[device]
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
            with make(machine, folder) as built:
                yield built
        else:
            yield DEVICES[device](machine)


def observed(machine: Machine, out: Path, *words: str) -> dict[str, Any]:
    words = ("observe", *words, "--out", str(out), "--json", "--quiet", *ANY_COST)
    done = machine.tailtap(*words, seconds=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


@pytest.mark.parametrize(
    "device",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("bridge", "line", "ovs", "nat")),
        "container",
    ],
)
def test_what_others_built_is_observed_and_explained(
    device: str, recorder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with standing(device, tmp_path) as built, built.sending():
        ports = [Port(SKB, *built.came), Port(SENT, *built.left)]
        with recording(recorder, built.machine, ports) as recorded:
            found = observed(built.machine, out, *built.words, "--for", "2 s")
    [run] = found["runs"]
    evaluation = run["evaluation"]
    counts = evaluation["counts"]
    came, left = (len(recorded[0].packets(place)) for place in (0, 1))
    # A switch that is a process loses packets on a busy machine, and the recorder sees it.
    lost = max(0, came - left) if device == "ovs" else 0
    assert counts["matched"] > RATE and counts["noncausal"] == 0
    assert counts["lost"] <= lost
    folder = out / "runs" / "001-observed"
    kept = record(folder)["observed"]
    assert [point["at"] for point in kept["points"]] == ["arrival", "egress"]
    assert all(point["kind"].startswith("veth") for point in kept["points"])
    served = "task" if device == "ovs" else "softirq"
    assert [server["by"] for server in kept["servers"]] == [served]
    assert kept["servers"][0]["share"] > 0.9
    assert 0 < kept["cost"]["taps"] < 0.5 and 0 < kept["cost"]["trace"] < 0.5
    near_what_was_recorded(folder, recorded)
    explained(out)


def explained(out: Path) -> None:
    done = tailtap("explain", out, "--late", "p95", "--json")
    assert done.returncode == 0, done.stderr
    causes = json.loads(done.stdout)
    assert causes["late"]["packets"] > 0 and causes["trace"]["events"] > 0


def times(path: Path) -> Any:
    if path.suffix == ".marks":
        return read_marks(path).records["time"].astype(np.int64)
    return np.array([time_ns for time_ns, *_ in frames_of(path)])


def near_what_was_recorded(folder: Path, recorded: Sequence[Recording]) -> None:
    for place, side in enumerate(("ingress", "egress")):
        assert not not_near(times(next(folder.glob(f"{side}.*"))), recorded[0].packets(place))


PROXY = """
daemon off; worker_processes 1; pid {folder}/{name}.pid; error_log {folder}/{name}.log;
events {{}}
http {{ access_log off; server {{ listen {listen}; location / {{ {does}; }} }} }}
"""
CLIENT = """
import http.client, time
while True:
    connection = http.client.HTTPConnection("10.9.1.1", 8080)
    try:
        for _ in range(50):
            connection.request("GET", "/")
            connection.getresponse().read()
            time.sleep(0.001)
    except ConnectionError:  # the server does not listen yet
        time.sleep(0.1)
"""


def test_requests_to_a_proxy_are_transactions(recorder: Path, tmp_path: Path) -> None:
    """One interface: requests come in by it, and the answers leave through it."""
    servers = {
        "sink": PROXY.format(
            folder=tmp_path, name="sink", listen=f"{TO}:80", does="return 200 hello"
        ),
        "device": PROXY.format(
            folder=tmp_path, name="device", listen="10.9.1.1:8080", does=f"proxy_pass http://{TO}"
        ),
    }
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    with own_machine() as machine, ExitStack() as stack:
        built = nat(machine)
        for space, text in servers.items():
            (tmp_path / f"{space}.conf").write_text(text)
            nginx = ("nginx", "-c", str(tmp_path / f"{space}.conf"))
            server = stack.enter_context(machine.beside(space, *nginx))
            stack.callback(server.wait)
            stack.callback(server.terminate)
        stack.enter_context(machine.beside("sender", sys.executable, "-c", CLIENT))
        ports = [Port(SKB, *built.came), Port(SENT, *built.came)]
        with recording(recorder, machine, ports) as recorded:
            found = observed(machine, tmp_path / "out", built.words[0], "--for", "2 s")
    [run] = found["runs"]
    assert run["evaluation"]["counts"]["matched"] > 100
    assert run["parameters"]["evaluation"]["match"] == "transactions"
    folder = tmp_path / "out" / "runs" / "001-observed"
    kinds = json.loads((folder / "transactions/transactions.json").read_text())["kinds"]
    assert "http" in [one["kind"] for one in kinds]
    tasks = [one for one in record(folder)["observed"]["servers"] if one["by"] == "task"]
    assert any("nginx" in name for one in tasks for name in one["threads"].values())
    left = sorted(path.name for path in folder.glob("*gress.*"))
    assert left == ["egress.marks", "ingress.marks"]
    marks = read_marks(folder / "egress.marks").records
    assert len(marks) == run["evaluation"]["counts"]["matched"] and marks["cpu"].any()
    near_what_was_recorded(folder, recorded)
    explained(tmp_path / "out")


PAGES = ("docs/howto/observe.md", "docs/tutorial/platform-engineer.md")
HERE = f"""\
sudo() {{ "$@"; }}
PATH={Path(sys.executable).parent}:$PATH
"""
SHORTER = {"'60 s'": "'1 s'", "'20 s'": "'1 s'"}
DISTURBED = 1
"""The CPU of the device, which a task takes from it."""
# No other task of a busy machine has a turn near as long: of the few packets that are late in a
# second, some are late by this one.
TAKEN_NS = 40_000_000


@pytest.mark.apart
@pytest.mark.timeout(600)
def test_the_pages_commands_work_as_they_stand_and_name_what_disturbs(
    machine: Machine, injector: Path, tmp_path: Path
) -> None:
    """In a second in place of a minute; what it compares with was made before."""
    pages = "\n".join((Path(__file__).parents[2] / page).read_text() for page in PAGES)
    with (
        program(machine, DISTURBED) as built,
        built.sending(),
        hog(injector, cpu=DISTURBED, busy_ns=TAKEN_NS, period_ns=5 * TAKEN_NS),
    ):
        for old, new in {"eth0": built.came[1], "eth1": built.left[1], **SHORTER}.items():
            pages = pages.replace(old, new)
        first, *others = steps(pages)
        every = [first, replace(first, command="cp -r today yesterday"), *others]
        shell = machine.command("ip", "netns", "exec", built.came[0], "bash")
        more = {"observe": "--budget '100 %'", "improve": "--within '1 s'"}
        results = run(every, shell, tmp_path, HERE, more, 500)
    assert len(every) > 8
    for step, (status, output) in zip(every, results, strict=True):
        assert status in step.statuses, (step.command, output)
        assert "Traceback" not in output, (step.command, output)
        if "tailtap explain" in step.command:
            assert re.search(r"^task \(injector, FIFO ", output, re.M), output


MIRRED = """
tc qdisc replace dev {0} clsact
tc filter add dev {0} ingress protocol all matchall action mirred egress redirect dev {1}
"""


@pytest.mark.slow
def test_a_guest_behind_its_tap_devices(recorder: Path, tmp_path: Path) -> None:
    """Packets leave into it, and come back: it is the device, and its virtual CPUs serve."""
    machine = Machine(os.getpid())
    spec = DutSpec((1,), VmOptions())
    with standing_dut("vm", spec) as (lab, device):
        device.host.run(["sh", "-ec", MIRRED.format(device.ingress, device.egress)])
        space = lab.name_of(TAPS)
        came, left = (space, "tt-a1"), (space, "tt-b0")
        command = ["generate", "tt-a1", "--rate", "1997 pkt/s", "--duration", "120 s"]
        command += ["--no-bypass", "--cpu", "0", "--quiet"]
        with (
            machine.beside(space, *TAILTAP, *command),
            recording(recorder, machine, [Port(SENT, *came), Port(TUN, *left)]) as recorded,
        ):
            words = [f"{space}/{port}" for space, port in (came, left)]
            found = observed(machine, tmp_path / "out", *words, "--for", "2 s")
    [run] = found["runs"]
    assert run["evaluation"]["counts"]["matched"] > 1000
    folder = tmp_path / "out" / "runs" / "001-observed"
    kept = record(folder)
    assert [point["at"] for point in kept["observed"]["points"]] == ["egress", "arrival"]
    assert all(point["kind"].startswith("tap device") for point in kept["observed"]["points"])
    [server] = kept["observed"]["servers"]
    assert server["by"] == "vcpu" and all("CPU" in name for name in server["threads"].values())
    assert kept["traits"] == {"has_dut": True, "own_kernel": True, "virtualization": "machine"}
    near_what_was_recorded(folder, recorded)


def test_both_ways_are_two_runs(machine: Machine, tmp_path: Path) -> None:
    """The interfaces are in the namespace in which the command is typed."""
    built = bridge(machine)
    words = [
        "observe",
        built.came[1],
        built.left[1],
        "--for",
        "1 s",
        "--both",
        "--json",
        *ANY_COST,
    ]
    inside = ["ip", "netns", "exec", built.came[0], *TAILTAP]
    with built.sending(), built.answering():
        words += ["--out", str(tmp_path / "out")]
        done = machine.run(*inside, *words, seconds=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["slug"] for run in found["runs"]] == ["001-observed", "002-observed-back"]
    there, back = (run["evaluation"]["counts"]["matched"] for run in found["runs"])
    assert there > RATE / 2 and BACK / 2 < back < there
    for folder in (tmp_path / "out", tmp_path / "out/runs/002-observed-back"):
        told = machine.tailtap("explain", str(folder), "--late", "p99", "--json")
        assert told.returncode == 0, told.stderr


SUPPORT = Path(__file__).parents[1] / "support"
SEND = """
import socket, time
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
number = 0
while True:
    sending.sendto(number.to_bytes(4, "little") + bytes(20), ("10.9.2.2", 53))
    number += 1
    time.sleep(0.0005)
"""


@pytest.mark.slow
def test_packets_without_ethernet_are_observed(tmp_path: Path) -> None:
    """They begin with IP: through tun devices they leave into a program, and come back."""
    with own_machine() as machine, ExitStack() as stack:
        machine.run("ip", "netns", "add", "device")
        program = [sys.executable, str(SUPPORT / "tun_device.py"), "tun0", "tun1"]
        inside = machine.command("ip", "netns", "exec", "device", *program)
        device = subprocess.Popen(inside, stdout=subprocess.PIPE, text=True)
        stack.callback(device.communicate)
        stack.callback(device.kill)
        assert device.stdout is not None and device.stdout.readline() == "ready\n"
        for line in ("addr add 10.9.1.1/24 dev tun0", "route add 10.9.2.0/24 dev tun0"):
            assert machine.run("ip", "-n", "device", *line.split()).returncode == 0
        stack.enter_context(machine.beside("device", sys.executable, "-c", SEND))
        words = ("device/tun0", "device/tun1", "--for", "1 s", "--filter", "udp port 53")
        found = observed(machine, tmp_path / "out", *words)
    [run] = found["runs"]
    counts = run["evaluation"]["counts"]
    assert counts["matched"] > 200 and counts["lost"] == counts["noncausal"] == 0
    kept = record(tmp_path / "out/runs/001-observed")["observed"]
    assert [point["at"] for point in kept["points"]] == ["egress", "arrival"]
    assert {point["kind"] for point in kept["points"]} == {"tun device, packets of IP"}


def state(machine: Machine) -> str:
    """What of the machine an observer might leave changed, once it has settled."""
    shown = ""
    for _ in range(20):
        before, shown = (
            shown,
            "".join(
                machine.run("ip", "netns", "exec", name, "sh", "-c", WHAT).stdout
                for name in machine.namespaces()
            ),
        )
        if shown == before:
            break
        time.sleep(0.5)
    return shown


WHAT = (
    "ip address; tc qdisc show; tc filter show dev in ingress; tc filter show dev out egress; "
    "sysctl net.core net.ipv4 net.bridge kernel.bpf_stats_enabled 2>/dev/null"
)


@pytest.mark.parametrize("moment", [pytest.param("look", marks=pytest.mark.slow), "observe"])
def test_a_killed_observer_leaves_no_trace(machine: Machine, moment: str, tmp_path: Path) -> None:
    built = bridge(machine)
    with built.sending():
        links = ("ip", "-n", built.came[0], "link")
        wait_for(lambda: "state DOWN" not in machine.run(*links).stdout, "the bridge's carrier")
        before = state(machine)
        words = ["observe", *built.words, "--out", str(tmp_path / "out")]
        running = machine.start(*words)
        events = tmp_path / "out" / "runs" / "001-observed" / "trace.events"
        pattern = name_of("*", running.pid)

        def is_there() -> bool:
            return any(SHARED.glob(pattern)) if moment == "look" else events.exists()

        wait_for(is_there, moment)
        time.sleep(0.5)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        names = pattern.removeprefix("tt-*"), str(tmp_path / "out")
        wait_for(lambda: not processes(*names), "its children are gone")
        assert state(machine) == before
        words = [*built.words, "--packets", "10000", "--trace", "none"]
        found = observed(machine, tmp_path / "again", *words)
        assert not list(SHARED.glob(pattern))
        assert state(machine) == before
    assert found["runs"][0]["evaluation"]["counts"]["matched"] > 5_000

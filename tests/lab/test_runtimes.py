"""DuTs in containers of crun, runc and Podman: as LXC's, and nothing of them stays.

`test_containers` has LXC's; `test_lab` kills each at every step of its start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from labtools import (
    check_files,
    own_machine,
    record,
    statuses,
    wait_for,
    was_made,
    write_experiment,
)
from standing import standing

from tailtap.host.containers import cgroups, oci
from tailtap.host.containers.container import Contained, Limit, Spec
from tailtap.host.containers.oci import Bundle, Runc
from tailtap.host.containers.podman import Pod
from tailtap.lab.platforms import Dut, DutSpec
from tailtap.lab.platforms.contained import ContainedOptions
from tailtap.lab.topology.graphs import DUT_EGRESS, DUT_INGRESS
from tailtap.remote import CommandFailed

MEMORY = 128 * 2**20
RUNTIMES: dict[str, type[Contained]] = {"crun": Bundle, "runc": Runc, "podman": Pod}
EXPERIMENT = """\
name: runtimes
dut: {forwarder: fault, cpus: [1], memory: 64 MiB}
traffic: {rate: 1 kpkt/s, duration: 200 ms, warm_up: 0 s, cpu: 0}
vary: {dut.platform: [crun, runc, podman]}
"""

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="generator and DuT need a CPU each"
)


@pytest.fixture(
    scope="module",
    params=["crun", pytest.param("runc", marks=pytest.mark.slow), "podman"],
)
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[type[Contained], Dut]]:
    """A container of each kind, for tests that only look at it."""
    options = ContainedOptions.model_validate({"memory": f"{MEMORY} B"})
    with standing(request.param, DutSpec((1,), options)) as (_, device):
        yield RUNTIMES[request.param], device


def test_its_limits_are_set_and_read_back(shared: tuple[type[Contained], Dut]) -> None:
    engine, device = shared
    limits = device.facts["cgroup"]
    group = Path(limits["cpuset"]["path"])
    assert group.name == engine(device.facts["name"]).group
    assert (group / "cpuset.cpus").read_text() == "1\n"
    if limits["cpuset"]["version"] == 1:
        assert (group / "cpuset.sched_load_balance").read_text() == "0\n"
    memory = limits["memory"]
    file = "memory.limit_in_bytes" if memory["version"] == 1 else "memory.max"
    assert (Path(memory["path"]) / file).read_text() == f"{MEMORY}\n"
    assert memory[file] == MEMORY
    assert device.facts["init_cpus"] == "1"
    greedy = f"exit(len(bytearray({2 * MEMORY})) == 0)"
    assert device.host.run(["python3", "-c", greedy], check=False).status > 128
    assert device.host.run(["python3", "-c", "bytearray(2**20)"]).status == 0


def test_it_is_a_machine_of_its_own_with_two_ports(
    shared: tuple[type[Contained], Dut], tmp_path: Path
) -> None:
    engine, device = shared
    host = device.host
    assert host.run(["hostname"]).stdout.strip() == device.facts["name"]
    links = json.loads(host.run(["ip", "-j", "link"]).stdout)
    assert {link["ifname"] for link in links} == {"lo", DUT_INGRESS, DUT_EGRESS}
    host.run(["sh", "-c", "echo mine > /etc/tailtap-was-here && rm /etc/profile"])
    assert not Path("/etc/tailtap-was-here").exists()
    assert Path("/etc/profile").exists()
    assert device.facts[engine.program][0].isdigit()
    done = host.run(["sh", "-c", "cat; echo no >&2; exit 7"], stdin="in", check=False)
    assert (done.stdout, done.stderr, done.status) == ("in", "no\n", 7)
    with pytest.raises(CommandFailed):
        host.run(["tt-no-such-program"])
    check_files(host, tmp_path)
    # Forwarders load eBPF and open raw sockets.
    within = host.run(["sh", "-c", "grep CapEff /proc/self/status"]).stdout.split()[1]
    outside = Path("/proc/self/status").read_text().partition("CapBnd:\t")[2].split()[0]
    assert int(within, 16) == int(outside, 16)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_is_in_its_groups_and_ends_when_told(
    shared: tuple[type[Contained], Dut], number: signal.Signals
) -> None:
    engine, device = shared
    process = device.host.start(["sh", "-c", "echo ready; exec sleep infinity"])
    assert process.read_line(20) == "ready"
    outside = process.pid
    assert os.sched_getaffinity(outside) == {1}
    lines = Path(f"/proc/{outside}/cgroup").read_text().splitlines()
    group = engine(device.facts["name"]).group
    for row in cgroups.hierarchies():
        if row.group(group).is_dir() and row.controllers:
            assert any(line.endswith(f"/{group}") for line in lines), row
    os.kill(outside, number)
    assert process.read_line(20) is None
    assert process.failure() == f"sh was ended by {number.name}"
    process.close()


def test_started_processes_end_with_tailtap(shared: tuple[type[Contained], Dut]) -> None:
    engine, device = shared
    name = device.facts["name"]
    code = (
        "import time\n"
        "from tailtap.remote.local import ContainerHost\n"
        f"host = ContainerHost({name!r}, {engine(name).inside()!r}, [1])\n"
        "process = host.start(['sh', '-c', 'echo ready; exec sleep infinity'])\n"
        "process.read_line(20)\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    tailtap = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert tailtap.stdout is not None
    inner = int(tailtap.stdout.readline())
    assert "sleep" in Path(f"/proc/{inner}/cmdline").read_text()
    tailtap.kill()
    tailtap.communicate()
    wait_for(lambda: not Path(f"/proc/{inner}/exe").exists(), "the end of the process")


@pytest.mark.apart
def test_packets_come_through(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with own_machine() as machine:
        done = machine.tailtap(
            "run", str(write_experiment(tmp_path, EXPERIMENT)), "--out", str(out)
        )
        assert was_made(done), done.stderr
        assert machine.namespaces() == []
        for kind in RUNTIMES.values():
            assert machine.run("ls", str(kind("none").folder.parent)).stdout == ""
    assert statuses(out) == ["done"] * 3
    for run, platform in zip(sorted((out / "runs").iterdir()), RUNTIMES, strict=True):
        counts = json.loads((run / "evaluation/evaluation.json").read_text())["counts"]
        assert (counts["matched"], counts["lost"]) == (200, 0)
        told = record(run)
        assert told["parameters"]["dut"]["platform"] == platform
        assert told["platform"]["cgroup"]["memory"]
        assert told["traits"]["virtualization"] == "container"


@pytest.mark.parametrize("platform", ["crun", "podman"])
def test_kill_nine_then_clean(tmp_path: Path, platform: str) -> None:
    out = tmp_path / "out"
    kind = RUNTIMES[platform]
    with own_machine() as machine:
        path = write_experiment(tmp_path, EXPERIMENT)
        options = ("--out", str(out), "--set", f"vary={{dut.platform: [{platform}]}}")
        with machine.held(tmp_path, "run", str(path), *options) as running:
            [name] = [name for name in machine.namespaces() if name.endswith("-dut")]
            number = machine.run("cat", str(kind(name).folder / "id")).stdout.strip()
            group = f"libpod-{number}" if number else name
            assert cgroups.groups(group)
            kept = json.loads(machine.tailtap("clean", "--json").stdout)
            assert (kind.kind, name) in {(row["kind"], row["name"]) for row in kept["kept"]}
            running.process.kill()
            running.process.wait()
        assert cgroups.groups(group)
        cleaned = machine.tailtap("clean")
        assert cleaned.returncode == 0, cleaned.stderr
        assert f"removing {kind.kind} {name}" in cleaned.stdout
        assert machine.namespaces() == []
        assert cgroups.groups(group) == []
        assert name not in machine.run("cat", "/proc/mounts").stdout
        assert machine.tailtap("clean").stdout == "nothing to remove\n"


def test_limits_in_the_words_of_the_specification() -> None:
    limits = [
        Limit(2, "cpuset.cpus", "1-2"),
        Limit(2, "memory.max", "67108864"),
    ]
    found = oci.configuration(Spec("tt-0123ab-dut", Path("/"), ["/init"], limits))
    resources = found["linux"]["resources"]
    assert resources["cpu"] == {"cpus": "1-2"}
    assert resources["memory"] == {"limit": 67108864}
    assert found["linux"]["cgroupsPath"] == "/tt-0123ab-dut"
    assert "rlimits" not in found["process"]

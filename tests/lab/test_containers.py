"""DuTs in containers of LXC, crun, runc and Podman: what they are, what limits them, what stays.

`test_matrix` sends packets through them, and `test_links` kills each at every step of its start.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labtools import (
    PATIENCE_SECONDS,
    Machine,
    all_came,
    check_files,
    measured,
    ran,
    statuses,
    wait_for,
    write_experiment,
)
from standing import standing

from tailtap.base.errors import MachineError
from tailtap.host.containers import cgroups, lxc
from tailtap.host.containers.container import Contained, Spec
from tailtap.host.containers.lxc import Container
from tailtap.host.containers.oci import Bundle, Runc
from tailtap.host.containers.podman import Pod
from tailtap.lab.platforms import PLATFORMS, Dut, DutSpec, alike, build, graph_of
from tailtap.lab.platforms.boot import host_boot, parameters
from tailtap.lab.platforms.contained import LxcOptions
from tailtap.lab.platforms.roots import ROOTS
from tailtap.lab.topology.graphs import DUT_EGRESS, DUT_INGRESS, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.remote import CommandFailed

MEMORY = 128 * 2**20
ENGINES: dict[str, type[Contained]] = {
    "container": Container,
    "crun": Bundle,
    "runc": Runc,
    "podman": Pod,
}
EXPERIMENT = """\
name: container
dut: {platform: container, cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 500 ms, warm_up: 100 ms, cpu: 0}
"""
SHORT = ("--set", "traffic.duration=100 ms")
Shared = tuple[type[Contained], Dut]


@pytest.fixture(
    scope="module",
    params=["container", "crun", pytest.param("runc", marks=pytest.mark.slow), "podman"],
)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    """A container of each kind, for tests that only look at it."""
    options = PLATFORMS[request.param].Options.model_validate({"memory": f"{MEMORY} B"})
    with standing(request.param, DutSpec((1,), options)) as (_, device):
        yield ENGINES[request.param], device


def test_its_limits_are_set_and_read_back(shared: Shared) -> None:
    engine, device = shared
    limits = device.facts["cgroup"]
    version = cgroups.require("cpuset", None).version
    assert (limits["cpuset"]["version"], limits["cpuset"]["cpuset.cpus"]) == (version, "1")
    group = Path(limits["cpuset"]["path"])
    assert group.name == engine(device.facts["name"]).group
    assert (group / "cpuset.cpus").read_text() == "1\n"
    if version == 1:
        assert (group / "cpuset.sched_load_balance").read_text() == "0\n"
        assert limits["cpuset"]["cpuset.sched_load_balance"] == "0"
    else:
        assert limits["cpuset"]["cpuset.cpus.partition"] in {"isolated", "root"}
    memory = limits["memory"]
    file = "memory.limit_in_bytes" if memory["version"] == 1 else "memory.max"
    assert memory[file] == MEMORY
    assert (Path(memory["path"]) / file).read_text() == f"{MEMORY}\n"
    assert device.facts["init_cpus"] == "1"
    # More than its memory is not to be had inside.
    greedy = f"exit(len(bytearray({2 * MEMORY})) == 0)"
    assert device.host.run(["python3", "-c", greedy], check=False).status > 128
    assert device.host.run(["python3", "-c", "bytearray(2**20)"]).status == 0


def test_it_is_a_machine_of_its_own_with_two_ports(shared: Shared, tmp_path: Path) -> None:
    engine, device = shared
    host = device.host
    assert host.run(["hostname"]).stdout.strip() == device.facts["name"]
    links = json.loads(host.run(["ip", "-j", "link"]).stdout)
    assert {link["ifname"] for link in links} == {"lo", DUT_INGRESS, DUT_EGRESS}
    assert {link["operstate"] for link in links if link["ifname"] != "lo"} == {"UP"}
    # What it writes does not reach the machine.
    host.run(["sh", "-c", "echo mine > /etc/tailtap-was-here && rm /etc/profile"])
    assert not Path("/etc/tailtap-was-here").exists()
    assert Path("/etc/profile").exists()
    version = device.facts["lxc" if engine is Container else engine.program]
    assert version[0].isdigit()
    done = host.run(["sh", "-c", "cat; echo no >&2; exit 7"], stdin="in", check=False)
    assert (done.stdout, done.stderr, done.status) == ("in", "no\n", 7)
    with pytest.raises(CommandFailed):
        host.run(["false"])
    with pytest.raises(CommandFailed, match="tt-no-such-program"):
        host.run(["tt-no-such-program"])
    check_files(host, tmp_path)
    # Forwarders load eBPF and open raw sockets.
    within = host.run(["sh", "-c", "grep CapEff /proc/self/status"]).stdout.split()[1]
    outside = Path("/proc/self/status").read_text().partition("CapBnd:\t")[2].split()[0]
    assert int(within, 16) == int(outside, 16)


def test_started_processes_are_in_its_groups_and_end_when_told(shared: Shared) -> None:
    engine, device = shared
    until = "trap 'exit 5' INT; echo ready; sleep infinity & wait"
    process = device.host.start(["sh", "-c", until])
    assert process.read_line(20) == "ready"
    assert os.sched_getaffinity(process.pid) == {1}
    group = engine(device.facts["name"]).group
    lines = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
    for row in cgroups.hierarchies():
        if (row.path / group).is_dir() and row.controllers:
            assert any(f"/{group}" in line for line in lines), row
    process.interrupt()
    wait_for(lambda: process.ended, "the end of the process")
    assert process.status == 5
    process.close()


def test_started_processes_end_with_tailtap(shared: Shared) -> None:
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


def test_the_other_version_of_control_groups_says_how_to_boot_for_it(tmp_path: Path) -> None:
    found = cgroups.require("cpuset", None).version
    other = 3 - found
    made = ran(tmp_path, EXPERIMENT + f"vary: {{dut.cgroup: [{found}, {other}]}}\n", *SHORT)
    assert statuses(made.out) == ["done", "failed"]
    assert made.done.returncode == 3
    assert (
        f"tailtap: 1 of 2 runs failed, 002-{other} first: dut.cgroup: control groups of version "
        f"{other} cannot limit the DuT: the controller cpuset belongs to version {found} here: "
        "boot with systemd.unified_cgroup_hierarchy="
    ) in made.done.stderr.splitlines()[-1]
    assert made.records[0]["platform"]["cgroup"]["cpuset"]["version"] == found


@pytest.mark.parametrize(
    "platform", ["container", pytest.param("bare-metal", marks=pytest.mark.slow)]
)
def test_only_runs_that_ask_for_what_the_machine_was_booted_with_are_made(
    tmp_path: Path, platform: str
) -> None:
    line = host_boot().command_line
    booted = json.dumps(str(parameters(line)[0]))
    text = EXPERIMENT + f"vary: {{dut.boot: ['', {booted}]}}\n"
    made = ran(tmp_path, text, "--set", f"dut.platform={platform}", *SHORT)
    assert made.done.returncode == 3
    assert statuses(made.out) == ["failed", "done"]
    without, tuned = made.records
    assert "which other runs of the experiment ask for and this one does not" in without["error"]
    assert tuned["platform"]["boot"]["command_line"] == line
    assert tuned["platform"]["kernel"]["kind"] in {"vanilla", "rt"}


def test_a_name_that_is_in_use_is_left_alone() -> None:
    platform, spec = PLATFORMS["container"], DutSpec((1,), LxcOptions())
    with Lab(graph_of(alike(platform, spec))) as lab:
        taken = lxc.Container(lab.name_of("dut")).folder
        taken.mkdir(parents=True)
        (taken / "precious").touch()
        try:
            with pytest.raises(MachineError) as caught:
                build(lab, alike(platform, spec))
            assert str(caught.value) == (
                f"the container name {taken.name} is in use: `sudo tailtap clean` removes what is "
                "left of it"
            )
            assert (taken / "precious").exists()
        finally:
            lxc.Container(taken.name).remove()
        assert not taken.exists()


def test_a_container_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("mount", "umount", "rm", "ip"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    with Lab(smallest()) as lab:
        spec = Spec(lab.name_of("dut"), Path("/no/such/root"), ["/bin/true"])
        with pytest.raises(MachineError, match="LXC cannot start a container") as caught:
            lab.make(lxc.Container(spec.name, spec))
        assert "\n" not in str(caught.value)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MachineError, match="lxc-start is missing: apt-get install "):
            lab.make(lxc.Container(spec.name, spec))
        assert not lxc.Container(spec.name).folder.exists()


@pytest.mark.apart  # senders of other tests, which are urgent, take the CPU of its forwarder
def test_a_debian_of_its_own_keeps_its_services_on_one_cpu(tmp_path: Path) -> None:
    ROOTS["debian"].lower()  # the first time it downloads packages, which own_machine cannot
    options = ("--set", "dut.forwarder=fault", "--set", "dut.root=debian")
    made = measured(tmp_path, EXPERIMENT, *options)
    assert all_came(made.run, 1000)
    platform = made.record["platform"]
    assert (platform["root"], platform["init_cpus"]) == ("debian", "0")
    assert platform["cgroup"]["cpuset"]["cpuset.cpus"] == "0-1"


def test_an_interrupted_run_leaves_no_container(machine: Machine, tmp_path: Path) -> None:
    words = ("run", str(write_experiment(tmp_path, EXPERIMENT)), "--out", str(tmp_path / "out"))
    running = machine.start(*words, "--set", "traffic.duration=10 min")
    wait_for(lambda: machine.run("ls", "/run/tailtap/lxc").stdout != "", "the container")
    time.sleep(0.05)  # wherever in its start that is
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 4, stderr
    assert machine.namespaces() == []
    assert machine.run("ls", "/run/tailtap/lxc").stdout == ""

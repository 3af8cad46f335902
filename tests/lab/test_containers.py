"""DuTs in containers: what they are, what limits them, and that nothing of them stays.

`test_matrix` sends packets through them.
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
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from labtools import (
    PATIENCE_SECONDS,
    check_files,
    own_machine,
    record,
    statuses,
    wait_for,
    was_made,
    write_experiment,
)
from standing import standing

from tailtap.analysis.evaluation import Evaluation
from tailtap.base.errors import MachineError
from tailtap.host.containers import cgroups, lxc
from tailtap.host.containers.container import Spec
from tailtap.lab.platforms import PLATFORMS, Dut, DutSpec, alike, build, graph_of
from tailtap.lab.platforms.boot import host_boot, parameters
from tailtap.lab.platforms.contained import LxcOptions
from tailtap.lab.platforms.roots import ROOTS
from tailtap.lab.topology.graphs import DUT_EGRESS, DUT_INGRESS, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.remote import CommandFailed

MEMORY = 128 * 2**20
EXPERIMENT = """\
name: container
dut: {platform: container, cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 1 s, warm_up: 100 ms, cpu: 0}
"""
PACKETS = 2000

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="generator and DuT need a CPU each"
)


@contextmanager
def container(memory: str | None = None) -> Iterator[tuple[Lab, Dut]]:
    """A lab with a container in it, without a forwarder."""
    options = LxcOptions.model_validate({"memory": memory})
    with standing("container", DutSpec((1,), options)) as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Dut]:
    """A container for tests that only look at it."""
    with container() as (_, device):
        yield device


def test_its_limits_are_set_and_read_back() -> None:
    with container(f"{MEMORY} B") as (lab, device):
        name = lab.name_of("dut")
        version = cgroups.require("cpuset", None).version
        limits = device.facts["cgroup"]
        assert limits["cpuset"]["version"] == version
        assert limits["cpuset"]["cpuset.cpus"] == "1"
        group = Path(limits["cpuset"]["path"])
        assert group.name == name
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


def test_it_is_a_machine_of_its_own_with_two_ports(shared: Dut) -> None:
    host = shared.host
    assert host.run(["hostname"]).stdout.strip() == shared.facts["name"]
    links = json.loads(host.run(["ip", "-j", "link"]).stdout)
    assert {link["ifname"] for link in links} == {"lo", DUT_INGRESS, DUT_EGRESS}
    assert {link["operstate"] for link in links if link["ifname"] != "lo"} == {"UP"}
    assert host.run(["cat", "/proc/1/comm"]).stdout.strip() == "init.lxc"
    # What it writes does not reach the machine.
    host.run(["sh", "-c", "echo mine > /etc/tailtap-was-here && rm /etc/hostname"])
    assert not Path("/etc/tailtap-was-here").exists()
    assert Path("/etc/hostname").exists()
    assert shared.facts["lxc"].startswith(("4.", "5.", "6."))


def test_commands_inside(shared: Dut, tmp_path: Path) -> None:
    host = shared.host
    assert host.run(["sh", "-c", "cat; echo no >&2; exit 7"], stdin="in", check=False) == (
        replace(host.run(["true"]), stdout="in", stderr="no\n", status=7)
    )
    with pytest.raises(CommandFailed) as caught:
        host.run(["false"])
    assert "lxc-attach" in str(caught.value)
    with pytest.raises(CommandFailed, match="No such file or directory"):
        host.run(["tt-no-such-program"])
    check_files(host, tmp_path)


UNTIL_INTERRUPTED = """
import json, os, signal, sys
def stop(*_):
    print(json.dumps({"event": "done"}), flush=True)
    sys.exit(5)
signal.signal(signal.SIGINT, stop)
groups = [line.strip() for line in open("/proc/self/cgroup")]
ready = {"event": "ready", "cpus": sorted(os.sched_getaffinity(0)), "pid": os.getpid()}
print(json.dumps(ready), flush=True)
while True:
    signal.pause()
"""


def test_started_processes_are_in_its_groups_and_end_when_told(shared: Dut) -> None:
    process = shared.host.start(["python3", "-c", UNTIL_INTERRUPTED])
    ready = process.expect("ready", 20)
    assert ready["cpus"] == [1]
    seen_outside = process.pid
    assert seen_outside != ready["pid"]  # it has ids of its own
    for row in cgroups.hierarchies():
        lines = Path(f"/proc/{seen_outside}/cgroup").read_text().splitlines()
        if row.controllers:
            assert any(f"/{shared.facts['name']}" in line for line in lines), row
    process.interrupt()
    process.expect("done", 20)
    wait_for(lambda: process.ended, "the end of the process")
    assert process.status == 5
    process.close()
    assert not Path(f"/proc/{seen_outside}").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_somebody_ends_says_how(shared: Dut, number: signal.Signals) -> None:
    process = shared.host.start(["sh", "-c", "echo ready; exec sleep infinity"])
    assert process.read_line(20) == "ready"
    os.kill(process.pid, number)
    assert process.read_line(20) is None
    assert process.failure() == f"sh was ended by {number.name}"
    process.close()


def test_started_processes_end_with_tailtap(shared: Dut) -> None:
    name = shared.facts["name"]
    enter = lxc.Container(name).inside()
    code = (
        "import sys, time\n"
        "from tailtap.remote.local import ContainerHost\n"
        f"host = ContainerHost({name!r}, {enter!r}, [1])\n"
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
    wait_for(lambda: not _runs(inner), "the end of the process in the container")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_other_version_of_control_groups_says_how_to_boot_for_it(tmp_path: Path) -> None:
    found = cgroups.require("cpuset", None).version
    other = 3 - found
    out = tmp_path / "out"
    with own_machine() as machine:
        path = write_experiment(
            tmp_path, EXPERIMENT + f"vary: {{dut.cgroup: [{found}, {other}]}}\n"
        )
        options = ("--set", "traffic.duration=100 ms")
        done = machine.tailtap("run", str(path), "--out", str(out), "--quiet", *options)
        assert machine.namespaces() == []
    assert statuses(out) == ["done", "failed"]
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"tailtap: 1 of 2 runs failed, 002-{other} first: dut.cgroup: control groups of version "
        f"{other} cannot limit the DuT: the controller cpuset belongs to version {found} here: "
        "boot with systemd.unified_cgroup_hierarchy="
    )
    done_run = record(next((out / "runs").glob("001-*")))
    assert done_run["platform"]["cgroup"]["cpuset"]["version"] == found


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("dut.memory=1 MB", "dut.memory: 976.6 KiB is too little for a container: give it 32 MiB"),
        ("dut.memory=9000000 GB", "free: take less"),
        ("dut.kernel='1.2.3'", "dut.kernel: this machine runs "),
        (
            "dut.boot=tt.none={cpus}",
            "dut.boot: this machine was not booted with tt.none=1: put that on its kernel's ",
        ),
        ("dut.cpus=[1, 8000]", "there is no CPU 8000 here for dut.cpus: choose from 0, 1"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, setting: str, said: str) -> None:
    with own_machine() as machine:
        path = write_experiment(tmp_path, EXPERIMENT)
        out = str(tmp_path / "out")
        done = machine.tailtap("run", str(path), "--out", out, "--quiet", "--set", setting)
        assert machine.namespaces() == []
    assert done.returncode == 3
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("platform", ["container", "bare-metal"])
def test_only_runs_that_ask_for_what_the_machine_was_booted_with_are_made(
    tmp_path: Path, platform: str
) -> None:
    line = host_boot().command_line
    booted = json.dumps(str(parameters(line)[0]))
    out = tmp_path / "out"
    with own_machine() as machine:
        path = write_experiment(tmp_path, EXPERIMENT + f"vary: {{dut.boot: ['', {booted}]}}\n")
        options = ("--set", f"dut.platform={platform}", "--set", "traffic.duration=100 ms")
        done = machine.tailtap("run", str(path), "--out", str(out), "--quiet", *options)
        assert machine.namespaces() == []
    assert done.returncode == 3
    assert statuses(out) == ["failed", "done"]
    without, tuned = (record(run) for run in sorted((out / "runs").iterdir()))
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
    out = tmp_path / "out"
    with own_machine() as machine:
        path = write_experiment(tmp_path, EXPERIMENT)
        options = ("--set", "dut.forwarder=fault", "--set", "dut.root=debian")
        running = machine.start("run", str(path), "--out", str(out), "--quiet", *options)
        _, stderr = running.communicate(timeout=120)
        assert machine.namespaces() == []
    assert was_made(running, stderr), stderr
    [run] = (out / "runs").iterdir()
    counts = Evaluation.load(run / "evaluation").counts
    assert (counts.matched, counts.lost) == (PACKETS, 0)
    content = record(run)
    assert content["platform"]["root"] == "debian"
    assert content["platform"]["init_cpus"] == "0"
    assert content["platform"]["cgroup"]["cpuset"]["cpuset.cpus"] == "0-1"


def test_kill_nine_then_clean(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with own_machine() as machine:
        path = write_experiment(tmp_path, EXPERIMENT)
        options = ("--out", str(out), "--set", "dut.forwarder=fault")
        with machine.held(tmp_path, "run", str(path), *options) as running:
            [name] = [name for name in machine.namespaces() if name.endswith("-dut")]
            kept = json.loads(machine.tailtap("clean", "--json").stdout)
            assert ("container", name) in {(row["kind"], row["name"]) for row in kept["kept"]}
            assert kept["removed"] == []
            running.process.kill()
            running.process.wait()
        assert cgroups.groups(name)
        mounted = machine.run("cat", "/proc/mounts").stdout
        assert f"/run/tailtap/lxc/{name}" in mounted
        cleaned = machine.tailtap("clean")
        assert cleaned.returncode == 0, cleaned.stderr
        assert f"removing container {name}" in cleaned.stdout
        assert machine.namespaces() == []
        assert cgroups.groups(name) == []
        assert cgroups.groups(name + lxc.MONITOR) == []
        assert name not in machine.run("cat", "/proc/mounts").stdout
        assert machine.run("ls", "/run/tailtap/lxc").stdout == ""
        assert machine.tailtap("clean").stdout == "nothing to remove\n"


def test_an_interrupted_run_leaves_no_container(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with own_machine() as machine:
        path = write_experiment(tmp_path, EXPERIMENT)
        running = machine.start(
            "run", str(path), "--out", str(out), "--set", "traffic.duration=10 min"
        )
        wait_for(lambda: machine.run("ls", "/run/tailtap/lxc").stdout != "", "the container")
        time.sleep(0.05)  # wherever in its start that is
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=PATIENCE_SECONDS)
        assert running.returncode == 4, stderr
        assert machine.namespaces() == []
        assert machine.run("ls", "/run/tailtap/lxc").stdout == ""

"""Work that is killed at every step, each time cleaned up after or put back."""

from __future__ import annotations

import json
import sys
from typing import Literal

from labtools import Machine

Work = Literal["lab", "cards", "lxc-start", "crun", "runc", "podman", "huge pages"]

KILLED = """
import json, os, shutil, signal, stat, subprocess, sys
from pathlib import Path

from tailtap.host.changes import journal
from tailtap.host.changes.journal import FOLDERS
from tailtap.remote.local import LocalHost


def killed(work, at, told=None):
    # Whether the work was killed after `at` of its steps; it came to its end before otherwise, and
    # tells the file `told` how many steps that took.
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, -signal.SIGKILL), (at, status)
        return status != 0
    taken = 0

    def step():
        nonlocal taken
        if taken == at:
            os.kill(os.getpid(), signal.SIGKILL)
        taken += 1

    def stepping(owner, name):
        go_on = getattr(owner, name)

        def stepped(*arguments, **options):
            try:
                return go_on(*arguments, **options)
            finally:
                step()

        setattr(owner, name, stepped)

    for owner, name in ((journal, "append"), (LocalHost, "run"), (Path, "write_text"),
                        (os, "replace"), (os, "mkdir"), (Path, "unlink"), (Path, "rmdir"),
                        (shutil, "rmtree")):
        stepping(owner, name)
    write = os.write

    def written(opened, content):
        # Into a file: who reads from a pipe is another program, which goes on.
        try:
            return write(opened, content)
        finally:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                step()

    os.write = written
    step()
    work()
    if told is not None:
        os.write(told, str(taken).encode())
    os._exit(0)


def some_steps(work, many):
    # At which steps to kill it: so many in even distances, or all for 0.
    read, write = os.pipe()
    assert not killed(work, -1, write)
    steps = int(os.read(read, 16))
    return [place * steps // (many + 1) for place in range(1, many + 1)] or list(range(steps))


def told(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
"""
"""What scripts share that do work and are killed."""

LAB = (
    KILLED
    + """
import contextlib

from tailtap.host.changes import huge_pages
from tailtap.host.containers import cgroups
from tailtap.host.containers.container import Spec
from tailtap.host.containers.podman import ENGINES
from tailtap.host.changes.clean import find, remove
from tailtap.host.changes.systemd import Folder
from tailtap.host.changes.journal import STATE, Journal
from tailtap.host.net.namespaces import Namespace
from tailtap.lab.platforms.roots import ROOTS
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.graphs import Cables, smallest

work, reboot = sys.argv[1], sys.argv[2] == "reboot"
engines = {engine.program: engine for engine in ENGINES}
for engine in ENGINES:
    engine("none").folder.parent.mkdir(parents=True, exist_ok=True)


def lab(cables=None):
    with Lab(smallest("namespace", [0], both_ways=cables is None, cables=cables)) as made:
        folder = Folder(f"{STATE}/tt-{made.journal.identity}-forwarder")
        with made.journal.held(folder):
            made.add({"dut": ()})


def cards():
    lab(Cables(("card1", "card2"), ("card0", "card3")))


def container():
    made, root, engine = Journal.create(), ROOTS["host"], engines[work]
    name = f"tt-{made.identity}-dut"
    init = root.init or engine.init
    spec = Spec(name, root.lower(), init, (), root.shared(), root.files())
    with contextlib.closing(made), made.held(engine(name, spec)):
        with made.held(Namespace(name, container=name)):
            pass


def reserve():
    made = Journal.create()
    with contextlib.closing(made), made.held(huge_pages.reservation(4 << 20)):
        pass


def command_of(path):
    # Nothing where the process has ended meanwhile.
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def state():
    # Everything of this machine that the work changes.
    links = [(row["ifname"], row["mtu"], row["address"], row["promiscuity"], row["flags"])
             for row in json.loads(told("ip", "-j", "-d", "link", "show"))]
    values = {str(path): path.read_text()
              for path in Path("/sys/class/net").glob("card*/queues/rx-*/rps_cpus")}
    files = [str(path) for folder in FOLDERS for path in folder.glob("*")
             if path.name != "lock"]
    containers = [str(path) for engine in ENGINES
                  for path in engine("none").folder.parent.glob("*")]
    processes = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline")
                 if "/run/tailtap/" in command_of(path)] if work in engines else []
    # All lab tests share these (what another had mounted is still listed, and goes when it ends):
    # only those that run apart may look at them. Tests without root make none.
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines()
              if work in engines and " /run/tailtap/" in line]
    groups = [str(path) for tree in cgroups.hierarchies() for path in tree.path.glob("*")
              if work in engines and path.name.startswith(("tt-", "libpod-"))]
    reserved = [path.read_text()
                for path in Path("/sys/kernel/mm/hugepages").glob("*/nr_hugepages")
                if work == "huge pages"]
    return (sorted(links), values, told("ip", "netns", "list"), files, containers, mounts, groups,
            reserved, processes)


works = {"lab": lab, "cards": cards, "huge pages": reserve, **dict.fromkeys(engines, container)}
before, steps, seen = state(), 0, set()
while killed(works[work], steps):
    here = journal.boot_id
    journal.boot_id = lambda: "another"
    entered = {item.kind for item in find() if item.entry}
    assert entered <= {"folder"}, entered
    if reboot:
        for name in told("ip", "netns", "list").split():
            if name.startswith("tt-"):
                told("ip", "netns", "delete", name)
    else:
        journal.boot_id = here
    found = find()
    seen |= {item.kind for item in found}
    left = remove(found)
    assert not left, (steps, left)
    again = find()
    assert not again, (steps, again)
    journal.boot_id = here
    after = state()
    assert after == before, (steps, before, after)
    steps += 1
assert state() == before
print(json.dumps({"steps": steps, "kinds": sorted(seen)}))
"""
)


def killed_at_every_step(
    machine: Machine, work: Work, *, reboot: bool = False
) -> tuple[int, set[str]]:
    """Do `work` on `machine`, killed after its first step, its second, and so on to its end.

    After each, `tailtap clean`'s functions must leave nothing, and everything as before; with
    `reboot` they see another boot, with no namespace of the one before. The number of steps, and
    the kinds of what was cleaned.
    """
    words = (sys.executable, "-P", "-c", LAB, work, "reboot" if reboot else "same boot")
    done = machine.run(*words, seconds=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["steps"], set(told["kinds"])


HOST = (
    KILLED
    + """
import re

from tailtap.host.knobs.tree import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import apply, revert
from tailtap.host.tuning.apply import plan

tree = Tree()
purpose = Purpose.of(tree, cpus="1", housekeeping="0", interfaces=["card1"])
steps_to_take = plan(tree, purpose, disruptive=True)
COUNTERS = re.compile(
    "/proc/sys/(kernel/random|kernel/ns_last_pid|kernel/pty/nr|fs/.*-(nr|state)|fs/aio-nr"
    "|net/netfilter/nf_conntrack_count|net/.*/(stable_secret|gc_.*)|kernel/perf_event_max_sample"
    "|kernel/hung_task_detect_count|kernel/hung_task_warnings|fs/quota|vm/stat_refresh"
    "|kernel/(msg|sem|shm)_next_id|kernel/tainted|fs/mqueue|user/|dev/)"
)
FILES = (
    "/proc/irq/*/smp_affinity_list", "/proc/irq/default_smp_affinity",
    "/sys/class/net/*/queues/*/rps_cpus", "/sys/class/net/*/queues/*/xps_cpus",
    "/sys/class/net/*/threaded", "/sys/class/net/*/napi_defer_hard_irqs",
    "/sys/class/net/*/gro_flush_timeout", "/sys/devices/virtual/workqueue/cpumask",
    "/sys/devices/virtual/workqueue/*/cpumask", "/sys/kernel/mm/transparent_hugepage/*",
    "/sys/kernel/mm/ksm/run", "/sys/kernel/mm/hugepages/*/nr_hugepages", "/sys/kernel/rcu_*",
    "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
    "/sys/devices/system/cpu/cpu*/cpuidle/*/disable",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_*", "/sys/module/haltpoll/parameters/*",
    "/sys/fs/cgroup/cpuset/cpuset.cpus", "/sys/fs/cgroup/cpuset.cpus*",
)


def content(path):
    try:
        return path.read_text(errors="replace")
    except OSError:  # a folder, or what the kernel does not tell now
        return None


def state():
    # Everything of this machine that a tuning changes, and all of /proc/sys.
    found = {}
    for path in Path("/proc/sys").rglob("*"):
        if not COUNTERS.match(str(path)):
            found[str(path)] = content(path)
    for pattern in FILES:
        for path in Path("/").glob(pattern.lstrip("/")):
            found[str(path)] = content(path)
    links = [(row["ifname"], row["mtu"], row["flags"], row["txqlen"])
             for row in json.loads(told("ip", "-j", "link", "show"))]
    found["links"] = sorted(links)
    found["journals"] = [str(path) for folder in FOLDERS for path in folder.glob("*.journal")]
    return found


def check(what, at):
    after = state()
    differing = {path: (before.get(path), after.get(path))
                 for path in {*before, *after} if before.get(path) != after.get(path)}
    assert not differing, (what, at, differing)


before = state()
counts = {}
for what in ("apply", "revert"):
    at = 0
    while True:
        if what == "revert":
            apply(steps_to_take)
        going_on = killed((lambda: apply(steps_to_take)) if what == "apply" else revert, at)
        if what == "revert" and at == 0:
            assert state() != before
        done = revert()
        assert not done.left, (what, at, done)
        check(what, at)
        at += 1
        if not going_on:
            break
    counts[what] = at - 1
print(json.dumps({"changes": [change.knob.name for change in steps_to_take.changes], **counts}))
"""
)


def tuning_killed_at_every_step(machine: Machine) -> tuple[list[str], int, int]:
    """Tune `machine` for a device on core 1, killed at each step of applying and of reverting.

    After each, a revert must leave everything as before. The names of the knobs that were set, and
    the numbers of steps of applying and reverting. There must be an interface ``card1``.
    """
    done = machine.run(sys.executable, "-P", "-c", HOST, seconds=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["changes"], told["apply"], told["revert"]

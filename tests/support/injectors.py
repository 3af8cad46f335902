"""Disturbances of one CPU at known times, for tests that must find them again.

`injector/injector.c` is compiled here. Each injector is a process that disturbs a CPU once a
period, ends by itself, and logs when each injection began and ended by CLOCK_MONOTONIC. The same
injector on a CPU that is not the DuT's is a decoy. With `spread_ns` the time from one injection to
the next is longer or shorter by up to that: what comes at irregular times has no other's period.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from namespaces import Namespace

SOURCE = Path(__file__).parent / "injector" / "injector.c"
PERIOD_NS = 100_000_000
SECONDS = 120
"""An injector ends after so many seconds, whatever becomes of the test; 120 at most."""
PATIENCE_SECONDS = 60
GROUPS = Path("/sys/fs/cgroup")
EVERY_CPU = -1
QUOTA_NS, QUOTA_PERIOD_NS = 1_000_000, 50_000_000
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Injection:
    """One disturbance; times in ns of CLOCK_MONOTONIC."""

    cpu: int
    """The disturbed CPU; -1 for all of them."""
    start_ns: int
    end_ns: int
    reached: bool
    """False where the spinner of `membarrier` did not have the CPU meanwhile:
    somebody else worked there, so that nothing was interrupted."""
    policy: str | None = None
    """How the injector was allowed to run: `fifo`, or `nice` at -20."""


@dataclass
class Injector:
    """A running injector."""

    process: subprocess.Popen[str]
    injections: list[Injection] = field(default_factory=list)
    """What it did, once it has ended."""


def build(folder: Path) -> Path:
    """Compile the injector into `folder`; the program."""
    program = folder / "injector"
    command = ["cc", "-O2", "-pthread", "-Wall", "-Werror", str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def membarrier(
    program: Path,
    *,
    cpu: int,
    helper: int,
    count: int = 20,
    period_ns: int = PERIOD_NS,
    spread_ns: int = 0,
) -> contextlib.AbstractContextManager[Injector]:
    """`count` function call interrupts (ipi_mb) in a row at `cpu`, sent from CPU `helper`.

    The kernel interrupts a CPU that runs this process. So a thread of it spins there at nice 19:
    the CPU never idles meanwhile, and whoever else wants it, has it.
    """
    return _injecting(program, "membarrier", cpu, helper, period_ns, spread_ns, count=count)


def hog(
    program: Path,
    *,
    cpu: int,
    busy_ns: int = 2_000_000,
    period_ns: int = PERIOD_NS,
    spread_ns: int = 0,
) -> contextlib.AbstractContextManager[Injector]:
    """A task that keeps `cpu` for `busy_ns`, as urgent as it may be."""
    return _injecting(program, "hog", cpu, cpu, period_ns, spread_ns, busy_ns=busy_ns)


def timers(
    program: Path,
    *,
    cpu: int,
    count: int = 100,
    gap_ns: int = 20_000,
    period_ns: int = PERIOD_NS,
    spread_ns: int = 0,
) -> contextlib.AbstractContextManager[Injector]:
    """`count` timers (timerfd) that expire on `cpu`, `gap_ns` apart; 10,000 at most.

    An injection is from arming the first to the expiry of the last. Timers that are due at the
    same time, as those behind a long interrupt, share an interrupt.
    """
    return _injecting(
        program, "timers", cpu, cpu, period_ns, spread_ns, busy_ns=gap_ns, count=count
    )


def kworkers(
    program: Path, *, helper: int, count: int = 1, period_ns: int = PERIOD_NS, spread_ns: int = 0
) -> contextlib.AbstractContextManager[Injector]:
    """A kworker on every CPU (vm/stat_refresh), `count` times in a row, asked for on `helper`."""
    file = ("/proc/sys/vm/stat_refresh", "1", "")
    return _injecting(
        program, "file", EVERY_CPU, helper, period_ns, spread_ns, count=count, file=file
    )


def compaction(
    program: Path, *, cpu: int, period_ns: int = PERIOD_NS, spread_ns: int = 0
) -> contextlib.AbstractContextManager[Injector]:
    """All memory compacted (vm/compact_memory) on `cpu`, a fifth of a second for 24 GiB."""
    file = ("/proc/sys/vm/compact_memory", "1", "")
    return _injecting(program, "file", cpu, cpu, period_ns, spread_ns, file=file)


@contextlib.contextmanager
def flow(
    program: Path,
    namespace: Namespace,
    *,
    cpu: int,
    helper: int,
    count: int = 64,
    listeners: int = 128,
    period_ns: int = PERIOD_NS,
    spread_ns: int = 0,
) -> Iterator[Injector]:
    """`count` frames from one port of `namespace` to another, received by the softirq of `cpu`.

    They are sent from `helper`, and each of them is shown to so many sockets, which takes some
    microseconds. An injection lasts until all have been received.
    """
    namespace.veth("flow-out", "flow-in")
    steering = "/sys/class/net/flow-in/queues/rx-0/rps_cpus"
    try:
        namespace.run("sh", "-c", f"echo {1 << cpu:x} > {steering}")
        with _injecting(
            program, "flow", cpu, helper, period_ns, spread_ns, count=count,
            file=("flow-out", "flow-in", str(listeners)), inside=namespace.inside,
        ) as injector:  # fmt: skip
            yield injector
    finally:  # it may begin again
        namespace.run("ip", "link", "del", "flow-out")


@contextlib.contextmanager
def throttling(
    program: Path,
    pids: Sequence[int],
    *,
    cpu: int,
    helper: int,
    busy_ns: int = 50_000_000,
    period_ns: int = 2 * PERIOD_NS,
    spread_ns: int = 0,
) -> Iterator[Injector]:
    """Processes that work on `cpu` may have 1 ms of every 50 ms for `busy_ns` of each period.

    They are in a control group of their own meanwhile, and go back to theirs afterwards. Who needs
    less is not throttled. The group has the largest weight, so that little else keeps them waiting.
    """
    unified = (GROUPS / "cgroup.controllers").exists()
    tree = GROUPS if unified else GROUPS / "cpu"
    if unified:
        (tree / "cgroup.subtree_control").write_text("+cpu")
    group = tree / f"injector-{os.getpid()}-{next(_NUMBERS)}"
    before = {pid: tree / _group(pid, "" if unified else "cpu") for pid in pids}
    quota_us, period_us = QUOTA_NS // 1000, QUOTA_PERIOD_NS // 1000
    group.mkdir()
    try:
        if unified:
            (group / "cpu.weight").write_text("10000")
            file = (str(group / "cpu.max"), f"{quota_us} {period_us}", f"max {period_us}")
        else:
            (group / "cpu.shares").write_text("262144")
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            file = (str(group / "cpu.cfs_quota_us"), str(quota_us), "-1")
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        with _injecting(
            program, "file", cpu, helper, period_ns, spread_ns, busy_ns=busy_ns, file=file
        ) as injector:
            yield injector
    finally:
        for pid, former in before.items():
            with contextlib.suppress(ProcessLookupError):
                (former / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@contextlib.contextmanager
def stops(
    program: Path,
    pid: int,
    *,
    cpu: int,
    helper: int,
    busy_ns: int = 2_000_000,
    period_ns: int = PERIOD_NS,
    spread_ns: int = 0,
) -> Iterator[Injector]:
    """A process that works on `cpu` is stopped for `busy_ns`, by a signal that `helper` sends.

    Whoever else wants the CPU has it meanwhile. An injection is from before the stop until the
    process has been told to go on, which it is at the end in any case.
    """
    process = os.pidfd_open(pid)
    try:
        with _injecting(
            program, "stop", cpu, helper, period_ns, spread_ns, busy_ns=busy_ns, count=pid
        ) as injector:
            yield injector
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGCONT)
        os.close(process)


def _group(pid: int, controller: str) -> str:
    """The control group of a process in a hierarchy, proc_pid_cgroup(5)."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    raise LookupError(f"process {pid} is in no group of {controller or 'cgroup2'}")


@contextlib.contextmanager
def _injecting(
    program: Path,
    kind: str,
    cpu: int,
    helper: int,
    period_ns: int,
    spread_ns: int,
    *,
    busy_ns: int = 0,
    count: int = 1,
    file: tuple[str, str, str] | None = None,
    inside: Callable[..., Sequence[str]] = lambda *command: command,
) -> Iterator[Injector]:
    """Runs an injector until the body or its time ends; `injections` has its log then."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        numbers = (cpu, helper, period_ns, spread_ns, busy_ns, count, SECONDS)
        command = inside(str(program), kind, *map(str, numbers), str(log), *(file or ()))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        injector = Injector(process)
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise AssertionError(f"{kind}: {process.communicate()[1].strip()}")
            yield injector
            process.terminate()
            _, said = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, said
            rows = [json.loads(line) for line in log.read_text().splitlines()]
            injector.injections = [Injection(**row) for row in rows]
        finally:
            process.kill()
            process.communicate()

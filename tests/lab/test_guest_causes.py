"""Late packets of a virtual machine, with what both kernels did: the injectors' logs are the truth.

A hog in the guest takes the core from the forwarder. A hog on the host takes it from the guest, or
all of QEMU is stopped and leaves it idle. They come at irregular times, so that mostly one of them
delays a packet. That is slow: on a machine whose own CPUs are taken as well, a hog of an emulated
guest is not always told from that.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import injectors
import numpy as np
import pyarrow.parquet as pq
import pytest
from explaining import is_called
from injectors import Injection, Injector
from labtools import Machine, measured, own_machine, record, write_experiment
from program import tailtap
from traces import RECORD, TASK

from tailtap.analysis.clocks.host import GuestClock, guest_clock
from tailtap.analysis.evaluation import Evaluation
from tailtap.host.containers.domains import FOLDERS, threads_of

EXPERIMENT = """\
name: guest
dut:
  platform: vm
  forwarder: external
  cpus: [1]
  memory: 512 MiB
  options: {{command: "{program} {{ingress}} {{egress}} {{folder}}/times"}}
traffic: {{rate: 1 kpkt/s, duration: {packets} ms, warm_up: 0 s, cpu: 0, slip_limit: 1 s}}
trace: thin
"""
PACKETS, FEW = 6000, 1000
pytestmark = pytest.mark.usefixtures("guest_kernels")
BOOT_SECONDS = 300
CPU, GUEST_CPU = 1, 1
"""The CPU of this machine that the guest's serving CPU is pinned to, and that one."""
BUSY_NS, PERIOD_NS, SPREAD_NS, SECONDS = 12_000_000, 300_000_000, 100_000_000, 4
"""A hog, and for how long there is one in the guest: less than packets are sent."""
LATE = "2 ms"
NEAR_NS = 5_000_000
"""Packets that came so much around an injection belong neither to it nor to the others."""
END_SECONDS = 120
HOG_OF_GUEST, HOG_OF_HOST = ("task", "guest: injector"), ("task", "host: injector")
STOPPED = ("waiting", "host: its thread slept")
Injecting = Callable[[Machine, Path], contextlib.AbstractContextManager[Injector]]


@dataclass(frozen=True)
class Truth:
    """A run, what was done on the host and in the guest by the host's clock, and what is told."""

    folder: Path
    clock: GuestClock
    host: Sequence[Injection]
    guest: Sequence[Injection]
    late: dict[str, Any]
    causes: dict[str, Any]


def guest_of(machine: Machine) -> str:
    [name] = machine.run("ls", str(FOLDERS)).stdout.split()
    return name


def hog_on_host(_: Machine, program: Path) -> contextlib.AbstractContextManager[Injector]:
    return injectors.hog(
        program, cpu=CPU, busy_ns=BUSY_NS, period_ns=PERIOD_NS, spread_ns=SPREAD_NS
    )


def stopped(machine: Machine, program: Path) -> contextlib.AbstractContextManager[Injector]:
    """All threads of the guest's QEMU are stopped at times."""
    name = guest_of(machine)
    thread = next(iter(threads_of(name).values()))
    status = Path(f"/proc/{thread}/status").read_text()
    [qemu] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")]
    # It sees the folder, which only processes of this machine do.
    assert Path(f"/proc/{qemu}/root{FOLDERS}/{name}/port").exists()
    return injectors.stops(
        program, qemu, cpu=CPU, helper=0, busy_ns=BUSY_NS, period_ns=PERIOD_NS, spread_ns=SPREAD_NS
    )


@contextlib.contextmanager
def hog_in_guest(machine: Machine, program: Path) -> Iterator[list[Injection]]:
    """A hog on the guest's serving CPU; its injections are in the list at the end."""
    folder = FOLDERS / guest_of(machine)
    relay = [sys.executable, "-P", "-m", "tailtap.remote.guest"]
    relay += [f"{folder}/port-channels", "sh", "-c", '"$@" && cat /run/log', "hog"]
    numbers = (GUEST_CPU, GUEST_CPU, PERIOD_NS, SPREAD_NS, BUSY_NS, 1, SECONDS)
    relay += [str(program), "hog", *map(str, numbers), "/run/log"]
    found: list[Injection] = []
    with subprocess.Popen(
        machine.command(*relay), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield found
            said, errors = process.communicate(timeout=END_SECONDS)
            assert process.returncode == 0, errors
            found += [Injection(**json.loads(line)) for line in said.splitlines()]
        finally:
            process.kill()


def disturbed(folder: Path, recorder: Path, injector: Path, on_its_host: Injecting) -> Truth:
    path = write_experiment(
        folder, EXPERIMENT.format(program=recorder / "forwarder", packets=PACKETS)
    )
    command = ("run", str(path), "--out", str(folder / "out"), "--quiet")
    with own_machine() as machine:
        with machine.held(folder, *command, patience=BOOT_SECONDS) as running:
            # That in the guest ends by itself, before the packets do, and the other one then.
            with (
                on_its_host(machine, injector) as host,
                hog_in_guest(machine, injector) as guest,
            ):
                running.go_on()
            status, said = ended(running.process)
        assert status == 0, said
        assert machine.namespaces() == []
    [run] = (folder / "out/runs").iterdir()
    told = tailtap("explain", run, "--late", LATE, "--json", "--quiet")
    assert told.returncode == 0, told.stderr
    table = pq.read_table(run / "causes-late.parquet")
    columns = {
        name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names
    }
    clock = guest_clock(run)
    return Truth(
        run, clock, host.injections, on_host(guest, clock), columns, json.loads(told.stdout)
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=END_SECONDS)
    return process.returncode, said


def on_host(injections: Sequence[Injection], clock: GuestClock) -> list[Injection]:
    """Injections of the guest by the clock of the host."""
    times = np.array([[one.start_ns, one.end_ns] for one in injections], np.int64)
    return [
        Injection(CPU, start, end, True)
        for start, end in clock.host_ns(times.ravel()).reshape(-1, 2).tolist()
    ]


def delayed(late: dict[str, Any], injections: Sequence[Injection]) -> tuple[Any, Any]:
    """Which late packets waited mostly for an injection, and which came near one."""
    mine = np.zeros(late["ingress_ns"].size, bool)
    near = mine.copy()
    for one in injections:
        waited = np.minimum(late["egress_ns"], one.end_ns)
        waited = waited - np.maximum(late["ingress_ns"], one.start_ns)
        mine |= 2 * waited > late["excess_ns"]
        near |= (late["egress_ns"] > one.start_ns - NEAR_NS) & (
            late["ingress_ns"] < one.end_ns + NEAR_NS
        )
    return mine, near


@pytest.mark.apart
@pytest.mark.timed
def test_the_kernel_of_a_guest_is_traced(machine: Machine, recorder: Path, tmp_path: Path) -> None:
    """And its clock is aligned with the host's."""
    text = EXPERIMENT.format(program=recorder / "forwarder", packets=FEW)
    check_files(measured(tmp_path, text, machine=machine, seconds=BOOT_SECONDS).run, FEW)


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize(("on_its_host", "cause"), [(hog_on_host, HOG_OF_HOST), (stopped, STOPPED)])
def test_what_both_kernels_did_is_told(
    recorder: Path, injector: Path, tmp_path: Path, on_its_host: Injecting, cause: tuple[str, str]
) -> None:
    """Of a guest that was stopped, its own kernel saw nothing but the hog beside the forwarder."""
    truth = disturbed(tmp_path, recorder, injector, on_its_host)
    check_files(truth.folder, PACKETS)
    check_blame(truth, HOG_OF_GUEST, truth.guest, truth.host)
    check_blame(truth, cause, truth.host, truth.guest)


def disturbed_otherwise(truth: Truth) -> Any:
    """Which late packets others had the host's core for, for more than a tenth of their excess.

    What this machine did besides is neither hog's, as what a hypervisor takes. The host's records
    say so by themselves, whatever the join makes of them.
    """
    said = json.loads((truth.folder / "trace.json").read_text())
    ours = {int(pid) for pid, name in said["names"]["pids"].items()
            if name == "injector" or name.startswith("qemu")}  # fmt: skip
    ours |= set(said["served"]["pids"])
    records = np.fromfile(truth.folder / "trace.events", RECORD, offset=8)
    others = records[(records["kind"] == TASK) & ~np.isin(records["id"], list(ours))]
    start = others["start"].astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(others["dur"].astype(np.int64))])

    def until(times: Any) -> Any:
        before = np.searchsorted(start, times, "right")
        last = np.maximum(before - 1, 0)
        part = np.minimum(times - start[last], others["dur"][last])
        return np.where(before > 0, sums[last] + part, 0)

    late = truth.late
    taken = until(late["egress_ns"]) - until(late["ingress_ns"])
    return 10 * taken > late["excess_ns"]


def check_files(folder: Path, packets: int) -> None:
    """Both traces, the guest's stamps, and how its clock stands to the host's."""
    content = record(folder)
    assert Evaluation.load(folder / "evaluation").counts.lost == 0
    said = content["trace_guest"]
    assert said["kernel"] == content["platform"]["kernel"]["release"]
    assert (said["cpus"], said["lost"], said["served"]["by"]) == ([1], {"1": 0}, "task")
    assert set(content["instruments"]["trace-guest"]["files"]) == {
        "trace-guest.events", "trace-guest.json", "guest-ingress.stamps", "guest-egress.stamps",
    }  # fmt: skip
    for link in ("guest-ingress", "guest-egress"):
        assert said["taps"][link]["stored"] == packets
    alignment = said["alignment"]
    assert alignment["packets"] == {"there": packets, "back": packets}
    least, most = alignment["offset_ns"]
    assert 0 < most - least < 1_000_000
    assert abs(alignment["drift"]) < 1e-3
    records = np.fromfile(folder / "trace-guest.events", RECORD, offset=8)
    assert said["records"] == records.size
    # The forwarder's thread, as the guest's kernel numbers it, had the CPU for the packets.
    stretches = records[(records["kind"] == TASK) & (records["aux"] >> 48 & 1 == 1)]
    assert set(stretches["id"].tolist()) == set(said["served"]["pids"])
    assert stretches.size > packets / 2
    assert not {"guest-untraced", "guest-clock"} & {row["code"] for row in content["warnings"]}


def check_blame(
    truth: Truth, cause: tuple[str, str], its: Sequence[Injection], others: Sequence[Injection]
) -> None:
    """Of the packets that an injector delayed by its log, 95 in 100 are blamed on its cause; and
    hardly any of those that it was not near."""
    late = truth.late
    mine, near = delayed(late, its)
    mine &= ~delayed(late, others)[0] & ~disturbed_otherwise(truth) & (late["blamed"] != "steal")
    [row] = [row for row in truth.causes["causes"]
             if row["cause"] == cause[0] and is_called(row["detail"], cause[1])]  # fmt: skip
    blamed = (late["blamed"] == cause[0]) & (late["detail"] == row["detail"])
    assert mine.sum() > 50
    assert blamed[mine].mean() >= 0.95
    assert blamed[~near].sum() <= 0.01 * max(1, (~near).sum())
    assert row["claim"] == "cause"
    assert not any(is_called(row["detail"], "injector") for row in truth.causes["causes"])

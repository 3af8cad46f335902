"""When the kernel handed packets over, written down by a program that shares nothing with the taps.

`recorder/` is compiled here. It needs the kernel's types (CONFIG_DEBUG_INFO_BTF) and Linux 6.12,
which lets tracepoints read packets that lie in several pieces.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labtools import IS_VIRTUAL, Machine
from numpy.typing import NDArray

SOURCES = Path(__file__).parent / "recorder"
RECORD = np.dtype(
    [("time", "<i8"), ("id", "<u4"), ("kind", "u1"), ("what", "u1"), ("cpu", "<u2"),
     ("took", "<u4"), ("unused", "<u4")]
)  # fmt: skip
SENT, SKB, TUN, FRAME, RECEIVED = 1, 2, 3, 4, 5
PACKET, FRAMES, BEGIN, END, STEAL = 0, 1, 2, 3, 4
INTERRUPTS = ("device", "timer", "reschedule", "call", "call-single", "irq-work")
"""As in recorder.h."""
TICK_NS = 10_000_000
"""The longest time between two ticks (CONFIG_HZ=100)."""
APART_NS = 2_000
"""A stamp and the recorder's time of a packet are nearer than this,"""
TIMES_SLOWER = 6
"""or than so many times what the recorder itself takes: on a machine that is busy, or emulated, all
programs find cold caches. Between both times the tap's program runs, and the recorder's, and what
of the kernel lies between their hooks."""
NEAR_SHARE = 0.95 if IS_VIRTUAL else 0.99
"""Of the packets; between the two times of the others something else had the CPU."""


@dataclass(frozen=True)
class Port:
    """A port at which packets are seen, and where they pass it: one of the ways above."""

    way: int
    namespace: str
    name: str


@dataclass(frozen=True)
class Recording:
    """What the recorder wrote."""

    records: NDArray[Any]
    lost: int

    def packets(self, place: int) -> NDArray[Any]:
        """Records of the packets at a port in the order of time, one for each XDP frame."""
        chosen = self.records["what"] == place
        kinds = self.records["kind"]
        found = self.records[chosen & ((kinds == PACKET) | (kinds == FRAMES))]
        repeats = np.where(found["kind"] == FRAMES, found["id"], 1)
        return np.repeat(found, repeats)

    @cached_property
    def interrupts(self) -> Mapping[int, list[tuple[int, int, str]]]:
        """By CPU, every interrupt as (begin, end, name) in ns, in the order of their begins."""
        found: dict[int, list[tuple[int, int, str]]] = {}
        open_: dict[tuple[int, int], int] = {}
        kinds = self.records["kind"]
        chosen = self.records[(kinds == BEGIN) | (kinds == END)]
        for time, _, kind, what, cpu, *_ in chosen.tolist():
            if kind == BEGIN:
                open_[cpu, what] = time
            elif (cpu, what) in open_:
                begin = open_.pop((cpu, what))
                found.setdefault(cpu, []).append((begin, time, INTERRUPTS[what]))
        return {cpu: sorted(rows) for cpu, rows in found.items()}

    def between(self, cpu: int, begin: int, end: int) -> list[str]:
        """The names of what took a CPU away between two times in ns."""
        rows = self.interrupts.get(cpu, [])
        names = {name for first, last, name in rows if first < end and last > begin}
        # The hypervisor's share is told at the next tick.
        told = self.records[(self.records["kind"] == STEAL) & (self.records["cpu"] == cpu)]
        near = told[(told["time"] > begin) & (told["time"] < end + TICK_NS)]
        if near["id"].sum() > (end - begin) / 2:
            names.add("steal")
        return sorted(names)


def build(folder: Path) -> None:
    """Compile the recorder, and a forwarder that writes its own times down, into `folder`."""
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True)
    name = machine.stdout.strip()
    arch = {"x86_64": "x86", "aarch64": "arm64"}[name]
    bpf = ["clang", "-target", "bpf", "-O2", "-g", "-Wall", "-Werror", f"-D__TARGET_ARCH_{arch}"]
    bpf += ["-idirafter", f"/usr/include/{name}-linux-gnu", "-c", str(SOURCES / "recorder.bpf.c")]
    subprocess.run([*bpf, "-o", str(folder / "recorder.bpf.o")], check=True)
    for name, *libraries in (("recorder", "-lbpf"), ("forwarder",)):
        c = ["cc", "-O2", "-Wall", "-Werror", str(SOURCES / f"{name}.c"), *libraries]
        subprocess.run([*c, "-o", str(folder / name)], check=True)


@contextlib.contextmanager
def recording(program: Path, machine: Machine, ports: list[Port]) -> Iterator[list[Recording]]:
    """Write down what passes the ports until the body ends; the list then has the recording.

    Skips the test on a kernel that has no such tracepoints.
    """
    words = [f"{port.way}:{_index(machine, port)}:{_inode(machine, port)}" for port in ports]
    # Beside the generator, not on the DuT's CPU.
    command = ["taskset", "--cpu-list", "0", f"{program}/recorder", f"{program}/recorder.bpf.o"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records"
        process = subprocess.Popen(
            [*command, str(file), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        done: list[Recording] = []
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                why = process.communicate()[1].strip().splitlines()
                pytest.skip(f"this kernel cannot run the recorder: {why[-1:]}")
            yield done
            process.terminate()
            lost, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
            done.append(read_recording(file, int(lost)))
        finally:
            process.kill()
            process.communicate()


def read_recording(file: Path, lost: int) -> Recording:
    """What is in a file of the recorder's, which found no room for so many records."""
    # Two CPUs can write in another order than they read the clock.
    return Recording(np.sort(np.fromfile(file, RECORD), order="time", kind="stable"), lost)


def not_near(stamped: NDArray[np.int64], seen: NDArray[Any], slower: int = TIMES_SLOWER) -> str:
    """What is said of stamps that are not near the times of the recorder's packets; nothing where
    they are. `slower` is in place of `TIMES_SLOWER`.
    """
    recorded = seen["time"]
    place = np.clip(np.searchsorted(recorded, stamped), 1, len(recorded) - 1)
    apart = np.minimum(np.abs(recorded[place] - stamped), np.abs(stamped - recorded[place - 1]))
    p50, far = np.quantile(apart, [0.5, NEAR_SHARE], method="inverted_cdf")
    took = np.quantile(seen["took"], NEAR_SHARE, method="inverted_cdf")
    most = max(APART_NS, slower * int(took))
    share = float((apart < APART_NS).mean())
    said = (
        f"{len(stamped)} packets, {share:.4f} nearer than {APART_NS} ns; apart by p50 {p50} ns, "
        f"p{100 * NEAR_SHARE:g} {far} ns, where the recorder takes {took} ns"
    )
    print(said)
    return said if far >= most else ""


def _index(machine: Machine, port: Port) -> int:
    shown = machine.run(
        "ip", "netns", "exec", port.namespace, "cat", "/sys/class/net/" + port.name + "/ifindex"
    )
    return int(shown.stdout)


def _inode(machine: Machine, port: Port) -> int:
    return int(machine.run("stat", "-Lc", "%i", f"/run/netns/{port.namespace}").stdout)

"""A machine as a run keeps it: what it is, how its clock is kept, and how it was tuned.

What the rest of the program has to know of a platform, whatever it is called.

The row of a platform says it, and every run keeps it, so that results can be read where the
platform is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from msgspec import field

from tailtap.records.record import Count, CpuText, Record, Texts, Whole


class Kernel(Record, kw_only=True):
    """The kernel of a machine."""

    release: str | None = None
    version: str | None = None
    machine: str | None = None
    command_line: str | None = None
    preemption: str | None = None


class CpuFacts(Record, kw_only=True):
    """A machine's processors; sets of CPUs are as the kernel writes them."""

    model: str | None = None
    microcode: str | None = None
    online: str | None = None
    isolated: str | None = None
    nohz_full: str | None = None
    smt: str | None = None
    governors: dict[str, str | None] | None = None
    mitigations: dict[str, str | None] | None = None
    hypervisor: bool | None = None


class CpuCache(Record, kw_only=True):
    """A cache of a CPU."""

    level: str
    type: str
    size: str
    cpus: str


class Topology(Record, kw_only=True):
    """What of a machine lies near what."""

    cores: Texts = []
    packages: Texts | None = None
    caches: list[CpuCache] = []
    numa_nodes: dict[CpuText, str | None] = {}
    node_memory: dict[CpuText, Count | None] = {}
    """In bytes."""
    node_distances: dict[CpuText, list[Count]] = {}
    """From each node to each one in the order of their numbers: 10 is itself (ACPI's SLIT)."""


class Interrupt(Record, kw_only=True):
    """An interrupt's devices, and where it may go."""

    name: str | None = None
    cpus: str | None = None


class Nic(Record, kw_only=True):
    """A network card."""

    name: str
    driver: str | None = None
    driver_version: str | None = None
    firmware: str | None = None
    bus: str | None = None
    speed_mbit: Whole | None = None
    mtu: Whole | None = None
    numa_node: Whole | None = None
    interrupts: Texts = []


class Environment(Record, kw_only=True):
    """The machine that something was measured on; None is what could not be found out."""

    hostname: str | None = None
    boot_id: str | None = None
    kernel: Kernel = field(default_factory=Kernel)
    distribution: str | None = None
    cpu: CpuFacts = field(default_factory=CpuFacts)
    topology: Topology = field(default_factory=Topology)
    memory: Count | None = None
    """In bytes."""
    cgroup_versions: list[Count] | None = None
    clocksource: str | None = None
    interrupts: dict[str, Interrupt] = {}
    nics: list[Nic] = []
    versions: dict[str, str | None] = {}


class ClockErrors(Record, kw_only=True):
    """What the program that disciplines a clock claims, in ns."""

    estimated: Whole
    most: Whole


class Timekeeping(Record, kw_only=True):
    """How a machine's kernel corrects its clock, and who tells it to."""

    synchronised: bool
    rate_ppb: Whole
    """What the clock is made to run faster."""
    slewing_ns: Whole
    """What is left of an offset that is being removed."""
    error_ns: ClockErrors
    programs: Texts
    ptp: dict[str, str | None]


Answer = Literal["met", "not-met", "not-applicable", "unknown"]


class Judged(Record, kw_only=True):
    """What an audit says of a knob."""

    group: str | None = None
    answer: Answer
    value: str | None = None
    """What is there, in one line; None when there is nothing or it cannot be read."""
    wanted: str | None = None
    why: str = ""
    source: str = ""


class Purpose(Record, kw_only=True):
    """What a machine was judged for."""

    role: str = ""
    cpus: str = ""
    housekeeping: str = ""
    interfaces: Texts = []


class Tuning(Purpose, kw_only=True):
    """What a machine is like during a run, and what was set for it."""

    before: dict[str, str | None] = {}
    """What was set, with the value that was there."""
    left: dict[str, str] = {}
    """What could not be set, and why."""
    audit: dict[str, Judged] = {}


class Station(Record, kw_only=True):
    """A machine of a run besides the DuT's."""

    environment: Environment
    tuning: Tuning | None = None


class Boot(Record, kw_only=True):
    """What a machine has booted."""

    boot_id: str
    release: str
    command_line: str
    cgroup: Count


class Booted(Boot, kw_only=True):
    """The boot of a machine that a run asked for."""

    via: str
    seconds: float


Virtualization = Literal["none", "container", "machine"]


class Traits(Record, kw_only=True):
    """Properties of a platform."""

    has_dut: bool = True
    """False when nothing is between the taps: no forwarder is needed, and the latency is the
    floor."""
    own_kernel: bool = False
    """Whether the DuT's kernel is another one than this machine's."""
    virtualization: Virtualization = "none"
    """What keeps the DuT apart from the machine: nothing, a container, or a virtual machine."""


def together(several: Iterable[Traits]) -> Traits:
    """Those of a DuT whose nodes have these: the most virtual of them counts."""
    found = list(several)
    order = get_args(Virtualization)
    return Traits(
        has_dut=any(one.has_dut for one in found),
        own_kernel=any(one.own_kernel for one in found),
        virtualization=max((one.virtualization for one in found), key=order.index),
    )


BUILT_IN: Mapping[str, Traits] = {
    "wire": Traits(has_dut=False),
    "bare-metal": Traits(),
    "container": Traits(virtualization="container"),
    "crun": Traits(virtualization="container"),
    "runc": Traits(virtualization="container"),
    "podman": Traits(virtualization="container"),
    "vm": Traits(own_kernel=True, virtualization="machine"),
    "vm-vhost": Traits(own_kernel=True, virtualization="machine"),
}
"""The traits of our own platforms, which runs of others name and do not describe."""

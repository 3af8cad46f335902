"""What a run gives its forwarder besides the DuT, and what forwarders need from a machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from tailtap.base.check import Check, Findings
from tailtap.base.errors import TailtapError
from tailtap.base.schema import NoOptions
from tailtap.host.facts.needs import missing_capabilities
from tailtap.lab.generators.flows import Version
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import PLATFORMS, alike, build, graph_of
from tailtap.lab.platforms.dut import Dut, DutSpec
from tailtap.lab.topology.graphs import FORWARD
from tailtap.lab.topology.lab import Lab
from tailtap.remote import Host, ProgramMissing
from tailtap.remote.local import SYSTEM_PATH, LocalHost

READY_SECONDS = 2.0
"""Seconds until the first packet must have come through a forwarder in the kernel."""


Serves: TypeAlias = Literal["pair", "ports", "flows", "clients"]
"""`pair`: nodes with two ports. `ports`: nodes where all that comes in at a port leaves by the same
other one. `flows`: nodes where each flow goes its own way. `clients`: a node with one port, which
answers what comes in."""

RouteBy: TypeAlias = Literal["address", "port"]


@dataclass(frozen=True)
class Asked:
    """What a run asks its forwarder for; known before anything is started."""

    largest: int
    """Bytes of the largest packet, check sequence included."""
    cpus: int
    cards: Sequence[str]
    """The network cards that are its ports; empty for links of the lab."""
    own_kernel: bool
    own_files: bool = False
    """Whether it has none of this machine's files."""
    iommu: bool = False
    """Whether the ports of a virtual machine are behind an IOMMU."""


@dataclass(frozen=True)
class Setting:
    """The run that a forwarder works for."""

    lab: Lab
    folder: Path
    """The run folder on this machine: logs go there."""
    flows: Mapping[str, Traffic]
    route_by: RouteBy = "port"
    """By what routers tell flows apart."""
    in_line: bool = False
    """Whether other nodes have forwarders as well."""

    @property
    def ip(self) -> Version:
        """The version of IP, which all flows have in common."""
        return next(iter(self.flows.values())).ip

    @property
    def largest(self) -> int:
        """Bytes of the largest packet, check sequence included."""
        return max(size for traffic in self.flows.values() for size in traffic.sizes)

    def part(self, dut: Dut) -> str:
        """What comes behind the names of the things of one node."""
        return f"-{dut.node}" if self.in_line else ""

    def asked(self, dut: Dut) -> Asked:
        cards = list(self.lab.graph.cards_of(dut.node).values())
        return Asked(
            self.largest,
            len(dut.cpus),
            cards,
            dut.host.own_kernel,
            dut.own is not None,
            bool(dut.facts.get("iommu")),
        )


@dataclass(frozen=True)
class Need:
    """A program that a forwarder runs, and how to get it."""

    program: str
    remedy: str

    def find(self, host: Host) -> str:
        """Its path on `host`. Raises `ProgramMissing`."""
        ask = f'PATH="{SYSTEM_PATH}:$PATH" command -v -- {shlex.quote(self.program)}'
        found = host.run(["sh", "-c", ask], check=False).stdout.strip()
        if not found:
            raise ProgramMissing(Path(self.program).name, self.remedy, host=host.name)
        return found


CpuTime = Mapping[str, int]
"""CPU time in ns by `user` and `system`."""


class Plain:
    """What holds of a forwarder that says nothing else: a program between two ports, which has its
    CPUs for itself, and of which only a run shows whether it works here.
    """

    name: str
    remedy = ""
    """What to do where the kernel refuses it, for one that is tried in a lab."""
    required = False
    in_kernel = False
    routes = False
    serves: Serves = "pair"
    shares_cpus = False
    Options: type[BaseModel] = NoOptions
    needs: Sequence[Need] = ()

    def diagnose(self) -> Iterator[Check]:
        if not self.remedy:
            return find_programs(self.name, self.needs)
        return try_in_lab(self.name, self.attempt, self.remedy, required=self.required)

    def attempt(self, dut: Dut, setting: Setting) -> str:
        """Set it up in a lab, and say what was found. Raises `TailtapError`."""
        for need in self.needs:
            need.find(LocalHost())
        self.start(dut, self.Options(), setting).close()
        return "was set up in a lab"

    def foresee(self, options: Any, asked: Asked, findings: Findings) -> None:
        """Nothing."""

    def start(self, dut: Dut, options: Any, setting: Setting) -> Any:
        raise NotImplementedError


OTHER_KERNEL = "another kernel; see docs/reference/forwarders.md"
AREA = "forwarders"
PROBE_CPU = 0


def find_programs(name: str, needs: Sequence[Need]) -> Iterator[Check]:
    """Whether the programs of the forwarder `name` are there."""
    try:
        paths = [need.find(LocalHost()) for need in needs]
    except ProgramMissing as error:
        yield Check(AREA, name, "missing", error.what, error.remedy)
        return
    yield Check(AREA, name, "ok", ", ".join(paths) or "needs nothing of its own")


def try_in_lab(
    name: str,
    attempt: Callable[[Dut, Setting], str],
    remedy: str,
    *,
    required: bool,
) -> Iterator[Check]:
    """Whether the kernel lets the forwarder `name` work, found out in a lab that is removed.

    `attempt` returns what it found, or raises `TailtapError`.
    """
    if os.geteuid() != 0 or missing_capabilities():
        found = "only root can try it"
        yield Check(AREA, name, "untested", found, "run it with sudo", required)
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-"))
        try:
            platform = PLATFORMS["bare-metal"]
            spec = DutSpec((PROBE_CPU,), platform.Options())
            lab = stack.enter_context(Lab(graph_of(alike(platform, spec))))
            [dut] = build(lab, alike(platform, spec))
            lab.wait_until_up()
            found = attempt(dut, Setting(lab, Path(folder), {FORWARD: Traffic()}))
        except TailtapError as error:
            yield Check(AREA, name, "missing", str(error), remedy, required)
            return
    yield Check(AREA, name, "ok", found, required=required)

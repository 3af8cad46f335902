"""`vm-vhost`: a virtual machine whose ports are those of a switch on this machine (vhost-user).

```
namespace tt-ID-dut                                   guest
    tt-in  (link of the lab) ── switch ══ vhost-user ══ tt-in
                                  │                        │ forwarder
    tt-out (link of the lab) ── switch ══ vhost-user ══ tt-out
```

The switch is DPDK's testpmd. It polls the links by AF_PACKET, and the guest's queues in memory that
both share: no kernel takes part in moving packets into the guest and out of it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from tailtap.base.errors import Check, Findings, MachineError
from tailtap.base.schema import Cpus
from tailtap.host.changes.huge_pages import reservation
from tailtap.host.changes.resource import Resource
from tailtap.host.facts.needs import require_drivers
from tailtap.lab.platforms.dut import DutSpec
from tailtap.lab.platforms.vm import Ports, Vm, VmOptions
from tailtap.lab.topology.graph import NodeKind
from tailtap.lab.topology.lab import Lab
from tailtap.records.machine import BUILT_IN, Traits
from tailtap.remote.local import LocalHost, require_program

SWITCH, REMEDY = "dpdk-testpmd", "apt-get install dpdk-dev, or run `make forwarders`"
DRIVERS = ("mempool_ring", "net_af_packet", "net_vhost")
MEMORY = 256 * 2**20
"""Bytes: the packet buffers of four ports."""
BUFFERS, FRAMES = 32_768, 4096
"""Packet buffers of all ports, and frames in each ring of AF_PACKET."""
READY_SECONDS = 60.0
LAST_LINES = 3

# An input that never ends: testpmd leaves when its own does.
_START = """mkfifo "$1/input"; exec 0<> "$1/input"
export RUNTIME_DIRECTORY="$1"; log=$2; shift 2; exec "$@" > "$log" 2>&1"""


class VhostOptions(VmOptions):
    """Those of any virtual machine, and where its switch polls."""

    switch: Cpus | None = Field(
        default=None,
        description="The CPUs on which the switch polls, up to two. By default the last CPU that "
        "is not of dut.cpus.",
        examples=[[3]],
    )


class VmVhost(Vm):
    """A virtual machine behind testpmd."""

    name = "vm-vhost"
    summary = "A virtual machine whose ports are those of a polling switch (vhost-user)."
    documentation = (
        "A virtual machine as vm. DPDK's testpmd polls the links of the lab and the guest's "
        "virtio queues, in memory that both share. Needs, besides, `make forwarders` or the Debian "
        "package dpdk-dev."
    )
    traits: Traits = BUILT_IN["vm-vhost"]
    ports_in: NodeKind | None = "namespace"
    Options: type[BaseModel] = VhostOptions

    def diagnose(self) -> Iterator[Check]:
        try:
            _require_switch()
        except MachineError as error:
            yield Check("platforms", self.name, "missing", str(error.but(remedy="")), REMEDY)
            return
        yield Check("platforms", self.name, "ok", "its switch and the switch's drivers are there")

    def foresee(
        self,
        spec: DutSpec[Any],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        super().foresee(spec, (), programs, findings)
        findings.ask(_require_switch)

    def resources(self, name: str, spec: DutSpec[Any], cards: Sequence[str]) -> Sequence[Resource]:
        return super().resources(name, spec, ())

    @contextlib.contextmanager
    def ports(self, lab: Lab, spec: DutSpec[Any], folder: Path) -> Iterator[Ports]:
        _require_switch()
        names = [port.name for port in lab.graph.ports_of(spec.node)]
        sockets = {name: folder / name for name in names}
        cpus = (spec.options.switch or _spare(spec.cpus))[:2]
        with contextlib.ExitStack() as stack:
            memory = ["--no-huge"]
            with contextlib.suppress(MachineError):
                stack.enter_context(lab.journal.held(reservation(MEMORY, keys="dut")))
                memory = ["--in-memory"]
            work, log = folder / "switch", folder / "switch.log"
            work.mkdir()
            command = [*_command(lab, sockets, cpus, spec.options.iommu), *memory]
            command += ["--", "--auto-start", "--no-flush-rx", f"--nb-cores={len(cpus)}"]
            command += ["--port-topology=paired", f"--total-num-mbufs={BUFFERS}"]
            running = lab.host(spec.node).start(
                ["sh", "-c", _START, "switch", str(work), str(log), *command]
            )
            stack.callback(running.close)
            deadline = time.monotonic() + READY_SECONDS
            while not all(path.is_socket() for path in sockets.values()):
                if running.ended or time.monotonic() > deadline:
                    said = " / ".join(log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:])
                    raise MachineError(f"the switch {SWITCH} did not start: {said}")
                time.sleep(0.02)
            yield Ports(
                sockets=list(sockets.values()),
                facts={"switch": {"command": command, "cpus": list(cpus)}},
            )


def _command(
    lab: Lab, sockets: Mapping[str, Path], cpus: Sequence[int], iommu: bool
) -> Iterator[str]:
    """The switch and its ports: a link and the guest's end of it, one after the other."""
    places = enumerate([cpus[0], *cpus])
    yield from (require_program(SWITCH, REMEDY), "-v", "--no-pci", "--no-telemetry")
    yield from ("--no-shconf", "--file-prefix", f"tt-{lab.journal.identity}-switch")
    yield from ("-m", str(MEMORY // 2**20))
    yield from ("--lcores", ",".join(f"{number}@{cpu}" for number, cpu in places))
    for number, (name, path) in enumerate(sockets.items()):
        yield from ("--vdev", f"net_af_packet{number},iface={name},framecnt={FRAMES}")
        yield from ("--vdev", f"net_vhost{number},iface={path},iommu-support={int(iommu)}")


def _spare(cpus: Sequence[int]) -> tuple[int, ...]:
    others = os.sched_getaffinity(0) - set(cpus)
    return (max(others or cpus),)


def _require_switch() -> None:
    require_program(SWITCH, REMEDY)
    require_drivers(LocalHost(), DRIVERS)

"""`vm`: the DuT is a virtual machine with a kernel of its own, under QEMU and libvirt.

```
namespace tt-ID-tap                    guest
    tt-a1 (tap device) ═══ virtio ═══ tt-in
                                         │ forwarder
    tt-b0 (tap device) ═══ virtio ═══ tt-out
```

The ends of the lab's links are tap devices that QEMU holds: a stamp is taken right where a packet
enters and leaves the virtual machine, and no link or namespace lies in between. Network cards that
the experiment names are passed through instead, by vfio-pci, and so are virtual functions.

Beside other nodes it has a namespace of its own, in which links end as at any node. The kernel
redirects packets between these ends and the tap devices (`Junction`):

```
dut1 ══ tt-in ─▶ tt-vm1 (tap device) ═══ virtio ═══ tt-in
dut3 ══ tt-out ◀─ tt-vm2 (tap device) ═══ virtio ═══ tt-out
```

The guest has one virtual CPU more than the DuT has CPUs. The first is for its own housekeeping,
on CPUs of this machine that are neither the DuT's nor the generator's, if there are any; the
others are pinned to the DuT's CPUs, one to one, and take its interrupts and its work. So guests
differ in nothing but the kernel and its command line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from tailtap.base.errors import Check, Findings, InputError, MachineError
from tailtap.base.files import read_text
from tailtap.base.schema import Size
from tailtap.base.units import list_cpus, ranges
from tailtap.host.changes.huge_pages import Pages, Reservation, require_possible, reservation
from tailtap.host.changes.resource import Resource
from tailtap.host.containers.domains import FOLDERS, DomainFolder
from tailtap.host.cpu.cpus import Numa
from tailtap.host.facts import machine as machine_facts
from tailtap.host.facts.needs import missing_capabilities
from tailtap.host.knobs.tree import Tree
from tailtap.host.net.pci import VfioCard, address_of
from tailtap.host.tuning.apply import tuning
from tailtap.lab.platforms import boot
from tailtap.lab.platforms.boot import (
    NAMES,
    KernelOptions,
    check_host_kernel,
    check_kernel,
    require_boot_of_host,
    running_kernel,
)
from tailtap.lab.platforms.dut import Dut, DutSpec
from tailtap.lab.platforms.vm import guest_line, kernels
from tailtap.lab.platforms.vm.domain import Design, Domain
from tailtap.lab.platforms.vm.guest_line import Line, line_of, purpose_of
from tailtap.lab.platforms.vm.kernels import Accelerator, accelerator, foreseen
from tailtap.lab.topology.graph import NodeKind, Port
from tailtap.lab.topology.lab import Lab, Passed
from tailtap.lab.topology.numbering import numbered
from tailtap.records.machine import BUILT_IN, Traits
from tailtap.records.record import Notice, as_json
from tailtap.remote.guest import GuestHost
from tailtap.remote.local import PACKAGES, LocalHost, require_program

DEFAULT_MEMORY = 1 << 30
LEAST_MEMORY = 256 << 20
"""Debian's kernel and its page tables, the initramfs, and room for a forwarder."""
OWN_ADDRESS = "52:54:00:74:74:{:02x}"
"""By its address the guest knows which port is which. Those of ports between nodes have a number of
the graph, the others this one, which begins with QEMU's 52:54:00."""
BOOT_SECONDS = 30.0
PATIENCE = 10.0
"""How many times longer things may take when QEMU emulates the CPU (TCG)."""
PROGRAMS = ("qemu-system-x86_64", "virt-qemu-run", "depmod", "cpio")


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise ValueError(f"{path!r}: write the absolute path of a disk")
    return path


HOST_KERNEL, HOST_BOOT = "host_kernel", "host_boot"


class VmOptions(KernelOptions):
    """The memory of a virtual machine; its kernel and what that boots with are in the base."""

    host_kernel: Annotated[str, AfterValidator(check_kernel)] | None = Field(
        default=None,
        description="The kernel of the machine that the virtual machine is on, as `kernel` names "
        "it: a testbed's host boots it, and elsewhere a run on another kernel fails.",
        examples=["rt"],
    )
    host_boot: Annotated[str, AfterValidator(boot.check_boot)] = Field(
        default="",
        description="Parameters of that kernel's command line, as `boot` has them; {cpus} stands "
        "for `cpus` as the machine numbers them.",
        examples=["isolcpus={cpus} intel_pstate=disable intel_iommu=on"],
    )
    memory: Size | None = Field(
        default=None,
        description="The memory of the virtual machine, 256 MiB or more. 1 GiB is the default.",
        examples=["2 GiB"],
    )
    image: Annotated[str, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="The absolute path of a disk of your own, raw or qcow2, with the device's "
        "files; it is not written to. Forwarders external and server run their "
        "command in it; its boot loader, kernel and services are not started.",
        examples=["/srv/firewall.qcow2"],
    )
    huge_pages: bool = Field(
        default=False,
        description="Whether that memory is on huge pages, which are reserved for the run.",
        examples=[True],
    )
    iommu: bool = Field(
        default=False,
        description="Whether the guest's ports are behind an IOMMU (QEMU's intel-iommu, on its "
        "machine q35): programs of the guest drive them by vfio-pci then.",
        examples=[True],
    )


class Vm:
    """QEMU with virtio ports; under KVM where guests run, else QEMU emulates the CPU (TCG)."""

    summary = "A virtual machine with a kernel of its own, under QEMU and libvirt."
    documentation = (
        "It has a virtual CPU pinned to each of dut.cpus, and one for itself. Its ports "
        "are virtio devices, or network cards passed through. Without KVM, QEMU emulates "
        "the CPU (TCG): such latencies mean nothing (warning `emulated`). Needs the "
        "Debian packages qemu-system-x86, libvirt-daemon, kmod and cpio; the first run "
        "downloads a kernel."
    )
    traits: Traits = BUILT_IN["vm"]
    ports_in: NodeKind | None = "guest"
    Options: type[BaseModel] = VmOptions

    def diagnose(self) -> Iterator[Check]:
        area, name = "platforms", "vm"
        missing = [PACKAGES.get(one, one) for one in PROGRAMS if shutil.which(one) is None]
        if missing:
            remedy = f"apt-get install --no-install-recommends {' '.join(missing)}"
            yield Check(area, name, "missing", "QEMU and libvirt are not complete", remedy)
            return
        yield Check(area, name, "ok", "every program is there")
        if find_spec("_lzma") is None:
            found = (
                "this Python is compiled without lzma: kernels with modules in .ko.xz do not boot"
            )
            remedy = "compile Python again after `apt-get install liblzma-dev`"
            yield Check(area, "vm: packed modules", "missing", found, remedy)
        name = "vm: KVM"
        package = kernels.PACKAGES[kernels.DEFAULT]
        if missing_capabilities():
            yield Check(area, name, "untested", "only root can try it", "run it with sudo")
            return
        if not kernels.is_unpacked(package):
            remedy = "the first run with dut.platform: vm downloads one; look here again after it"
            yield Check(area, name, "untested", f"{package} is not unpacked yet", remedy)
            return
        try:
            speed = accelerator(kernels.kernel(kernels.DEFAULT))
        except MachineError as error:
            remedy = "a kernel with KVM and a CPU that has it"
            yield Check(area, name, "missing", str(error), remedy)
            return
        if speed.emulated:
            remedy = "take a machine on which guests boot: here QEMU emulates their CPU (TCG)"
            yield Check(area, name, "poor", speed.reason, remedy)
        else:
            yield Check(area, name, "ok", speed.reason)

    def foresee(
        self,
        spec: DutSpec[VmOptions],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        for program in PROGRAMS:
            findings.ask(require_program, program)
        findings.ask(check_host_kernel, spec.options.host_kernel, key=HOST_KERNEL)
        findings.ask(require_boot_of_host, spec, HOST_BOOT)
        memory = findings.ask(_memory, spec)
        if spec.options.image is not None:
            findings.ask(guest_line.form, Path(spec.options.image))
        name = spec.options.kernel or kernels.DEFAULT
        lacking = kernels.to_download(name)
        if lacking:
            findings.notes.append(
                f"dut.platform: the first run downloads {' and '.join(lacking)} by apt"
            )
        if kernels.PACKAGES.get(name) not in lacking:
            kernel = findings.ask(kernels.kernel, name)
            left = {} if kernel is None else line_of(spec, kernel).left
            findings.notes += [
                f"dut.tuning: the guest's line lacks {knob}: {why}" for knob, why in left.items()
            ]
        for card in cards:
            findings.ask(address_of, card)
        if spec.options.huge_pages and memory is not None:
            nodes = _nodes(spec.cpus)
            pages = Pages.smallest(node=nodes[0] if nodes else None)
            findings.ask(require_possible, memory, pages, keys="dut")
        speed = foreseen()
        if speed is None:
            findings.notes.append(
                "the first run finds out whether guests run under KVM here (so does `tailtap "
                "doctor`): if not, QEMU emulates their CPU (TCG), and latency says nothing"
            )
        else:
            findings.notes += [warning.message for warning in _warnings(speed)]

    def machine(self, spec: DutSpec[VmOptions]) -> Mapping[str, Any]:
        kernel = check_host_kernel(spec.options.host_kernel, key=HOST_KERNEL)
        return {HOST_KERNEL: kernel, HOST_BOOT: require_boot_of_host(spec, HOST_BOOT)}

    def resources(
        self, name: str, spec: DutSpec[VmOptions], cards: Sequence[str]
    ) -> Sequence[Resource]:
        """Its memory on huge pages, its cards and the folder of its files.

        The first run with a kernel downloads that.
        """
        memory = _memory(spec)
        passed = [VfioCard.of(card) for card in cards]
        accelerator(kernels.kernel(spec.options.kernel or kernels.DEFAULT))
        nodes = _nodes(spec.cpus)
        pages = []
        if spec.options.huge_pages:
            pages.append(reservation(memory, keys="dut", node=nodes[0] if nodes else None))
        return [*pages, *passed, DomainFolder(name)]

    def memory(self, spec: DutSpec[VmOptions]) -> int:
        return 0 if spec.options.huge_pages else _memory_size(spec)

    def start(self, lab: Lab, specs: Sequence[DutSpec[VmOptions]]) -> Sequence[Dut]:
        booting = [lab.keep(_running(lab, spec, self.ports)) for spec in specs]
        return [_up(lab, one) for one in booting]

    @contextlib.contextmanager
    def ports(self, lab: Lab, spec: DutSpec[Any], folder: Path) -> Iterator[Ports]:
        """What its ports are, before it boots. `folder` is for files."""
        yield Ports(devices=lab.tap_devices(spec.node))


@dataclass(frozen=True)
class Ports:
    """What the ports of a virtual machine are on this machine, where they are no cards."""

    devices: tuple[LocalHost, Mapping[Port, str]] = (LocalHost(), {})
    """Tap devices, and where they are."""
    sockets: Sequence[Path] = ()
    """Sockets of a switch, of all ports in their order."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """More of `platform` in ``run.json``."""


MakePorts = Callable[[Lab, DutSpec[Any], Path], contextlib.AbstractContextManager[Ports]]


@dataclass(frozen=True)
class _Guest:
    """A virtual machine that runs, and may still boot."""

    spec: DutSpec[VmOptions]
    kernel: kernels.Kernel
    speed: Accelerator
    line: Line
    domain: Domain
    host: GuestHost
    facts: Mapping[str, Any]

    def wait(self) -> None:
        """Return when its agent answers, all its virtual CPUs where they belong.

        Raises `MachineError`.
        """
        limit = BOOT_SECONDS * _patience(self.speed)
        try:
            self.host.wait_until_up(time.monotonic() + limit)
        except (TimeoutError, MachineError) as error:
            why = "did not boot" if isinstance(error, TimeoutError) else "ended while it booted"
            raise MachineError(
                f"the virtual machine with {self.kernel.release} {why} (limit {limit:g} s): check "
                f"dut.boot and dut.kernel; it said: {self.domain.failure() or 'nothing'}"
            ) from error
        _pin(self.domain)


def _up(lab: Lab, one: _Guest) -> Dut:
    """The node that a guest is, once it is up and what was asked for. Raises `MachineError`."""
    spec, kernel, speed, line = one.spec, one.kernel, one.speed, one.line
    domain, guest, purpose = one.domain, one.host, purpose_of(one.spec)
    one.wait()
    own = purpose.cpus
    with guest_line.recorded(guest, kernel, purpose) as tree:
        facts = {**_facts(domain, tree, speed), **lab.facts(), **one.facts}
        _check_facts(spec, facts, own)
        booted = boot.host_boot(tree.root)
        judged = guest_line.judged(tree, purpose)
    full = "a kernel keeps 2047 characters of its command line: shorten dut.boot"
    boot.require(line.asked, booted, "the guest", full)
    guest_line.require_effect(judged, line)
    facts["boot"] = asdict(booted)
    facts["tuning"] = as_json(tuning(judged, judged.rows, left=line.left))
    files = None
    if spec.options.image is not None:
        files, device = guest_line.mounted(guest, Path(spec.options.image))
        facts["disk"] = {"file": spec.options.image, "root": device}
    return Dut(
        guest,
        lab.passes(spec.node),
        own,
        facts,
        patience=_patience(speed),
        warnings=_warnings(speed),
        threads=[thread for _, thread in _virtual_cpus(domain)],
        node=spec.node,
        own=files,
    )


@contextlib.contextmanager
def _running(lab: Lab, spec: DutSpec[VmOptions], made_ports: MakePorts) -> Iterator[_Guest]:
    name = lab.name_of(spec.node)
    folder = FOLDERS / name
    kernel = kernels.kernel(spec.options.kernel or kernels.DEFAULT)
    speed, line = accelerator(kernel), line_of(spec, kernel)
    with contextlib.ExitStack() as stack:
        nodes = _nodes(spec.cpus)
        made = lab.resources(spec.node)
        cards = [one for one in made if isinstance(one, VfioCard)]
        passed: list[VfioCard | Passed] = [*cards, *lab.functions(spec.node)]
        pages = [one for one in made if isinstance(one, Reservation)]
        ports = lab.graph.ports_of(spec.node)
        own_ports = stack.enter_context(made_ports(lab, spec, folder))
        where, devices = own_ports.devices
        macs = dict(zip(ports, [card.mac for card in cards] or _addresses(lab, ports), strict=True))
        image, own_disk = folder / "initramfs", spec.options.image
        design = Design(
            name=name,
            kernel=kernel.image,
            initramfs=image,
            command_line=f"{line.text} intel_iommu=on" if spec.options.iommu else line.text,
            memory=_memory_size(spec),
            kvm=not speed.emulated,
            placement=_placement(spec.cpus),
            io_cpus=spec.cpus,
            # The reserved pages are on one node, others wherever the CPUs are.
            nodes=nodes[:1] if spec.options.huge_pages else nodes,
            links={device: macs[port] for port, device in devices.items()},
            sockets=dict(zip(own_ports.sockets, macs.values(), strict=False)),
            cards=[one.address for one in passed],
            huge_page_kib=pages[0].size_kib if pages else None,
            disk=None if own_disk is None else (Path(own_disk), guest_line.form(Path(own_disk))),
            iommu=spec.options.iommu,
        )
        domain = Domain(design, folder, where)
        own = list_cpus(purpose_of(spec).cpus)
        links = " ".join(f"{mac} {port.name}" for port, mac in macs.items())
        settings = {"links": links, "mtu": str(lab.graph.links[-1].mtu), "cpus": own}
        guest_line.write(image, kernel, settings, [one.alias for one in passed])
        stack.enter_context(domain)
        guest = GuestHost(name, domain.port, _patience(speed), domain.failure)
        stack.callback(guest.close)
        yield _Guest(spec, kernel, speed, line, domain, guest, own_ports.facts)


def _addresses(lab: Lab, ports: Sequence[Port]) -> list[str]:
    known = numbered(lab.graph)
    return [
        known[port].mac if port in known else OWN_ADDRESS.format(number)
        for number, port in enumerate(ports, 1)
    ]


def _placement(cpus: Sequence[int]) -> list[list[int]]:
    others = sorted(os.sched_getaffinity(0) - set(cpus)) or sorted(cpus)
    return [others, *([cpu] for cpu in cpus)]


def _nodes(cpus: Sequence[int]) -> list[int]:
    """The nodes that these CPUs belong to; empty on machines with one."""
    numa = Numa.of()
    return list(numa.of_cpus(cpus)) if len(numa.nodes) > 1 else []


def _pin(domain: Domain) -> None:
    """Pin emulated virtual CPUs, which libvirt cannot: to it they are threads like others."""
    if domain.design.kvm:
        return
    threads = domain.threads()
    for number, cpus in enumerate(domain.design.placement):
        thread = threads.get(f"CPU {number}/TCG")
        if thread is not None:
            _pin_thread(thread, cpus)
    _pin_thread(threads["qemu-system-x86"], domain.design.io_cpus)


def _pin_thread(thread: int, cpus: Sequence[int]) -> None:
    try:
        os.sched_setaffinity(thread, cpus)
    except OSError as error:
        group = (read_text(Path(f"/proc/{thread}/cgroup")) or "").rpartition("\n")[2]
        allowed = ranges(os.sched_getaffinity(thread))
        raise MachineError(
            f"cannot have a thread of QEMU on CPUs {ranges(cpus)}: {error.strerror}: it may run on "
            f"{allowed} (control group {group}): somebody else has these CPUs for himself"
        ) from error


def _facts(domain: Domain, tree: Tree, speed: Accelerator) -> dict[str, Any]:
    """What the guest and this machine's kernel say of it, not what was asked."""
    pinning = {
        name: ",".join(map(str, sorted(os.sched_getaffinity(thread))))
        for name, thread in _virtual_cpus(domain)
    }
    return {
        "name": domain.design.name,
        "accelerator": speed.kind,
        "accelerator_reason": speed.reason,
        "kernel": running_kernel(tree.root).facts(),
        "cpus_online": machine_facts.cpu_set("online", tree.root),
        "memory": machine_facts.memory("MemTotal", tree.root) or 0,
        "huge_pages": domain.on_huge_pages(),
        "passed_through": list(domain.design.cards),
        "interrupt_cpus": " ".join((tree.look(guest_line.INTERRUPTS) or "").splitlines()),
        "iommu": tree.exists(guest_line.IOMMU),
        "vcpu_pinning": pinning,
    }


def _virtual_cpus(domain: Domain) -> list[tuple[str, int]]:
    return [item for item in sorted(domain.threads().items()) if item[0].startswith("CPU ")]


def _check_facts(spec: DutSpec[VmOptions], facts: dict[str, Any], own: Sequence[int]) -> None:
    expected = [list_cpus(cpus) for cpus in _placement(spec.cpus)]
    found = list(facts["vcpu_pinning"].values())
    if found != expected:
        raise MachineError(f"the virtual CPUs should run on CPUs {expected}, but run on {found}")
    if spec.options.huge_pages and facts["huge_pages"] < facts["memory"]:
        raise MachineError(
            f"the guest's memory should be on huge pages, and {facts['huge_pages']} bytes of it are"
        )
    if facts["interrupt_cpus"] not in (list_cpus(own), f"{own[0]}-{own[-1]}"):
        raise MachineError(
            f"the ports' interrupts should go to the guest's CPUs {list_cpus(own)}, but go to "
            f"{facts['interrupt_cpus'] or 'none'}"
        )
    if spec.options.iommu and not facts["iommu"]:
        raise MachineError(
            "dut.iommu: the guest's kernel uses none: take one with CONFIG_INTEL_IOMMU"
        )
    kind, name = facts["kernel"]["kind"], spec.options.kernel
    if name in NAMES and name != kind:
        raise MachineError(
            f"dut.kernel: the guest should run {name}, but its kernel is {kind}: remove "
            f"{kernels.folder_of(kernels.PACKAGES[name])}, so that it is downloaded again"
        )


def _warnings(speed: Accelerator) -> list[Notice]:
    if not speed.emulated:
        return []
    return [
        Notice(
            "emulated",
            "QEMU emulates the virtual machine's CPU (TCG), so latency says nothing "
            f"about a virtual machine: KVM does not work here ({speed.reason})",
        )
    ]


def _patience(speed: Accelerator) -> float:
    return PATIENCE if speed.emulated else 1.0


def _memory(spec: DutSpec[VmOptions]) -> int:
    """The guest's memory in bytes. Raises `InputError` when it cannot be that."""
    memory = _memory_size(spec)
    if memory < LEAST_MEMORY:
        raise InputError(
            f"dut.memory of {memory >> 20} MiB is too little for a virtual machine: "
            f"give it {LEAST_MEMORY >> 20} MiB or more"
        )
    return memory


def _memory_size(spec: DutSpec[VmOptions]) -> int:
    return DEFAULT_MEMORY if spec.options.memory is None else spec.options.memory

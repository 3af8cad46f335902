"""`vm`: the DuT is a virtual machine with a kernel of its own, under QEMU and libvirt.

```
namespace tt-ID-tap                    guest
    tt-a1 (tap device) ═══ virtio ═══ tt-in
                                         │ forwarder
    tt-b0 (tap device) ═══ virtio ═══ tt-out
```

The ends of the lab's links are tap devices that QEMU holds: a stamp is taken right where a packet
enters and leaves the virtual machine, and no link or namespace lies in between. Network cards that
the experiment names are passed through instead, by vfio-pci.

The guest has one virtual CPU more than the DuT has CPUs. The first is for its own housekeeping,
on CPUs of this machine that are neither the DuT's nor the generator's, if there are any; the
others are pinned to the DuT's CPUs, one to one, and take its interrupts and its work. So guests
differ in nothing but the kernel and its command line.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from tailtap.errors import InputError, MachineError
from tailtap.findings import Findings
from tailtap.host.cards import handed_over
from tailtap.host.cpus import list_cpus
from tailtap.host.domains import FOLDERS, Domains
from tailtap.host.guest import GuestHost
from tailtap.host.huge_pages import Pages, require_possible, reserved
from tailtap.host.local import require_program
from tailtap.host.pci import address_of
from tailtap.platform import boot
from tailtap.platform.boot import Boot, cpus_or_none
from tailtap.platform.dut import Dut, Wanted
from tailtap.platform.kernel import NAMES, Kernel
from tailtap.platform.vm import initramfs, kernels
from tailtap.platform.vm.domain import PORTS, Design, Domain
from tailtap.platform.vm.kvm import Accelerator, accelerator, foreseen
from tailtap.topology.lab import DUT_EGRESS, DUT_INGRESS, FROM_DUT, TO_DUT, Cables, Lab

ROLE = "dut"
DEFAULT_MEMORY = 1 << 30
LEAST_MEMORY = 256 << 20
"""Debian's kernel and its page tables, the initramfs, and room for a forwarder."""
ADDRESSES = {TO_DUT: "52:54:00:74:74:01", FROM_DUT: "52:54:00:74:74:02"}
"""By these the guest knows which port is which; 52:54:00 is QEMU's."""
BOOT_SECONDS = 30.0
PATIENCE = 10.0
"""How many times longer things may take when software stands in for the CPU."""
ALWAYS = "console=ttyS0 quiet panic=-1 no_timer_check ipv6.disable=1 random.trust_cpu=on"
"""A guest says what goes wrong, ends when it crashes, relies on its timer, and sends no packets
of its own."""

PROGRAMS = ("qemu-system-x86_64", "virt-qemu-run", "depmod", "cpio")
"""What it calls on this machine."""
SHELL = "/run/busybox"
"""Where a guest keeps the shell that it booted with: it needs none of this machine's files."""
_TELL = f"""b={SHELL}
cd /proc/sys/kernel && $b cat osrelease version && $b cat /proc/cmdline
cd /sys/devices/system/cpu && $b cat online isolated && $b cat nohz_full || echo
$b sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo
for irq in $($b sed -n 's/^ *\\([0-9]*\\):.*virtio[0-9]*-[io][nu].*put.*/\\1/p' /proc/interrupts) \\
    $(cd /sys/class/net && $b ls tt-in/device/msi_irqs tt-out/device/msi_irqs 2> /dev/null \\
        | $b grep '^[0-9]*$')
do $b cat /proc/irq/$irq/smp_affinity_list; done | $b sort -u
"""


class Vm:
    """QEMU with virtio ports; KVM where guests run under it, software where they do not."""

    has_dut = True
    own_kernel = True
    uses: Set[str] = frozenset({"memory", "kernel", "boot", "huge_pages", "ports"})

    def foresee(
        self, wanted: Wanted, cables: Cables | None, programs: Sequence[str], findings: Findings
    ) -> None:
        """Find out whether a guest can be made, and what would run its instructions."""
        for program in PROGRAMS:
            findings.ask(require_program, program)
        memory = findings.ask(_memory, wanted)
        name = wanted.kernel or kernels.DEFAULT
        lacking = kernels.to_download(name)
        if lacking:
            findings.notes.append(
                f"dut.platform: the first run downloads {' and '.join(lacking)} by apt"
            )
        if kernels.PACKAGES.get(name) not in lacking:
            findings.ask(kernels.kernel, name)
        for card in () if cables is None else cables.dut:
            findings.ask(address_of, card)
        if wanted.huge_pages and memory is not None:
            nodes = _nodes(wanted.cpus)
            pages = Pages.smallest(node=nodes[0] if nodes else None)
            findings.ask(require_possible, memory, pages, keys="dut")
        speed = foreseen()
        if speed is None:
            findings.notes.append(
                "the first run finds out whether guests run under KVM here (`tailtap doctor` does, "
                "too): if not, software stands in for their CPU, which says nothing about latency"
            )
        else:
            findings.notes += [doubt["message"] for doubt in _warnings(speed)]

    def build(self, lab: Lab, wanted: Wanted) -> Dut:
        """Boot the guest and give its ports their names and interrupts. Raises `MachineError`."""
        memory = _memory(wanted)
        kernel = kernels.kernel(wanted.kernel or kernels.DEFAULT)
        speed = accelerator(kernel)
        if lab.cables is None:
            for link in (TO_DUT, FROM_DUT):
                lab.add_tap(lab.tap, link)
        else:
            lab.lend_to_taps(lab.cables)
        domain, guest = lab.keep(_booted(lab, wanted, kernel, memory, speed))
        own = _own_cpus(wanted)
        facts = {**_facts(domain, guest, speed), **lab.facts()}
        _check_facts(wanted, facts, own)
        return Dut(
            guest,
            DUT_INGRESS,
            DUT_EGRESS,
            own,
            wanted.both_ways,
            facts,
            patience=_patience(speed),
            warnings=_warnings(speed),
        )


@contextlib.contextmanager
def _booted(
    lab: Lab, wanted: Wanted, kernel: kernels.Kernel, memory: int, speed: Accelerator
) -> Iterator[tuple[Domain, GuestHost]]:
    """A machine whose agent answers, with all its vCPUs where they belong."""
    name = lab.name_of(ROLE)
    folder = FOLDERS / name
    lab.journal.add("domain", name)
    with contextlib.ExitStack() as stack:
        nodes = _nodes(wanted.cpus)
        pages = None
        if wanted.huge_pages:
            node = nodes[0] if nodes else None
            pages = stack.enter_context(reserved(memory, lab.journal, keys="dut", node=node))
        passed = [
            stack.enter_context(handed_over(card, lab.journal))
            for card in (() if lab.cables is None else lab.cables.dut)
        ]
        stack.callback(Domains().remove, name)
        folder.mkdir(mode=0o700, parents=True)
        image = folder / "initramfs"
        design = Design(
            name=name,
            kernel=kernel.image,
            initramfs=image,
            command_line=_command_line(wanted),
            memory=memory,
            kvm=not speed.emulated,
            placement=_placement(wanted.cpus),
            io_cpus=wanted.cpus,
            # The reserved pages are on one node, others wherever the CPUs are.
            nodes=nodes[:1] if wanted.huge_pages else nodes,
            links={} if passed else ADDRESSES,
            cards=[card.address for card in passed],
            huge_page_kib=None if pages is None else pages.size_kib,
        )
        domain = Domain(design, folder, lab.tap)
        own = list_cpus(_own_cpus(wanted))
        macs = [card.mac for card in passed] or list(ADDRESSES.values())
        links = f"{macs[0]} {DUT_INGRESS} {macs[1]} {DUT_EGRESS}"
        settings = {"links": links, "mtu": str(lab.mtu), "cpus": own}
        initramfs.write(image, kernel, PORTS, settings, [card.alias for card in passed])
        stack.enter_context(domain)
        guest = GuestHost(name, domain.ports, _patience(speed))
        stack.callback(guest.close)
        limit = BOOT_SECONDS * _patience(speed)
        try:
            guest.wait_until_up(time.monotonic() + limit)
        except (TimeoutError, MachineError) as error:
            why = "did not boot" if isinstance(error, TimeoutError) else "ended while it booted"
            raise MachineError(
                f"the virtual machine with {kernel.release} {why} (limit {limit:g} s): check "
                f"dut.boot and dut.kernel; it said: {domain.failure()}"
            ) from error
        _pin(domain)
        yield domain, guest


def _own_cpus(wanted: Wanted) -> tuple[int, ...]:
    """The DuT's CPUs as the guest numbers them."""
    return tuple(range(1, len(wanted.cpus) + 1))


def _boot(wanted: Wanted) -> str:
    return boot.filled_in(wanted.boot, _own_cpus(wanted))


def _command_line(wanted: Wanted) -> str:
    return f"{ALWAYS} {_boot(wanted)}".strip()


def _placement(cpus: Sequence[int]) -> list[list[int]]:
    others = sorted(os.sched_getaffinity(0) - set(cpus)) or sorted(cpus)
    return [others, *([cpu] for cpu in cpus)]


def _nodes(cpus: Sequence[int]) -> list[int]:
    """The nodes that these CPUs belong to; empty on machines with one."""
    folders = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))
    if len(folders) < 2:
        return []
    near = [path for path in folders if any((path / f"cpu{cpu}").exists() for cpu in cpus)]
    return sorted(int(path.name.removeprefix("node")) for path in near)


def _pin(domain: Domain) -> None:
    """Pin emulated virtual CPUs, which libvirt cannot: to it they are threads like others."""
    if domain.design.kvm:
        return
    threads = domain.threads()
    for number, cpus in enumerate(domain.design.placement):
        thread = threads.get(f"CPU {number}/TCG")
        if thread is not None:
            os.sched_setaffinity(thread, cpus)
    os.sched_setaffinity(threads["qemu-system-x86"], domain.design.io_cpus)


def _facts(domain: Domain, guest: GuestHost, speed: Accelerator) -> dict[str, Any]:
    """What the guest and this machine's kernel say of it, not what was asked."""
    said = guest.run([SHELL, "sh", "-c", _TELL]).stdout.splitlines()
    if len(said) < 8:
        raise MachineError(f"the guest does not tell what it is: {' '.join(said)}")
    release, version, command_line, online, isolated, nohz, memory, *interrupts = said
    kernel = Kernel(release, version, "PREEMPT_RT" in version)
    booted = Boot(command_line, cpus_or_none(nohz), cpus_or_none(isolated))
    pinning = {
        name: ",".join(map(str, sorted(os.sched_getaffinity(thread))))
        for name, thread in sorted(domain.threads().items())
        if name.startswith("CPU ")
    }
    return {
        "name": domain.design.name,
        "accelerator": speed.kind,
        "accelerator_reason": speed.reason,
        "kernel": kernel.facts(),
        "boot": booted.facts(),
        "cpus_online": online,
        "memory": int(memory) * 1024,
        "huge_pages": domain.on_huge_pages(),
        "passed_through": list(domain.design.cards),
        "interrupt_cpus": " ".join(interrupts),
        "vcpu_pinning": pinning,
    }


def _check_facts(wanted: Wanted, facts: dict[str, Any], own: Sequence[int]) -> None:
    """Raises `MachineError` when the guest is not what was asked for."""
    expected = [list_cpus(cpus) for cpus in _placement(wanted.cpus)]
    found = list(facts["vcpu_pinning"].values())
    if found != expected:
        raise MachineError(f"the virtual CPUs should run on CPUs {expected}, but run on {found}")
    if wanted.huge_pages and facts["huge_pages"] < facts["memory"]:
        raise MachineError(
            f"the guest's memory should be on huge pages, and {facts['huge_pages']} bytes of it are"
        )
    if facts["interrupt_cpus"] not in (list_cpus(own), f"{own[0]}-{own[-1]}"):
        raise MachineError(
            f"the ports' interrupts should go to the guest's CPUs {list_cpus(own)}, but go to "
            f"{facts['interrupt_cpus'] or 'none'}"
        )
    kind = facts["kernel"]["kind"]
    if wanted.kernel in NAMES and wanted.kernel != kind:
        raise MachineError(
            f"dut.kernel: the guest should run {wanted.kernel}, but its kernel is {kind}: remove "
            f"{kernels.folder_of(kernels.PACKAGES[wanted.kernel])}, so that it is downloaded again"
        )
    full = "a kernel keeps 2047 characters of its command line: shorten dut.boot"
    boot.require(_boot(wanted), Boot(**facts["boot"]), "the guest", full)


def _warnings(speed: Accelerator) -> list[dict[str, str]]:
    if not speed.emulated:
        return []
    return [
        {
            "code": "emulated",
            "message": "software stands in for the virtual machine's CPU, so that this is not a "
            f"statement about latency: KVM does not work here ({speed.reason})",
        }
    ]


def _patience(speed: Accelerator) -> float:
    return PATIENCE if speed.emulated else 1.0


def _memory(wanted: Wanted) -> int:
    """The guest's memory in bytes. Raises `InputError`, `MachineError` when it cannot be that."""
    memory = DEFAULT_MEMORY if wanted.memory is None else wanted.memory
    if memory < LEAST_MEMORY:
        raise InputError(
            f"dut.memory of {memory >> 20} MiB is too little for a virtual machine: "
            f"give it {LEAST_MEMORY >> 20} MiB or more"
        )
    _require_free(memory)
    return memory


def _require_free(memory: int) -> None:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            if memory > available:
                raise MachineError(
                    f"dut.memory of {memory >> 20} MiB is more than the {available >> 20} MiB "
                    "that this machine has left: ask for less"
                )

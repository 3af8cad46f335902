"""A machine with real network cards, as far as its kernel can tell: QEMU emulates them.

Four cards on PCI buses behind an IOMMU, and two cables: between eth0 and eth1, eth2 and eth3,
unless a test joins others. With two more, eth4 and eth5, three cards can be on one cable: all of
them see what is on it, as behind a splitter. eth1 and eth2 have one queue and are driven by e1000e,
as eth4 and eth5 are; eth0 and eth3 have a queue for each CPU and are driven by igb. eth1 is on NUMA
node 0, eth2 and eth3 are on node 1, and the others do not say it. CPUs 0 and 1 are of node 0, CPU 2
is of node 1.

Software runs the machine's instructions, so that it needs no KVM and has no sense of time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from children import child

from tailtap.base.errors import MachineError
from tailtap.lab.platforms.vm import guest_line
from tailtap.lab.platforms.vm.domain import PORT
from tailtap.lab.platforms.vm.kernels import kernel
from tailtap.remote import CommandFailed, Completed
from tailtap.remote.guest import GuestHost

EMULATOR = Path(sys.prefix, "emulator/qemu-system-x86_64")
"""A QEMU that knows igb; `make emulator` puts it there."""
PATIENCE = 20.0
BOOT_SECONDS = 60.0
"""How long it may take to boot; 15 s are usual."""
BOOTS = 4
"""How often it is booted until it comes up. About every fifth time the emulator loses a timer's
interrupt of a CPU, which the guest's kernel then reports (`rcu_preempt kthread timer wakeup didn't
happen`); it never gets up."""
ALIVE_SECONDS = 1.0
"""How long a CPU may take to sleep for 0.1 s, `PATIENCE` times; without a timer it never wakes."""
CPUS = 3
COMMAND_LINE = (
    "console=ttyS0 quiet panic=-1 no_timer_check ipv6.disable=1 random.trust_cpu=on nohz=off "
    "highres=off iomem=relaxed"
)
"""It ticks: the emulator loses a timer's interrupt now and then. A CPU that sets its timer anew
each time sleeps for ever then; one that ticks sleeps a tick longer. And programs may read registers
of cards that drivers have."""
MACHINE = ["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "3G"]
MACHINE += ["-device", "intel-iommu"]
NODES = {0: ("0-1", "2G"), 1: ("2", "1G")}
"""The CPUs and the memory of each NUMA node."""
QUIET = ["-nodefaults", "-no-reboot", "-display", "none"]
FILES = ["-fsdev", "local,id=files,path=/,security_model=passthrough,readonly=on,multidevs=remap"]
FILES += ["-device", "virtio-9p-pci,fsdev=files,mount_tag=tailtap"]
CARDS = ("igb", "e1000e", "e1000e", "igb", "e1000e", "e1000e")
NEIGHBOURS = (0, 0, 1, 1)
"""The cable of each card."""
SPLIT = (0, 0, 1, 1, 0, 1)
"""The same where eth4 and eth5 are behind splitters."""
OF_A_KIND = (0, 1, 1, 0)
"""Cables between eth0 and eth3, and between eth1 and eth2."""
BOTH_ENDS = (0, 1, 2, 0, 1, 2)
"""Between eth0 and eth3 as well; eth1 and eth2 are joined to eth4 and eth5, which are driven by igb
here.
"""
NEAR = {1: 0, 2: 1, 3: 1}
"""The NUMA node of a card's bus; the first bus belongs to none."""
NAMES = """
number() { read -r mac < "$1/address"; echo $((0x${mac##*:})); }
for step in card eth; do
    for card in /sys/class/net/*; do
        [ ! -e "$card/device" ] || ip link set dev "${card##*/}" name "$step$(number "$card")"
    done
done
for state in up down; do
    for card in /sys/class/net/eth*; do ip link set dev "${card##*/}" $state; done
done
"""
"""Drivers find cards in the order of their buses. A card has its interrupts once it was up."""


class Emulated(GuestHost):
    """Once a command had no answer, there is none: what comes later fails at once."""

    hangs = False

    def run(self, command: Sequence[str], **how: Any) -> Completed:
        """As that of any guest."""
        if self.hangs:
            raise CommandFailed(command, "an earlier command had no answer")
        try:
            return super().run(command, **how)
        except CommandFailed as error:
            self.hangs = isinstance(error.__cause__, TimeoutError)
            raise


def _nodes() -> Iterator[str]:
    for node, (cpus, memory) in NODES.items():
        yield from ("-object", f"memory-backend-ram,id=memory{node},size={memory}")
        first, _, last = cpus.partition("-")
        owned = f"cpus={first}-{last or first}"
        yield from ("-numa", f"node,nodeid={node},{owned},memdev=memory{node}")
        bus = f"bus=pcie.0,bus_nr={64 * (node + 1)}"
        yield from ("-device", f"pxb-pcie,id=bus{node},{bus},numa_node={node}")


def _cards(cables: Sequence[int]) -> Iterator[str]:
    kinds = (*CARDS[:4], "igb", "igb") if cables == BOTH_ENDS else CARDS
    for number, (kind, cable) in enumerate(zip(kinds, cables, strict=False)):
        yield from ("-netdev", f"hubport,id=cable{number},hubid={cable}")
        bus = f"bus{NEAR[number]}" if number in NEAR else "pcie.0"
        # igb keeps places on its bus for virtual functions.
        if number in NEAR or kind == "igb":
            slot = f"id=slot{number},bus={bus},chassis={number}"
            yield from ("-device", f"pcie-root-port,{slot}")
            bus = f"slot{number}"
        mac = f"52:54:00:74:75:0{number}"
        yield from ("-device", f"{kind},netdev=cable{number},mac={mac},bus={bus}")


def _socket(folder: Path) -> Iterator[str]:
    yield from ("-device", "virtio-serial-pci,max_ports=2")
    yield from ("-chardev", f"socket,id=port,path={folder / 'port'},server=on,wait=off")
    yield from ("-device", f"virtserialport,chardev=port,name={PORT}")


@contextlib.contextmanager
def machine_with_cards(
    folder: Path,
    cables: Sequence[int] = NEIGHBOURS,
    image: str = "vanilla",
    *,
    iommu: bool = True,
) -> Iterator[GuestHost]:
    """It runs commands, and sees this machine's files, read-only under an overlay; `image` is its
    kernel as `dut.kernel` names it, which uses the `iommu` or not.
    """
    words = [*_nodes(), *_cards(cables), "-smp", str(CPUS)]
    with emulated_machine(folder, words, NAMES, CPUS, image, iommu=iommu) as guest:
        yield guest


@contextlib.contextmanager
def emulated_machine(
    folder: Path,
    words: Sequence[str],
    set_up: str,
    cpus: int,
    image: str = "vanilla",
    *,
    iommu: bool = True,
    beside: Sequence[str] = (),
) -> Iterator[GuestHost]:
    """One with so many CPUs and what the `words` say to QEMU, once it is `set_up` by a shell.

    The command `beside` starts another one elsewhere.
    """
    if not EMULATOR.exists():
        pytest.skip("no emulator of igb cards is here: run `make emulator`")
    debian = kernel(image)
    for boot in range(1, BOOTS + 1):
        place = folder / str(boot)
        place.mkdir()
        initramfs = place / "initramfs"
        guest_line.write(initramfs, debian, {"links": "", "mtu": "1500", "cpus": "0"})
        # Programs in it have their time limits: tests beside it wait for it, not it for them.
        command = [*beside, "setpriv", "--pdeathsig", "KILL", "--", "nice", "-n", "-10"]
        command += [str(EMULATOR), *MACHINE, *QUIET, *FILES, *_socket(place), *words]
        command += ["-kernel", str(debian.image), "-initrd", str(initramfs)]
        command += ["-append", f"{COMMAND_LINE} intel_iommu={'on' if iommu else 'off'}"]
        command += ["-serial", f"file:{place / 'console.log'}"]
        with contextlib.ExitStack() as stack:
            try:
                guest = stack.enter_context(_booted(place, command, set_up, cpus))
            except (TimeoutError, MachineError):
                if boot == BOOTS:
                    raise
                continue
            yield guest
            return


@contextlib.contextmanager
def _booted(folder: Path, command: Sequence[str], set_up: str, cpus: int) -> Iterator[GuestHost]:
    """Such a machine whose CPUs all have their timers."""
    with (
        (folder / "qemu.log").open("wb") as log,
        child(command, stdout=log, stderr=log) as running,
    ):
        deadline = time.monotonic() + BOOT_SECONDS
        while not (folder / "port").exists():
            assert running.poll() is None, (folder / "qemu.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        guest = Emulated("cards", folder / "port", PATIENCE)
        try:
            guest.wait_until_up(deadline)
            for cpu in range(cpus):
                guest.run(["taskset", "-c", str(cpu), "sleep", "0.1"], seconds=ALIVE_SECONDS)
            guest.run(["modprobe", "--all", "e1000e", "igb", "vfio-pci"])
            guest.run(["sh", "-ec", set_up])
            yield guest
        finally:
            guest.close()

"""A machine with real network cards, as far as its kernel can tell: QEMU emulates them.

Four cards on a PCI bus behind an IOMMU, two cables: between eth0 and eth1, and eth2 and eth3.
Software runs the machine's instructions, so that it needs no KVM and has no sense of time.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tailtap.platform.vm import initramfs
from tailtap.platform.vm.domain import PORT
from tailtap.platform.vm.kernels import kernel
from tailtap.stations.guest import GuestHost

PATIENCE = 20.0
BOOT_SECONDS = 300.0
CPUS = 3
COMMAND_LINE = (
    "console=ttyS0 quiet panic=-1 no_timer_check ipv6.disable=1 random.trust_cpu=on intel_iommu=on"
)
MACHINE = ["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "3G"]
MACHINE += ["-smp", str(CPUS), "-device", "intel-iommu"]
QUIET = ["-nodefaults", "-no-reboot", "-display", "none"]
FILES = ["-fsdev", "local,id=files,path=/,security_model=passthrough,readonly=on,multidevs=remap"]
FILES += ["-device", "virtio-9p-pci,fsdev=files,mount_tag=tailtap"]


def _cards() -> Iterator[str]:
    for number in range(4):
        yield from ("-netdev", f"hubport,id=cable{number},hubid={number // 2}")
        yield from ("-device", f"e1000e,netdev=cable{number},mac=52:54:00:74:75:0{number}")


def _socket(folder: Path) -> Iterator[str]:
    yield from ("-device", "virtio-serial-pci,max_ports=2")
    yield from ("-chardev", f"socket,id=port,path={folder / 'port'},server=on,wait=off")
    yield from ("-device", f"virtserialport,chardev=port,name={PORT}")


@contextlib.contextmanager
def machine_with_cards(folder: Path) -> Iterator[GuestHost]:
    """It runs commands, and sees this machine's files, read-only under an overlay."""
    debian = kernel("vanilla")
    image, console = folder / "initramfs", folder / "console.log"
    initramfs.write(image, debian, {"links": "", "mtu": "1500", "cpus": "0"})
    # Programs in it have their time limits: tests beside it wait for it, not it for them.
    command = ["setpriv", "--pdeathsig", "KILL", "--", "nice", "-n", "-10", "qemu-system-x86_64"]
    command += [*MACHINE, *QUIET, *FILES, *_cards(), *_socket(folder)]
    command += ["-kernel", str(debian.image), "-initrd", str(image), "-append", COMMAND_LINE]
    command += ["-serial", f"file:{console}"]
    with (folder / "qemu.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + BOOT_SECONDS
        while not (folder / "port").exists():
            assert running.poll() is None, (folder / "qemu.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        guest = GuestHost("cards", folder / "port", PATIENCE)
        try:
            guest.wait_until_up(deadline)
            guest.run(["modprobe", "--all", "e1000e", "vfio-pci"])
            yield guest
        finally:
            guest.close()
    finally:
        running.kill()
        running.wait()

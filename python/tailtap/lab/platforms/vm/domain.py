"""A virtual machine as libvirt knows it, run by ``virt-qemu-run``.

That program is libvirt's QEMU driver without a daemon: it needs no service, touches no domain of
others, keeps all its files in one folder, and takes the machine down with it when it ends, also
when tailtap is killed.
"""

from __future__ import annotations

import grp
import pwd
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from tailtap.base.errors import MachineError
from tailtap.base.files import make_link, read_text, write_text
from tailtap.base.proc import status
from tailtap.base.units import list_cpus
from tailtap.host.containers.domains import threads_of
from tailtap.lab.platforms.vm.kernels import CACHE
from tailtap.remote.local import LocalHost, Process, require_program

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
"""The names of what libvirt hands to QEMU as it is."""
PORT = "tailtap"
"""What the guest calls the virtio-serial port to its agent."""
SERVICE = "libvirt-qemu"
"""The user and group that libvirt looks up, whoever QEMU runs as. Debian makes them with the
package of the daemon that runs as a service."""
CONFIG = """user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
"""
"""QEMU is root, as it must read this machine's files; the sandbox of seccomp stays."""
START_SECONDS = 60.0
"""How long libvirt may take; the first time it asks QEMU for all that it can do."""
SEEN_SECONDS = 5.0
"""How long libvirt may take to see that QEMU has ended."""
TAIL = 400
"""How many characters of the console an error quotes."""

SAID = re.compile(r"(qemu-system-\w+: |shutting down, reason=).*")
"""What a line of the log says that libvirt keeps of QEMU; the others are its command line."""


@dataclass(frozen=True)
class Design:
    """The design of a virtual machine."""

    name: str
    kernel: Path
    initramfs: Path
    command_line: str
    memory: int
    kvm: bool
    placement: Sequence[Sequence[int]]
    """The CPUs of this machine that each virtual CPU may run on."""
    io_cpus: Sequence[int]
    """Where QEMU's own threads run, which move packets."""
    nodes: Sequence[int]
    """The NUMA nodes to take memory from; empty for any."""
    links: Mapping[str, str]
    """The MAC address of the port behind each tap device."""
    sockets: Mapping[Path, str] = field(default_factory=dict)
    """The MAC address of the port behind each socket of a switch (vhost-user)."""
    cards: Sequence[str] = ()
    """The PCI addresses of network cards that are passed through."""
    huge_page_kib: int | None = None
    """The size of the pages that its memory is on; None for ordinary ones."""
    disk: tuple[Path, str] | None = None
    """The user's disk, which is not written to, and its format."""
    iommu: bool = False
    """Whether its ports are behind an IOMMU of its own."""


class Domain:
    """A running virtual machine. Use it as a context."""

    def __init__(self, design: Design, folder: Path, host: LocalHost) -> None:
        self.design = design
        self.folder = folder
        self._host = host
        self._process: Process | None = None
        self.port = folder / "port"
        """The socket of the guest's virtio-serial port."""
        self.huge_pages = folder / "huge-pages"
        """Where libvirt finds the huge pages; mounted in a namespace of its own."""
        self.console = folder / "console.log"
        """The file with the output of the guest's kernel."""
        self.log = folder / f"log/qemu/{design.name}.log"
        """The file with the output of QEMU."""

    def __enter__(self) -> Domain:
        """Start it; returns when libvirt says that it runs. Raises `MachineError`."""
        self.folder.joinpath("etc").mkdir(parents=True)
        config = CONFIG
        if self.design.huge_page_kib is not None:
            self.huge_pages.mkdir()
            config += f'hugetlbfs_mount = "{self.huge_pages}"\n'
        write_text(self.folder / "etc/qemu.conf", config)
        known = CACHE / "libvirt"
        known.mkdir(parents=True, exist_ok=True)
        make_link(self.folder / "cache", known, below=self.folder)
        definition = self.folder / "domain.xml"
        write_text(definition, ET.tostring(describe(self.design, self), encoding="unicode"))
        require_program("virt-qemu-run", "apt-get install libvirt-daemon")
        self._process = self._host.start(self._command(definition))
        try:
            self._wait()
        except BaseException:
            self._process.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End it. Its folder stays: `DomainFolder` removes it, and what did not end."""
        if self._process is not None:
            self._process.close()

    def threads(self) -> dict[str, int]:
        """The ids of QEMU's threads by their names, such as ``CPU 0/KVM``."""
        return threads_of(self.design.name)

    def on_huge_pages(self) -> int:
        """How many bytes of QEMU's memory are on huge pages; proc(5), ``HugetlbPages``."""
        found = status(self.threads()["qemu-system-x86"]).get("HugetlbPages", "0 kB")
        return int(found.split()[0]) * 1024

    def failure(self) -> str:
        """The reason of a failure, from libvirt, QEMU and the console, as one line."""
        said = self._said()
        if self._process is not None and self._process.ended:
            said.append(self._process.errors() or self._process.ending())
        console = read_text(self.console) or ""
        panic = re.search(r"Kernel panic.*", console)
        if panic or not said:
            said.append(panic[0] if panic else console[-TAIL:])
        return " ".join(" ".join(said).replace("virt-qemu-run:", "").split())

    def _said(self) -> list[str]:
        """What QEMU said of its end, and libvirt, which takes a moment to see it."""
        deadline = time.monotonic() + SEEN_SECONDS
        while True:
            found = [SAID.search(line) for line in (read_text(self.log) or "").splitlines()]
            said = [one[0] for one in found if one is not None and "warning: " not in one[0]]
            if said or not self.log.exists() or time.monotonic() > deadline:
                return said
            time.sleep(0.02)

    def _command(self, definition: Path) -> list[str]:
        run = ["virt-qemu-run", "--root", str(self.folder), str(definition)]
        # It gets lists of users and groups of its own, and huge pages, which nothing else sees.
        binds: list[str] = []
        if self.design.huge_page_kib is not None:
            options = f"pagesize={self.design.huge_page_kib}K"
            mount = ["mount", "-t", "hugetlbfs", "-o", options, "tailtap", str(self.huge_pages)]
            binds.append(shlex.join(mount))
        users, groups = (
            {one.pw_name for one in pwd.getpwall()},
            {one.gr_name for one in grp.getgrall()},
        )
        for path, line, names in (
            ("/etc/passwd", f"{SERVICE}:x:65534:65534::/nonexistent:/usr/sbin/nologin", users),
            ("/etc/group", f"{SERVICE}:x:65534:", groups),
        ):
            if SERVICE not in names:
                copy = self.folder / Path(path).name
                write_text(copy, f"{Path(path).read_text(encoding='utf-8')}{line}\n")
                binds.append(shlex.join(["mount", "--bind", str(copy), path]))
        script = " && ".join([*binds, f"exec {shlex.join(run)}"])
        return ["unshare", "--mount", "sh", "-c", script] if binds else run

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self.port.exists() or not self.threads():
            if self._process.ended:
                raise MachineError(f"libvirt cannot start the virtual machine: {self.failure()}")
            if time.monotonic() > deadline:
                raise MachineError(f"libvirt did not start the machine within {START_SECONDS:g} s")
            time.sleep(0.02)


def describe(design: Design, domain: Domain) -> ET.Element:
    """The machine in libvirt's language (https://libvirt.org/formatdomain.html)."""
    root = ET.Element("domain", type="kvm" if design.kvm else "qemu")
    _add(root, "name", design.name)
    _add(root, "memory", str(design.memory // 1024), unit="KiB")
    if design.huge_page_kib is not None or design.sockets:
        backing = _add(root, "memoryBacking")
    if design.huge_page_kib is not None:
        pages = _add(backing, "hugepages")
        _add(pages, "page", size=str(design.huge_page_kib), unit="KiB")
    if design.sockets:  # a switch reads and writes the guest's packets where they are
        if design.huge_page_kib is None:
            _add(backing, "source", type="memfd")
        _add(backing, "access", mode="shared")
    everywhere = sorted({cpu for cpus in design.placement for cpu in cpus} | set(design.io_cpus))
    _add(root, "vcpu", str(len(design.placement)), cpuset=list_cpus(everywhere))
    if design.kvm:  # a virtual CPU in software is a thread that libvirt does not know
        tuning = _add(root, "cputune")
        for number, cpus in enumerate(design.placement):
            _add(tuning, "vcpupin", vcpu=str(number), cpuset=list_cpus(cpus))
        _add(tuning, "emulatorpin", cpuset=list_cpus(design.io_cpus))
    if design.nodes:
        _add(_add(root, "numatune"), "memory", mode="strict", nodeset=list_cpus(design.nodes))
    boot = _add(root, "os")
    # Only the newer of QEMU's machines has an IOMMU.
    _add(boot, "type", "hvm", arch="x86_64", machine="q35" if design.iommu else "pc")
    _add(boot, "kernel", str(design.kernel))
    _add(boot, "initrd", str(design.initramfs))
    _add(boot, "cmdline", design.command_line)
    features = _add(root, "features")
    _add(features, "acpi")
    _add(features, "apic")
    if design.iommu:  # which remaps interrupts: without that, vfio takes no device
        _add(features, "ioapic", driver="qemu")
    _add(root, "cpu", mode="host-passthrough" if design.kvm else "maximum")
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _add(root, event, "destroy")
    devices = _add(root, "devices")
    if design.iommu:
        unit = _add(devices, "iommu", model="intel")
        # So that what vfio maps in the guest is mapped for a card of this machine as well.
        _add(unit, "driver", intremap="on", caching_mode="on", iotlb="on")
    behind = {"iommu": "on", "ats": "on"} if design.iommu else {}
    _add(devices, "controller", type="usb", model="none")
    _add(devices, "controller", type="virtio-serial", ports="2")
    shared = _add(devices, "filesystem", type="mount", accessmode="passthrough", multidevs="remap")
    _add(shared, "source", dir="/")
    _add(shared, "target", dir="tailtap")
    _add(shared, "readonly")
    if design.disk is not None:
        path, kind = design.disk
        disk = _add(devices, "disk", type="file", device="disk")
        _add(disk, "driver", name="qemu", type=kind)
        _add(disk, "source", file=str(path))
        _add(disk, "target", dev="vda", bus="virtio")
        _add(disk, "readonly")
    ends = [
        ("ethernet", "target", {"dev": link, "managed": "no"}, address)
        for link, address in design.links.items()
    ]
    ends += [
        ("vhostuser", "source", {"type": "unix", "path": str(path), "mode": "client"}, address)
        for path, address in design.sockets.items()
    ]
    for kind, tag, place, address in ends:
        port = _add(devices, "interface", type=kind)
        _add(port, "mac", address=address)
        _add(port, tag, **place)
        _add(port, "model", type="virtio")
        _add(port, "driver", rx_queue_size="1024", **behind)
    for card in design.cards:
        passed = _add(devices, "hostdev", mode="subsystem", type="pci", managed="no")
        pci, bus, slot, function = (f"0x{part}" for part in re.split("[:.]", card))
        place = {"domain": pci, "bus": bus, "slot": slot, "function": function}
        _add(_add(passed, "source"), "address", **place)
    channel = _add(devices, "channel", type="unix")
    _add(channel, "source", mode="bind", path=str(domain.port))
    _add(channel, "target", type="virtio", name=PORT)
    console = _add(devices, "serial", type="file")
    _add(console, "source", path=str(domain.console))
    _add(devices, "memballoon", model="none")
    if design.sockets and not design.kvm:
        # Before 9.1 QEMU crashes when it emulates a CPU that unmasks an MSI of such a port.
        override = _add(root, f"{{{QEMU}}}override")
        for number in range(len(design.sockets)):
            device = _add(override, f"{{{QEMU}}}device", alias=f"net{number}")
            front = _add(device, f"{{{QEMU}}}frontend")
            _add(front, f"{{{QEMU}}}property", name="vectors", type="unsigned", value="0")
    return root


def _add(parent: ET.Element, tag: str, text: str | None = None, **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, tag, attributes)
    child.text = text
    return child

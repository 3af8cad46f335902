"""The virtual machine as it is told to libvirt, and which processes belong to it."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tailtap.base.errors import InputError, MachineError
from tailtap.host.containers.domains import belongs_to
from tailtap.lab.platforms.vm import PROGRAMS, Vm
from tailtap.lab.platforms.vm.domain import Design, Domain, describe
from tailtap.lab.platforms.vm.guest_line import form
from tailtap.lab.platforms.vm.kernels import explanation, kernel
from tailtap.remote.local import LocalHost

DESIGN = Design(
    name="tt-abc123-dut",
    kernel=Path("/k/vmlinuz"),
    initramfs=Path("/i"),
    command_line="quiet a=b",
    memory=512 << 20,
    kvm=True,
    placement=[[0, 3], [1], [2]],
    io_cpus=[1, 2],
    nodes=[],
    links={"tt-a1": "52:54:00:00:00:01", "tt-b0": "52:54:00:00:00:02"},
)


def told(design: Design) -> ET.Element:
    return describe(design, Domain(design, Path("/run/x"), LocalHost()))


def test_a_disk_of_the_user_is_only_read(tmp_path: Path) -> None:
    image = tmp_path / "disk"
    for content, kind in ((b"QFI\xfb\0\0\0\3", "qcow2"), (b"\xeb\x63", "raw"), (b"", "raw")):
        image.write_bytes(content)
        assert form(image) == kind
    [found] = told(replace(DESIGN, disk=(image, "qcow2"))).iterfind("devices/disk")
    assert found.find("readonly") is not None
    assert [(one.tag, one.attrib) for one in found][:2] == [
        ("driver", {"name": "qemu", "type": "qcow2"}),
        ("source", {"file": str(image)}),
    ]
    assert told(DESIGN).find("devices/disk") is None
    with pytest.raises(InputError, match=r"dut\.image: cannot read"):
        form(tmp_path)


def test_doctor_says_what_python_cannot_unpack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROGRAMS:
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "_lzma", None)
    fine, lacking = itertools.islice(Vm().diagnose(), 2)
    assert (fine.name, fine.state) == ("vm", "ok")
    assert lacking.state == "missing"
    assert "lzma" in lacking.found
    assert "liblzma-dev" in lacking.remedy


def test_with_kvm_libvirt_pins_every_thread() -> None:
    root = told(DESIGN)
    assert root.get("type") == "kvm"
    assert root.findtext("vcpu") == "3"
    pins = {pin.get("vcpu"): pin.get("cpuset") for pin in root.iterfind("cputune/vcpupin")}
    assert pins == {"0": "0,3", "1": "1", "2": "2"}
    emulator = root.find("cputune/emulatorpin")
    assert emulator is not None
    assert emulator.get("cpuset") == "1,2"
    assert root.find("numatune") is None
    assert root.findtext("memory") == str(512 * 1024)


def test_in_software_it_gets_all_cpus_and_no_pins() -> None:
    root = told(replace(DESIGN, kvm=False, nodes=[1]))
    assert root.get("type") == "qemu"
    assert root.find("cputune") is None  # libvirt refuses them
    vcpu = root.find("vcpu")
    assert vcpu is not None
    assert vcpu.get("cpuset") == "0,1,2,3"
    memory = root.find("numatune/memory")
    assert memory is not None
    assert (memory.get("mode"), memory.get("nodeset")) == ("strict", "1")


def test_cards_are_passed_through_by_their_place_on_the_bus() -> None:
    root = told(replace(DESIGN, links={}, cards=["0000:3b:00.1", "0001:af:1c.0"]))
    assert root.find("devices/interface") is None
    [first, second] = [place.attrib for place in root.iterfind("devices/hostdev/source/address")]
    assert first == {"domain": "0x0000", "bus": "0x3b", "slot": "0x00", "function": "0x1"}
    assert second == {"domain": "0x0001", "bus": "0xaf", "slot": "0x1c", "function": "0x0"}
    assert {card.get("managed") for card in root.iterfind("devices/hostdev")} == {"no"}


def attributes(root: ET.Element, place: str) -> dict[str, str]:
    [found] = root.iterfind(place)
    return found.attrib


def test_an_iommu_is_before_every_port() -> None:
    assert told(DESIGN).find("devices/iommu") is None
    assert attributes(told(DESIGN), "os/type")["machine"] == "pc"
    root = told(replace(DESIGN, iommu=True))
    assert attributes(root, "os/type")["machine"] == "q35"
    assert attributes(root, "devices/iommu/driver") == {
        "intremap": "on", "caching_mode": "on", "iotlb": "on",
    }  # fmt: skip
    drivers = [one.attrib for one in root.iterfind("devices/interface/driver")]
    assert drivers == [{"rx_queue_size": "1024", "iommu": "on", "ats": "on"}] * 2
    assert attributes(root, "features/ioapic") == {"driver": "qemu"}


def test_a_switch_shares_the_memory_of_its_guest() -> None:
    sockets = {Path("/s/tt-in"): "52:54:00:00:00:01", Path("/s/tt-out"): "52:54:00:00:00:02"}
    root = told(replace(DESIGN, links={}, sockets=sockets))
    ports = list(root.iterfind("devices/interface"))
    assert [port.get("type") for port in ports] == ["vhostuser"] * 2
    assert [attributes(port, "source") for port in ports] == [
        {"type": "unix", "path": str(path), "mode": "client"} for path in sockets
    ]
    assert attributes(root, "memoryBacking/access") == {"mode": "shared"}
    assert attributes(root, "memoryBacking/source") == {"type": "memfd"}
    huge = told(replace(DESIGN, sockets=sockets, huge_page_kib=2048))
    assert [one.tag for one in huge.iterfind("memoryBacking/*")] == ["hugepages", "access"]
    assert told(DESIGN).find("memoryBacking/access") is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("/usr/bin/qemu-system-x86_64 -name guest=tt-abc123-dut,debug-threads=on", "tt-abc123-dut"),
        ("qemu-system-x86_64 -name guest=tt-abc123-dut -S", "tt-abc123-dut"),
        ("qemu-system-x86_64 -name guest=production,debug-threads=on", None),
        ("qemu-system-x86_64 -name guest=tt-abc123-dutch", None),
        ("qemu-system-x86_64 -S", None),
        ("virt-qemu-run --root /run/tailtap/vm/tt-abc123-dut /x.xml", "tt-abc123-dut"),
        ("virt-qemu-run --root /run/mine/tt-abc123-dut /x.xml", None),
        ("less /run/tailtap/vm/tt-abc123-dut", None),
        ("vi guest=tt-abc123-dut", None),
    ],
)
def test_only_our_own_processes_are_taken_for_ours(line: str, name: str | None) -> None:
    assert belongs_to(line.split()) == name


def image(path: Path, release: str) -> Path:
    header = bytearray(0x400)
    header[0x202:0x206] = b"HdrS"
    header[0x20E:0x210] = (0x100).to_bytes(2, "little")
    header[0x300 : 0x300 + len(release) + 9] = f"{release} (me) #1\0".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header)
    return path


def test_an_image_is_found_with_its_modules(tmp_path: Path) -> None:
    path = image(tmp_path / "boot/vmlinuz", "9.8.7-mine")
    with pytest.raises(InputError, match=r"there are no modules for 9\.8\.7-mine: put them") as no:
        kernel(str(path))
    assert str(tmp_path / "lib/modules/9.8.7-mine") in str(no.value)
    for base in (tmp_path / "boot", tmp_path):  # as some are packed, and as they are installed
        modules = base / "lib/modules/9.8.7-mine"
        modules.mkdir(parents=True)
        (modules / "modules.dep").touch()
        found = kernel(str(path))
        assert (found.release, found.modules, found.root) == ("9.8.7-mine", modules, base)


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh" * 200, None],
)
def test_what_is_no_image_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "vmlinuz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MachineError, match=str(path)):
        kernel(str(path))


def test_what_explains_a_failed_probe() -> None:
    said = "qemu-system-x86_64: warning: odd\nqemu-system-x86_64: error: no MSR\nkvm.c: Assertion\n"
    assert explanation(said) == ": error: no MSR"
    assert explanation("Booting\n\n[ 0.1] last\n\n") == ": [ 0.1] last"
    assert explanation("") == ""

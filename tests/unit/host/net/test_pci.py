"""Handing network cards over, decided on a recorded tree of /sys: two cards on a PCI bus."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.changes.journal import Journal, read_all
from tailtap.host.net.pci import address_of, default_route_interfaces
from tailtap.host.net.vfio import VfioCard

FIRST, SECOND = "0000:3b:00.0", "0000:3b:00.1"
HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
ROUTES = f"{HEADER}eno1\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
ROUTES6 = (
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eno2\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    devices = tmp_path / "sys/devices/pci0000:3a"
    for number, (address, interface) in enumerate(((FIRST, "ens1f0"), (SECOND, "ens1f1"))):
        device = devices / address
        device.mkdir(parents=True)
        (device / "driver_override").write_text("(null)\n")
        link(tmp_path / "sys/bus/pci/devices" / address, device)
        link(tmp_path / "sys/class/net" / interface / "device", device)
        link(device / "driver", driver(tmp_path, "ice"))
        group = tmp_path / f"sys/kernel/iommu_groups/{70 + number}"
        link(group / "devices" / address, device)
        link(device / "iommu_group", group)
    driver(tmp_path, "vfio-pci")
    (tmp_path / "sys/bus/pci/drivers_probe").write_text("")
    (tmp_path / "sys/class/net/veth0").mkdir()
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(ROUTES)
    (tmp_path / "proc/net/ipv6_route").write_text(ROUTES6)
    (tmp_path / "state").mkdir()
    return tmp_path


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def driver(machine: Path, name: str) -> Path:
    folder = machine / "sys/bus/pci/drivers" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "unbind").write_text("")
    return folder


def test_a_card_of_its_own_can_be_handed_over(machine: Path) -> None:
    assert address_of("ens1f0", machine) == FIRST


def test_default_routes_are_found_in_both_versions(machine: Path) -> None:
    assert default_route_interfaces(machine) == {"eno1", "eno2"}


def refusal(machine: Path, interface: str = "ens1f0") -> str:
    with pytest.raises(MachineError) as caught:
        address_of(interface, machine)
    return str(caught.value)


def test_what_is_no_card_is_refused(machine: Path) -> None:
    assert refusal(machine, "veth0").startswith("veth0 is no network card")


@pytest.mark.parametrize("table", ["route", "ipv6_route"])
def test_the_default_route_is_never_touched(machine: Path, table: str) -> None:
    path = machine / "proc/net" / table
    path.write_text(path.read_text().replace("eno", "ens1f0 eno").replace(" eno1", "", 1))
    path.write_text(path.read_text().replace("ens1f0 eno2", "ens1f0"))
    assert "ens1f0 has the default route" in refusal(machine)


def test_without_an_iommu_there_is_no_vfio(machine: Path) -> None:
    groups = machine / "sys/kernel/iommu_groups"
    groups.rename(machine / "elsewhere")
    groups.mkdir()
    assert "intel_iommu=on" in refusal(machine)


def test_a_group_is_handed_over_as_a_whole_or_not_at_all(machine: Path) -> None:
    second = machine / "sys/devices/pci0000:3a" / SECOND
    link(machine / "sys/kernel/iommu_groups/70/devices" / SECOND, second)
    assert refusal(machine).startswith(f"ens1f0 shares its IOMMU group with {SECOND}")


def test_the_driver_must_be_there(machine: Path) -> None:
    (machine / "sys/bus/pci/drivers/vfio-pci").rename(machine / "elsewhere")
    assert "modprobe vfio-pci" in refusal(machine)


def test_a_card_that_vfio_does_not_take_is_given_back(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These files are no kernel: nothing binds, as with a driver that refuses.
    monkeypatch.setattr("tailtap.host.net.pci.BIND_SECONDS", 0.0)
    device = machine / "sys/devices/pci0000:3a" / FIRST
    journal = Journal.create(machine / "state")
    with (
        pytest.raises(MachineError, match="vfio-pci does not take the card 0000:3b:00"),
        journal.held(VfioCard("ens1f0", FIRST, str(machine))),
    ):
        pass
    [record] = read_all(machine / "state")
    assert record.entries == ()
    assert (machine / "sys/bus/pci/drivers/ice/unbind").read_text() == FIRST
    assert (device / "driver_override").read_text() == "vfio-pci"
    assert (machine / "sys/bus/pci/drivers_probe").read_text() == FIRST


def test_a_card_that_vfio_has_is_pending(machine: Path) -> None:
    first, second = (
        VfioCard(*names, str(machine)) for names in (("ens1f0", FIRST), ("ens1f1", SECOND))
    )
    before = first.read()
    assert before == {"driver": "ice", "card": None}
    assert not first.pending(before)
    held(machine, "vfio-pci")
    assert first.pending(before)
    assert not second.pending(second.read())
    assert VfioCard.parse(first.as_json()) == first


def test_a_card_that_somebody_else_bound_is_left(machine: Path) -> None:
    change = VfioCard("ens1f0", FIRST, str(machine))
    before = change.read()
    driver(machine, "uio_pci_generic")
    held(machine, "uio_pci_generic")
    assert change.undo(before, change.plan()) == (
        f"somebody else bound the card {FIRST} ens1f0 to uio_pci_generic, which is left so: before "
        "tailtap it was ice"
    )
    assert (machine / "sys/bus/pci/drivers_probe").read_text() == ""


def held(machine: Path, name: str) -> None:
    """Let the driver `name` have the first card."""
    link_of = machine / "sys/devices/pci0000:3a" / FIRST / "driver"
    link_of.unlink()
    link_of.symlink_to(machine / "sys/bus/pci/drivers" / name)

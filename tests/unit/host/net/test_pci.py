"""Handing network cards over, decided on a recorded tree of /sys: two cards on a PCI bus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from scratch_machine import retold

from tailtap.base.errors import InputError, MachineError
from tailtap.host.changes.journal import Journal, read_all
from tailtap.host.net.pci import VfioCard, address_of, interface_of
from tailtap.host.net.virtual_functions import Ability, VirtualFunction, VirtualFunctions

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


def test_uio_needs_its_driver_and_no_iommu(machine: Path) -> None:
    (machine / "sys/kernel/iommu_groups").rename(machine / "elsewhere")
    with pytest.raises(MachineError, match="`modprobe uio_pci_generic`"):
        address_of("ens1f0", machine, "uio_pci_generic")
    driver(machine, "uio_pci_generic")
    assert address_of("ens1f0", machine, "uio_pci_generic") == FIRST


def test_a_card_may_be_given_by_its_address(machine: Path) -> None:
    assert interface_of("ens1f0", machine) == "ens1f0"
    with pytest.raises(InputError, match=r"there is no device 0000:99:00\.0"):
        interface_of("0000:99:00.0", machine)
    with pytest.raises(MachineError, match=r"its driver is ice: .*--bind=DRIVER 0000:3b:00\.0"):
        interface_of(FIRST, machine)
    (machine / "sys/devices/pci0000:3a" / FIRST / "net/ens1f0").mkdir(parents=True)
    assert interface_of(FIRST, machine) == "ens1f0"


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


IDS = {"vendor": "0x8086", "sriov_vf_device": "10ca", "subsystem_vendor": "0x1af4",
       "subsystem_device": "0x1100"}  # fmt: skip
CARD = Ability("ens1f0", 7, 0, True, "pci:v00008086d000010CAsv00001AF4sd00001100bc02sc00i00")


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """The files of an 82576 whose driver is igb."""
    folder = tmp_path / "sys/class/net/ens1f0"
    device = folder / "device"
    device.mkdir(parents=True)
    (folder / "carrier").write_text("1\n")
    for name, text in {**IDS, "sriov_totalvfs": "7", "sriov_numvfs": "0"}.items():
        (device / name).write_text(f"{text}\n")
    return folder


def test_what_a_card_says(card: Path, tmp_path: Path) -> None:
    assert Ability.of("ens1f0", tmp_path) == CARD
    (card / "device/sriov_numvfs").write_text("3\n")
    (card / "carrier").write_text("0\n")
    assert Ability.of("ens1f0", tmp_path) == replace(CARD, made=3, carrier=False)
    (card / "carrier").unlink()  # the kernel answers EINVAL while the card is down
    assert Ability.of("ens1f0", tmp_path).carrier is None


def test_a_card_without_virtual_functions_says_nothing(tmp_path: Path) -> None:
    assert Ability.of("veth0", tmp_path) == Ability("veth0", 0, 0, None, None)


@pytest.mark.parametrize("able", [CARD, replace(CARD, carrier=None)])
def test_as_many_as_a_card_can_have_can_be_made(able: Ability) -> None:
    able.require(7)


@pytest.mark.parametrize(
    ("able", "wanted", "reason"),
    [
        (replace(CARD, total=0), 1, ("ens1f0 can have no virtual functions (SR-IOV): choose "
         "another card, or switch them on in its firmware")),
        (replace(CARD, made=2), 1, ("ens1f0 has 2 virtual functions already, which may be in use: "
         "remove them first (`echo 0 > /sys/class/net/ens1f0/device/sriov_numvfs`)")),
        (CARD, 8, ("ens1f0 can have 7 virtual functions, and 8 are needed, one for each link "
         "between nodes: take fewer nodes, or another card in dut.over")),
        (replace(CARD, carrier=False), 1, ("ens1f0 is up and has no link: join it to "
         "another card by a cable")),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_one_line(able: Ability, wanted: int, reason: str) -> None:
    with pytest.raises(MachineError) as error:
        able.require(wanted)
    assert str(error.value) == reason


def test_a_driver_that_is_not_installed_is_named() -> None:
    replace(CARD, modalias=None).require_driver()
    with pytest.raises(MachineError, match=r"^no driver for the virtual functions of ens1f0 is"):
        replace(CARD, modalias="pci:v0000FFFFd0000FFFFsv*").require_driver()


@pytest.mark.parametrize(
    "change",
    [
        VirtualFunctions("ens1f0", 7, 9000),
        VirtualFunction("ens1f0", 3, "tt-0123ab-v3a", "02:74:00:03:00:02", 5),
    ],
)
def test_the_journal_tells_all_that_is_needed(change: VirtualFunction | VirtualFunctions) -> None:
    assert retold(change, {}) == change


def test_only_one_measurement_has_the_functions_of_a_card() -> None:
    assert VirtualFunctions("ens1f0", 1, 1500).claims == ["card ens1f0"]

"""Virtual functions, decided on a recorded tree of /sys: what a card can have, and what it has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.changes.journal import Entry
from tailtap.host.changes.kinds import resource_of
from tailtap.host.net.virtual_functions import Ability, VirtualFunction, VirtualFunctions

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
    entry = Entry(1, change.kind, change.label, {}, change.plan(), change.as_json())
    told = json.loads(json.dumps(entry.resource))
    assert resource_of(replace(entry, resource=told)) == change


def test_only_one_measurement_has_the_functions_of_a_card() -> None:
    assert VirtualFunctions("ens1f0", 1, 1500).claims == ["card ens1f0"]

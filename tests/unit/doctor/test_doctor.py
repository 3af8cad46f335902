"""What doctor concludes from what it finds, also of a folder that others can write to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tailtap.doctor import Check, can_run, record
from tailtap.doctor.machine import check, check_functions
from tailtap.doctor.programs import check_folder
from tailtap.host.net.nic import parse
from tailtap.host.net.virtual_functions import Ability

ALL = """\
Time stamping parameters for eth0:
Capabilities:
	hardware-transmit
	software-transmit
	hardware-receive
	hardware-raw-clock
PTP Hardware Clock: 0
Hardware Transmit Timestamp Modes:
	off
	on
Hardware Receive Filter Modes:
	none
	all
"""


def test_only_what_is_required_decides() -> None:
    fine = Check("kernel", "a", "ok", "", required=True)
    optional = Check("programs", "b", "missing", "", "apt-get install b")
    assert can_run([fine, optional])
    assert not can_run([fine, Check("kernel", "c", "missing", "", required=True)])
    assert not can_run([fine, Check("kernel", "c", "untested", "", required=True)])
    content = msgspec.to_builtins(record([fine, optional]))
    assert content["can_run"] is True
    assert content["checks"][1] == {
        "area": "programs",
        "name": "b",
        "state": "missing",
        "found": "",
        "remedy": "apt-get install b",
        "required": False,
    }


def test_cards_differ_in_what_they_stamp() -> None:
    def found(told: str) -> tuple[str, str]:
        row = check(parse("eth0", told, driver="igc", metadata=True))
        assert row.name == "eth0"
        assert bool(row.remedy) == (row.state != "ok")
        return row.state, row.found

    assert found(ALL) == (
        "ok",
        "stamps every received packet, by XDP metadata; its clock is /dev/ptp0; filters none, all",
    )
    assert found(ALL.replace("\thardware-raw-clock\n", ""))[0] == "untested"
    assert found(ALL.replace("\tall\n", "\tptpv2-event\n")) == (
        "poor",
        "its driver igc has no receive filter `all`, it stamps ptpv2-event only, clock /dev/ptp0",
    )
    assert found(ALL.replace("\thardware-receive\n", "")) == (
        "poor",
        "its driver igc stamps in software only (no hardware-receive), clock /dev/ptp0",
    )


def test_cards_with_virtual_functions_are_told() -> None:
    card = Ability("eth0", 7, 0, True, None)
    found = [(row.name, row.state, row.found) for row in check_functions(card)]
    assert found == [("eth0: SR-IOV", "ok", "7 virtual functions for dut.over")]
    [used] = check_functions(replace(card, made=2))
    assert used.state == "poor"
    assert used.remedy.startswith("eth0 has 2 virtual functions already")
    assert list(check_functions(replace(card, total=0))) == []


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o755, ""),
        (0o1777, ""),
        (0o777, "everybody can write there"),
        (0o702, "everybody can write there"),
        (0o770, "the group nogroup can write there"),
    ],
)
def test_who_else_can_write_is_told(tmp_path: Path, mode: int, said: str) -> None:
    results = tmp_path / "results/deep"
    results.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(results.parent, 0, 65534)
    elif "group" in said:
        pytest.skip("only root can give a folder to another group")
    results.parent.chmod(mode)
    [found] = check_folder(results)
    assert found.state == ("poor" if said else "ok") and said in found.found
    assert bool(said) == (f"chmod go-w {results.parent}" in found.remedy)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_owner_is_this_user_or_the_one_before_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 65534, 0)
    monkeypatch.delenv("SUDO_UID", raising=False)
    [found] = check_folder(tmp_path)
    assert found.state == "poor" and "it belongs to nobody" in found.found
    monkeypatch.setenv("SUDO_UID", "65534")
    [found] = check_folder(tmp_path)
    assert found.state == "ok"

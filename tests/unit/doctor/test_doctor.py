"""What doctor concludes from what it finds."""

from __future__ import annotations

from tailtap.doctor import Check, as_json, can_run
from tailtap.doctor.nics import judge

ALL = """\
Time stamping parameters for eth0:
Capabilities:
	hardware-transmit
	software-transmit
	hardware-receive
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
    content = as_json([fine, optional])
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
    assert judge("eth0", ALL).state == "ok"
    ptp = judge("eth0", ALL.replace("\tall\n", "\tptpv2-event\n"))
    assert (ptp.state, ptp.found) == ("poor", "hardware stamps for none ptpv2-event")
    none = judge("eth0", ALL.replace("\thardware-receive\n", ""))
    assert (none.state, none.found) == ("poor", "no hardware receive timestamps")

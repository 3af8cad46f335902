"""`tailtap bmc` as clients see it: ipmitool and pyghmi's client ask a real server."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlled import (
    PASSWORD,
    USER,
    Served,
    configuration,
    credentials,
    serving,
    switchable,
)
from program import one_line_error, tailtap
from pyghmi.ipmi.command import Command

SLOW_SECONDS = 3.0


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, Any]:
    return {"kind": "command", "name": "m", **switchable(tmp_path)}


@pytest.fixture
def served(tmp_path: Path, machine: dict[str, Any]) -> Iterator[Served]:
    with serving(configuration(tmp_path, [machine])) as found:
        yield found


def told(served: Served, *words: str, at: int = 0) -> str:
    """What ipmitool prints when all is well."""
    done = served.ipmitool(*words, at=at)
    assert done.returncode == 0, done
    return done.stdout.strip()


def test_ipmitool_switches(served: Served) -> None:
    assert told(served, "chassis", "power", "status") == "Chassis Power is off"
    assert told(served, "chassis", "power", "on") == "Chassis Power Control: Up/On"
    assert served.expect("power") == {
        "event": "power",
        "action": "on",
        "machine": "command:m",
        "user": USER,
        "from": "127.0.0.1",
    }
    assert told(served, "chassis", "power", "status") == "Chassis Power is on"
    for word, action in (("cycle", "cycle"), ("reset", "reset"), ("off", "off")):
        told(served, "chassis", "power", word)
        assert served.expect("power")["action"] == action
    assert told(served, "chassis", "power", "status") == "Chassis Power is off"
    for word in ("cycle", "reset", "soft"):
        done = served.ipmitool("chassis", "power", word)
        assert "not supported in present state" in done.stderr


@pytest.mark.parametrize(("own", "done"), [(True, ["cycle"]), (False, ["off", "on"])])
def test_a_cycle_is_the_machine_s_own_where_it_has_one(
    tmp_path: Path, own: bool, done: list[str]
) -> None:
    commands = switchable(tmp_path)
    # Such a command leaves the machine on.
    cycle = f"sh -c 'echo cycle >> {tmp_path}/machine.log'"
    machine = {"kind": "command", "name": "m", **commands, **({"cycle": cycle} if own else {})}
    with serving(configuration(tmp_path, [machine])) as served:
        told(served, "chassis", "power", "on")
        assert served.expect("power")["action"] == "on"
        told(served, "chassis", "power", "cycle")
        assert served.expect("power")["action"] == "cycle"
    assert (tmp_path / "machine.log").read_text().split() == ["on", *done]


def test_a_fault_is_told_until_the_next_success(served: Served) -> None:
    told(served, "chassis", "power", "on")
    assert "Power Control Fault  : false" in told(served, "chassis", "status")
    told(served, "chassis", "power", "soft")
    assert served.expect("failed")["why"] == "m has no command for shutdown"
    assert "Power Control Fault  : true" in told(served, "chassis", "status")
    told(served, "chassis", "power", "off")
    assert served.expect("power")["action"] == "off"
    assert "Power Control Fault  : false" in told(served, "chassis", "status")


def test_ipmitool_sets_the_boot_device(served: Served) -> None:
    words = ("chassis", "bootparam", "get", "5")
    assert "Boot Flag Invalid" in told(served, *words)
    for word, shown in (("pxe", "Force PXE"), ("disk", "Force Boot from default Hard-Drive"),
                        ("cdrom", "Force Boot from CD/DVD")):  # fmt: skip
        told(served, "chassis", "bootdev", word)
        assert f"Boot Device Selector : {shown}" in told(served, *words)
    assert "Invalid data field" in served.ipmitool("chassis", "bootdev", "bios").stderr


def test_each_controller_tells_whose_it_is(tmp_path: Path) -> None:
    machines = [
        {"kind": "command", "name": f"a machine with a longer name, {number}",
         **switchable(tmp_path, str(number))}
        for number in range(3)
    ]  # fmt: skip
    with serving(configuration(tmp_path, machines), machines=3) as served:
        guids = set()
        for at, machine in enumerate(machines):
            assert f"Device ID                 : {at + 1}" in told(served, "mc", "info", at=at)
            name = told(served, "mc", "getsysinfo", "system_name", at=at)
            assert name == f"command:{machine['name']}"
            guids.add(told(served, "mc", "guid", at=at))
        assert len(guids) == 3
        told(served, "chassis", "power", "on", at=1)
        assert served.expect("power")["machine"] == "command:a machine with a longer name, 1"
        states = [told(served, "chassis", "power", "status", at=at)[-3:].strip() for at in range(3)]
        assert states == ["off", "on", "off"]


def test_only_suite_17_is_spoken(served: Served) -> None:
    done = served.ipmitool("chassis", "power", "status", suite="3")
    assert done.returncode == 1
    assert "no matching cipher suite" in done.stderr
    listed = told(served, "channel", "getciphers", "ipmi", "1").splitlines()
    assert [line.split()[0] for line in listed if line.split()[:1] < ["A"]] == ["17"]


def test_less_than_an_operator_switches_nothing(served: Served) -> None:
    done = served.ipmitool("-L", "USER", "chassis", "power", "on")
    assert "Insufficient privilege level" in done.stderr
    assert told(served, "-L", "USER", "chassis", "power", "status") == "Chassis Power is off"
    told(served, "-L", "OPERATOR", "chassis", "power", "on")


def test_wrong_passwords_are_told_and_keep_nobody_out(served: Served) -> None:
    for _ in range(7):
        done = served.ipmitool("chassis", "power", "on", password="wrong")
        assert done.returncode == 1
    for number in range(1, 6):  # ipmitool gives up without a word: that is told after a while
        row = served.expect("refused")
        assert (row["user"], row["from"], row["muted"]) == (USER, "127.0.0.1", number == 5)
        assert row["why"] == "it gave up: the password is wrong, or it went away"
    told(served, "chassis", "power", "on")


def test_a_slow_machine_holds_up_no_other(tmp_path: Path) -> None:
    machines = [
        {"kind": "command", "name": "slow", **switchable(tmp_path, "slow", str(SLOW_SECONDS))},
        {"kind": "command", "name": "quick", **switchable(tmp_path, "quick")},
    ]
    with serving(configuration(tmp_path, machines), machines=2) as served:
        slow = Command("127.0.0.1", USER, PASSWORD, port=served.ports[0])
        began = time.monotonic()
        slow.ipmi_session.raw_command(netfn=0, command=1, callback=lambda _: None, retry=False)
        assert told(served, "chassis", "power", "status", at=1) == "Chassis Power is off"
        assert time.monotonic() - began < SLOW_SECONDS


def test_a_machine_that_does_not_answer_is_an_error(
    tmp_path: Path, machine: dict[str, Any]
) -> None:
    path = configuration(tmp_path, [{**machine, "status": "false"}])
    with serving(path) as served:
        done = served.ipmitool("chassis", "power", "status")
        assert "Unspecified error" in done.stderr
        assert served.expect("failed")["why"].startswith("`false` failed")


def test_it_ends_when_it_is_asked_to(tmp_path: Path, machine: dict[str, Any]) -> None:
    with serving(configuration(tmp_path, [machine])) as served:
        told(served, "chassis", "power", "on")
        began = time.monotonic()
        os.kill(served.child.pid, signal.SIGINT)
        assert served.child.wait(10) == 0
        assert time.monotonic() - began < 5
    assert (tmp_path / "machine.state").read_text() == "on\n"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", served.ports[0]))


def test_what_is_wrong_is_one_line(tmp_path: Path, machine: dict[str, Any]) -> None:
    path = configuration(tmp_path, [machine])
    (tmp_path / "users").chmod(0o644)
    error = one_line_error(tailtap("bmc", path), 2)
    assert "has the mode 0644, so that others can use it: chmod 600" in error
    credentials(tmp_path)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        error = one_line_error(
            tailtap("bmc", configuration(tmp_path, [{**machine, "listen": listen}])), 3
        )
    assert f"command:m cannot listen on {listen}: Address already in use" in error
    words = ("bmc", "--credentials", tmp_path / "users", "--serve")
    error = one_line_error(tailtap(*words, "lxc:tt-there-is-none@0"), 3)
    assert error.startswith("tailtap: lxc:tt-there-is-none: ")

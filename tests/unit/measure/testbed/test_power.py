"""Power of machines by every kind, and our program as it travels to them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from children import free_port
from controlled import USER, Served, configuration, password_file, serving, switchable

import tailtap
from tailtap.base.errors import InputError, MachineError
from tailtap.lab.platforms.vm.kernels import shell
from tailtap.measure import testbed
from tailtap.measure.testbed.model import Host
from tailtap.measure.testbed.power import POWERS, Power, power_of, settle
from tailtap.measure.testbed.program import Program, program
from tailtap.measure.testbed.ssh import SshStation


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, Any]:
    return {"kind": "command", **switchable(tmp_path)}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    machine = {"kind": "command", "name": "m", **switchable(tmp_path)}
    with serving(configuration(tmp_path, [machine])) as served:
        yield served


@pytest.fixture
def ipmi(controller: Served, tmp_path: Path) -> dict[str, Any]:
    return {
        "kind": "ipmi",
        "address": "127.0.0.1",
        "port": controller.ports[0],
        "user": USER,
        "password_file": str(password_file(tmp_path)),
    }


@contextlib.contextmanager
def redfish_server(folder: Path) -> Iterator[str]:
    """The fake driver of sushy-tools on a port of its own; the address."""
    port = free_port()
    (folder / "redfish.conf").write_text(
        "SUSHY_EMULATOR_FAKE_DRIVER = True\n"
        "SUSHY_EMULATOR_FAKE_SYSTEMS = [{'uuid': '11111111-1111-1111-1111-111111111111',"
        " 'name': 'server', 'power_state': 'Off', 'nics': []}]\n"
        f"SUSHY_EMULATOR_STATE_DIR = '{folder}'\n"
    )
    # Its fake machines would take 1 to 11 s for each change.
    program = "import random; random.randint = lambda *_: 0\n"
    program += "from sushy_tools.emulator.main import main; main()"
    words = ["--config", str(folder / "redfish.conf"), "-i", "127.0.0.1", "-p", str(port)]
    command = [sys.executable, "-c", program, *words]
    with (folder / "redfish.log").open("w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert child.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            child.terminate()
            child.wait(timeout=30)


def switch(power: Power) -> None:
    """What every kind can do, from off to on and back."""
    assert power.status() == "off"
    power.off()
    assert power.status() == "off"
    power.on()
    power.on()
    assert power.status() == "on"
    power.cycle()
    assert power.status() == "on"
    power.off()
    assert power.status() == "off"
    power.cycle()
    assert power.status() == "on"


def test_commands_switch(commands: dict[str, Any], tmp_path: Path) -> None:
    switch(power_of(commands))
    told = (tmp_path / "machine.log").read_text().split()
    assert told == ["on", "off", "on", "off", "on"]


@pytest.mark.parametrize(
    ("printed", "state"),
    [("on", "on"), ("Chassis Power is off", "off"), ("outlet 3:\n  ON.", "on"), ("maybe", None),
     ("", None), ("button", None)],
)  # fmt: skip
def test_the_last_word_is_the_state(
    commands: dict[str, Any], printed: str, state: str | None
) -> None:
    power = power_of({**commands, "status": f"printf '{printed}'"})
    if state is None:
        with pytest.raises(MachineError, match="must print on or off as its last word"):
            power.status()
    else:
        assert power.status() == state


def test_a_command_that_hangs_is_ended(commands: dict[str, Any]) -> None:
    power = power_of({**commands, "status": "sleep 30", "timeout": "0.2 s"})
    with pytest.raises(MachineError, match=r"no answer within 0\.2 s"):
        power.status()


def test_power_that_comes_later_is_waited_for(commands: dict[str, Any], tmp_path: Path) -> None:
    later = f"sh -c '(sleep 0.3; echo on > {tmp_path}/machine.state) > {tmp_path}/said 2>&1 &'"
    power = power_of({**commands, "switch_on": later})
    power.on()
    assert power.status() == "on"


def test_power_that_does_not_come_is_an_error() -> None:
    with pytest.raises(MachineError, match="the power is not on 0 s after"):
        settle(lambda: "off", "on", seconds=0)


def test_ipmi_switches(ipmi: dict[str, Any]) -> None:
    switch(power_of(ipmi))


def test_ipmi_says_what_is_wrong(ipmi: dict[str, Any], tmp_path: Path) -> None:
    wrong = power_of({**ipmi, "password_file": str(password_file(tmp_path, "wrong"))})
    with pytest.raises(MachineError, match="check address, user, password_file") as found:
        wrong.status()
    assert "\n" not in str(found.value)


def test_redfish_switches(tmp_path: Path) -> None:
    with redfish_server(tmp_path) as address:
        options = {
            "kind": "redfish",
            "address": address,
            "user": USER,
            "password_file": str(password_file(tmp_path)),
        }
        switch(power_of(options))
        with pytest.raises(MachineError, match="does not answer as Redfish does") as found:
            power_of({**options, "system": "/redfish/v1/Systems/none"}).status()
        assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "impi"}, "kind: there is no power 'impi': did you mean 'ipmi'"),
        ({"kind": None}, "kind: this key is missing: it is one of ipmi, redfish, command"),
        ({"user": "a" * 17}, "user: "),
        ({"adress": "x"}, "adress: "),
        ({"address": "-x"}, "address: "),
        ({"password_file": "/nowhere"}, "cannot read the passwords in /nowhere: No such file"),
    ],
)
def test_options_are_checked(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    options = {"kind": "ipmi", "address": "127.0.0.1", "user": USER,
               "password_file": str(password_file(tmp_path))}  # fmt: skip
    with pytest.raises(InputError) as found:
        power_of({**options, **change})
    assert str(found.value).startswith(message)
    assert "\n" not in str(found.value)


def test_every_kind_diagnoses_itself() -> None:
    for name, kind in POWERS.working():
        [check] = kind.diagnose()
        assert (check.area, check.name) == ("power", name)
        assert bool(check.remedy) == (check.state != "ok")


BOOTSTRAP = Path(testbed.__file__).with_name("bootstrap.sh").read_text("utf-8")


def served(
    folder: Path, sent: bytes, run: str = "tailtap --version"
) -> subprocess.CompletedProcess[bytes]:
    """What a shell says that is asked for a program."""
    given = f"{folder}\n".encode() + sent + f"{run}\n".encode()
    command = ["sh", "-c", BOOTSTRAP, "sh", sys.executable]
    return subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)


def packed(made: Program, checksum: str | None = None) -> bytes:
    archive, whole = made.packed
    return f"{len(archive)} {checksum or whole}\n".encode() + archive


def test_the_program_arrives_once_and_runs_there(tmp_path: Path) -> None:
    ours = program()
    folder = tmp_path / "programs" / ours.identity
    first = served(folder, packed(ours))
    assert first.returncode == 0, first.stderr
    _, missing, there, version, *_ = first.stdout.decode().splitlines()
    assert [json.loads(line)["there"] for line in (missing, there)] == [False, True]
    assert version.startswith("tailtap ")
    again = served(folder, b"")
    assert json.loads(again.stdout.decode().splitlines()[1])["there"] is True
    assert again.returncode == 0
    assert [path.name for path in folder.parent.iterdir()] == [ours.identity]


@pytest.mark.parametrize("damage", ["checksum", "cut"])
def test_what_does_not_arrive_whole_is_not_kept(tmp_path: Path, damage: str) -> None:
    made = Program({"a": Path(__file__)})
    sent = packed(made, hashlib.sha256(b"other").hexdigest() if damage == "checksum" else None)
    done = served(tmp_path / "programs/x", sent if damage == "checksum" else sent[:-40])
    assert done.returncode == 1
    assert "programs/x: it did not arrive whole" in done.stderr.decode()
    assert not list(tmp_path.glob("programs/*"))


class BareStation(SshStation):
    """A root folder without any C library, in which there is BusyBox and nothing else."""

    def __init__(self, root: Path, tell: Callable[[str], None]) -> None:
        super().__init__("bare", Host(), tell=tell)
        self._root = root

    def shell(self, script: str) -> Sequence[str]:
        mounts = 'for one in dev proc; do mount --rbind /$one "$0/$one"; done; exec chroot "$0" '
        words = ["unshare", "--mount", "sh", "-c", f'{mounts}/bin/sh -c "$1"']
        return [*words, str(self._root), script]


@pytest.mark.skipif(os.geteuid() != 0, reason="enters a root folder")
def test_a_host_without_python_is_given_one_once(tmp_path: Path) -> None:
    for name in ("bin", "dev", "proc"):
        (tmp_path / name).mkdir()
    shutil.copy2(shell(), tmp_path / "bin/busybox")
    run = ["chroot", str(tmp_path), "/bin/busybox", "--install", "-s", "/bin"]
    subprocess.run(run, check=True)
    said: list[str] = []
    station = BareStation(tmp_path, said.append)
    for _ in range(2):
        process = station.start("tailtap", "--version")
        assert process.read_line(20.0) == f"tailtap {tailtap.__version__}"
        process.close()
    assert len(said) == 1
    assert said[0].startswith("bare: there is no Python: copied tailtap with its own Python, ")
    assert station.environment().kernel.release == os.uname().release
    station.clean()


def test_the_identity_follows_names_and_contents(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    first = Program({"a": one})
    assert first.identity == Program({"a": one}).identity
    assert first.packed == Program({"a": one}).packed
    assert len({first.identity, Program({"b": one}).identity, Program({"a": other}).identity}) == 3

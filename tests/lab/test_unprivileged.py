"""What another user of this machine can do to the commands of root: nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from labtools import Machine
from standing import standing

from tailtap.host.changes.journal import LASTING, LOCK, STATE
from tailtap.lab.platforms import PLATFORMS, DutSpec
from tailtap.lab.platforms.contained import ContainerPlatform

STRANGER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
SECRET = "a-password-of-root"
HOLD = """
import fcntl, sys, time
held = open(sys.argv[1])
fcntl.flock(held, fcntl.LOCK_EX)
time.sleep(60)
"""
LEFT = """
import os
from tailtap.host.changes.processes import Folder
from tailtap.host.changes.journal import Journal
Journal.create().enter(Folder("/tmp/tt-0a1b2c-nothing"))
os._exit(9)
"""


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode != 0 and "Permission denied" in done.stderr


@pytest.mark.parametrize("earlier", [False, True])
def test_the_lock_of_all_commands_cannot_be_held(machine: Machine, earlier: bool) -> None:
    """Also where an earlier version has left it open to all."""
    if earlier:
        machine.run("chmod", "755", str(STATE))
        machine.run("install", "-m", "644", "/dev/null", str(STATE / LOCK))
    assert machine.tailtap("clean").returncode == 0
    python = (sys.executable, "-I", "-S", "-c", HOLD, str(STATE / LOCK))
    assert refused(machine.run(*STRANGER, *python))
    assert machine.tailtap("clean").returncode == 0


def test_journals_cannot_be_read_and_nothing_is_planted_beside_them(
    machine: Machine, tmp_path: Path
) -> None:
    assert machine.run(sys.executable, "-c", LEFT).returncode == 9
    [path] = machine.run("find", str(LASTING), "-name", "*.journal").stdout.split()
    assert refused(machine.run(*STRANGER, "cat", path))
    for folder in (STATE, LASTING):
        assert refused(machine.run(*STRANGER, "ls", str(folder)))
        for name in ("lock", "0a1b2c.journal", "oci"):
            planted = machine.run(*STRANGER, "ln", "-sf", str(tmp_path), str(folder / name))
            assert refused(planted)
    assert machine.tailtap("clean").returncode == 0


@pytest.mark.parametrize(
    "platform", ["crun", pytest.param("runc", marks=pytest.mark.slow), "podman", "container"]
)
def test_the_environment_of_root_stays_in_its_own_processes(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_ROOT", SECRET)
    spec = DutSpec((0,), PLATFORMS[platform].Options())
    with standing(platform, spec) as (lab, device):
        assert device.host.run(["sh", "-c", "echo $PATH"]).stdout.strip()
        kind = PLATFORMS[platform]
        assert isinstance(kind, ContainerPlatform)
        container = kind.engine(lab.name_of("dut"))
        folder = container.folder
        listed = subprocess.run(
            [*STRANGER, "ls", str(folder)], capture_output=True, text=True, check=False
        )
        assert refused(listed)
        # Nor is it in what a runtime keeps, or shown by what it was called with.
        told = ["grep", "-rslI", "--exclude-dir=rootfs", SECRET, str(folder)]
        assert subprocess.run(told, capture_output=True, text=True, check=False).stdout == ""
        first = Path(f"/proc/{container.pid()}/environ").read_bytes()
        assert SECRET.encode() not in first


def test_a_name_for_the_machine_s_own_namespace_ends_nobody(machine: Machine) -> None:
    """As when a container has ended, and another process has got its number."""
    attached = machine.run("ip", "netns", "attach", "tt-0a1b2c-dut", str(machine.pid))
    assert attached.returncode == 0, attached.stderr
    assert machine.run("ip", "link", "add", "kept", "type", "veth").returncode == 0
    with subprocess.Popen(machine.command("sleep", "60")) as bystander:
        try:
            done = machine.tailtap("clean")
            assert done.returncode == 0, done.stderr
            assert "namespace tt-0a1b2c-dut" in done.stdout
            assert machine.namespaces() == []
            assert machine.run("ip", "link", "show", "kept").returncode == 0
            assert bystander.poll() is None
        finally:
            bystander.kill()

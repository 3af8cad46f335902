"""What generators, taps and tracers may still do once all that they need is open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from labtools import Machine, wait_for, was_made
from namespaces import TAILTAP, Namespace
from standing import standing
from traces import events

from tailtap.cli.caller import Caller, give
from tailtap.host.changes.journal import LASTING, LOCK, STATE
from tailtap.lab.platforms import PLATFORMS, DutSpec
from tailtap.lab.platforms.contained import ContainerPlatform

NET_ADMIN, DAC_OVERRIDE, SYSLOG, PERFMON, BPF = 12, 1, 34, 38, 39
"""Bits of capabilities(7)."""
NOBODY = "65534"


def status_of(process: subprocess.Popen[str]) -> dict[str, str]:
    """What the kernel says of the thread that does the work, once its privileges are given up."""
    found: list[dict[str, str]] = []

    def look() -> bool:
        for folder in Path(f"/proc/{process.pid}/task").iterdir():
            rows = (folder / "status").read_text().splitlines()
            fields = {
                name: value.strip() for name, _, value in (row.partition(":") for row in rows)
            }
            if fields["Name"].startswith("tt-") and fields["NoNewPrivs"] == "1":
                found.append(fields)
        return bool(found)

    wait_for(look, "a thread without privileges")
    return found[0]


def capabilities(status: dict[str, str]) -> set[int]:
    word = int(status["CapEff"], 16)
    assert status["CapPrm"] == status["CapEff"]
    return {bit for bit in range(64) if word >> bit & 1}


def test_threads_that_work_keep_what_they_need(namespace: Namespace, tmp_path: Path) -> None:
    tap = namespace.start("tap", "link=in:drop", "--write", str(tmp_path / "{link}.stamps"))
    trace = namespace.start("trace", "--cpus", "0", "--out", str(tmp_path / "trace"))
    words = ("generate", "gen", "--rate", "1 kpkt/s", "--duration", "20 s", "--quiet")
    with subprocess.Popen(namespace.inside(TAILTAP, *words), text=True) as generator:
        status = status_of(generator)
        assert capabilities(status) == {NET_ADMIN}
        assert set(status["Uid"].split() + status["Gid"].split()) == {NOBODY}
        assert status["Groups"] == ""
        status = status_of(trace.process)
        assert capabilities(status) == {SYSLOG, PERFMON, BPF}
        assert set(status["Uid"].split()) == {NOBODY}
        status = status_of(tap.process)
        assert capabilities(status) == {DAC_OVERRIDE, NET_ADMIN, PERFMON, BPF}
        wait_for(lambda: namespace.received("in") > 100, "packets of the generator")
        generator.terminate()
    links = tap.stop()["links"]
    assert links["link"]["stored"] > 0
    trace.stop()
    assert len(events(tmp_path / "trace")) > 0


USER = 54_321
"""A user that this machine does not have."""
CALLER = {"SUDO_UID": str(USER), "SUDO_GID": str(USER)}
EXPERIMENT = """\
name: sudo
dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 5 kpkt/s, duration: 200 ms, warm_up: 50 ms, cpu: 0, slip_limit: 10 s}
"""
OPEN = """\
set -e
mount -t tmpfs none "$1"
for folder in $2; do
    mkdir "$1/up" "$1/work"
    mount -t overlay -o "lowerdir=$folder,upperdir=$1/up,workdir=$1/work" none "$folder"
    chmod a+rx "$folder"
done
shift 2
exec "$@"
"""
"""Others may pass through folders that are root's alone, in a mount namespace."""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tailtap-sudo-", dir="/tmp"))
    made.chmod(0o755)
    home = made / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    (made / "mounts").mkdir()
    yield home
    shutil.rmtree(made)


def sudo(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    needed = [Path(TAILTAP), Path(sys.executable), Path(sys.base_prefix) / "lib", Path(__file__)]
    closed = {str(parent) for path in needed for parent in path.resolve().parents
              if not parent.stat().st_mode & 0o001}  # fmt: skip
    assert len(closed) <= 1, closed
    command = ["unshare", "--mount", "sh", "-c", OPEN, "-", str(folder.parent / "mounts")]
    return subprocess.run([*command, " ".join(closed), TAILTAP, *arguments], cwd=folder,
                          check=False, capture_output=True, text=True,
                          env=os.environ | CALLER)  # fmt: skip


def owners(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_uid for path in folder.rglob("*")}


def test_results_are_the_callers_and_so_is_what_is_made_of_them(folder: Path) -> None:
    (folder / "lab.yaml").write_text(EXPERIMENT)
    done = sudo(folder, "run", "lab.yaml", "--out", "out", "--quiet")
    assert was_made(done), done.stderr
    assert (folder / "out").stat().st_uid == USER
    assert set(owners(folder / "out").values()) == {USER}
    for arguments in (
        ("evaluate", "out"),
        ("report", "out"),
        ("export", "out", "--to", "csv"),
    ):
        done = sudo(folder, *arguments, "--quiet")
        assert done.returncode == 0, (arguments, done.stderr)
    assert set(owners(folder / "out").values()) == {USER}
    assert (folder / "out/report/index.html").exists()


def test_what_root_can_read_alone_is_not_read_for_the_caller(folder: Path) -> None:
    """A link in the caller's folder leads nowhere that the caller may not go."""
    secret = folder.parent / "secret"
    secret.write_text("{}")
    secret.chmod(0o600)
    (folder / "out").mkdir()
    os.chown(folder / "out", USER, USER)
    done = sudo(folder, "report", "out")
    (folder / "out/experiment.yaml").symlink_to(secret)
    (folder / "out/plan.json").symlink_to(secret)
    linked = sudo(folder, "report", "out")
    assert linked.returncode == done.returncode == 2
    assert secret.read_text() == "{}"
    assert not set(owners(folder / "out").values()) - {USER, 0}


@pytest.mark.slow
def test_results_in_a_folder_of_root_stay_root_s(folder: Path) -> None:
    """Neither is a folder given away that the caller could not have made, nor a linked file."""
    root = folder.parent / "root"
    root.mkdir(mode=0o755)
    (folder / "lab.yaml").write_text(EXPERIMENT)
    done = sudo(folder, "run", "lab.yaml", "--out", root / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    assert set(owners(root).values()) == {0}
    assert sudo(folder, "evaluate", root / "out", "--quiet").returncode == 0


def test_a_file_with_another_name_is_not_given_away(folder: Path) -> None:
    kept, out = folder.parent / "kept", folder / "out"
    kept.write_text("root's")
    out.mkdir()
    (out / "other").hardlink_to(kept)
    (out / "link").symlink_to(kept)
    (out / "own").write_text("")
    give(out, Caller(USER, USER))
    assert kept.stat().st_uid == 0
    assert owners(out) == {"other": 0, "link": USER, "own": USER}


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
from tailtap.host.changes.systemd import Folder
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

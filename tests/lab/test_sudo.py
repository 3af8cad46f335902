"""What sudo runs: results are the caller's, and what only computes runs as the caller."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespaces import TAILTAP

from tailtap.cli.caller import Caller, give

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
    """A folder of the user, in one that all may pass."""
    made = Path(tempfile.mkdtemp(prefix="tailtap-sudo-", dir="/tmp"))
    made.chmod(0o755)
    home = made / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    (made / "mounts").mkdir()
    yield home
    shutil.rmtree(made)


def sudo(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`tailtap` as sudo starts it for the user."""
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
    assert done.returncode == 0, done.stderr
    assert (folder / "out").stat().st_uid == USER
    assert set(owners(folder / "out").values()) == {USER}
    for arguments in (
        ("evaluate", "out"),
        ("report", "out", "--no-figures"),
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

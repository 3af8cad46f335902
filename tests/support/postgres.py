"""A PostgreSQL server of our own: a new cluster, a Unix socket, no network, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, of the newest version, or None."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    if folders:
        return folders[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _version(initdb: Path) -> int:
    digits = initdb.parents[1].name.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


@contextmanager
def cluster(binaries: Path) -> Iterator[str]:
    """The address of a running server, stopped and removed at the end.

    PostgreSQL refuses to run as root: as root it runs as the user ``postgres``.
    """
    folder = Path(tempfile.mkdtemp(prefix="tt-pg-"))
    prefix: list[str] = []
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        prefix = [
            "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
        ]  # fmt: skip

    def run(program: str, *arguments: str) -> None:
        command = [*prefix, str(binaries / program), *arguments]
        done = subprocess.run(
            command, cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert done.returncode == 0, done.stdout.decode()

    data = str(folder / "data")
    try:
        run("initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        log = str(folder / "log")
        run("pg_ctl", "-D", data, "-w", "-t", "60", "-l", log, "-o", options, "start")
        try:
            yield f"postgresql:///postgres?host={folder}&user=tester"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)

"""What the lab tests share: the program, experiments, and a machine of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tailtap.host import CommandFailed, Host

TAILTAP = (sys.executable, "-P", "-m", "tailtap")
PATIENCE_SECONDS = 60.0

STAMP = np.dtype([("time_ns", "<u8"), ("id", "<u4"), ("length", "<u2"), ("flags", "<u2")])
HEADER_BYTES = 64


class Machine:
    """A view of this machine with network namespaces of its own: nobody else's are in reach."""

    def __init__(self, holder: int) -> None:
        self._enter = ("nsenter", "--target", str(holder), "--mount", "--net", "--")

    def command(self, *words: str) -> list[str]:
        return [*self._enter, *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=120, check=False
        )

    def tailtap(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(*TAILTAP, *words)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*TAILTAP, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start_in(self, namespace: str, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command("ip", "netns", "exec", namespace, *words))

    def namespaces(self) -> list[str]:
        return [line.split()[0] for line in self.run("ip", "netns", "list").stdout.splitlines()]

    def pids(self, namespace: str) -> list[int]:
        """The processes in a namespace."""
        return [int(pid) for pid in self.run("ip", "netns", "pids", namespace).stdout.split()]

    def received(self, namespace: str, port: str) -> int:
        shown = self.run("ip", "-n", namespace, "-s", "-j", "link", "show", "dev", port).stdout
        return int(json.loads(shown)[0]["stats64"]["rx"]["packets"]) if shown else 0


@contextlib.contextmanager
def own_machine() -> Iterator[Machine]:
    """Folders for namespaces and journals that only the commands of this machine see."""
    hide = "mkdir -p /run/netns /run/tailtap && mount -t tmpfs tt-netns /run/netns && "
    hide += "mount -t tmpfs tt-state /run/tailtap && echo ready && exec sleep infinity"
    holder = subprocess.Popen(
        ["unshare", "--mount", "--net", "sh", "-c", hide], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield Machine(holder.pid)
    finally:
        holder.kill()
        holder.communicate()


@contextlib.contextmanager
def small_disk(folder: Path, room: int) -> Iterator[Path]:
    """A file system in `folder` with room for so many bytes."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tt-test-small", str(disk)]
    subprocess.run(mount, check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@contextlib.contextmanager
def limited_memory(room: int) -> Iterator[Path]:
    """A control group whose processes get so many bytes of memory, the kernel's for them included.

    Skips the test where the machine has no memory controller.
    """
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"tt-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / limit).exists():
                break
            group.rmdir()
    else:
        pytest.skip("no control group can limit memory here")
    try:
        (group / limit).write_text(str(room))
        yield group
    finally:
        group.rmdir()


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.02)


def write_experiment(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text)
    return path


def record(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "run.json").read_text())
    return content


def statuses(out: Path) -> list[str]:
    return [record(run)["status"] for run in sorted((out / "runs").iterdir())]


def check_files(host: Host, folder: Path) -> None:
    """Files go to a host with a file system of its own and come back; this machine's stays."""
    content = bytes(range(256)) * 1000
    (folder / "a").write_bytes(content)
    host.put(folder / "a", Path("/root/a b"))
    host.get(Path("/root/a b"), folder / "b")
    assert (folder / "b").read_bytes() == content
    assert not Path("/root/a b").exists()
    with pytest.raises(CommandFailed, match="No such file"):
        host.get(Path("/root/none"), folder / "c")


def stamps(path: Path) -> NDArray[np.void]:
    """The records of a stamp file, read independently of tailtap."""
    return np.frombuffer(path.read_bytes()[HEADER_BYTES:], dtype=STAMP)

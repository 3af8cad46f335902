"""What the lab tests share: the program, experiments, and a machine of their own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from children import child, speaking
from numpy.typing import NDArray
from program import tailtap

from tailtap.host.net.namespaces import shown
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.lab import Lab
from tailtap.remote import CommandFailed, Host

TAILTAP = (sys.executable, "-P", "-m", "tailtap")
PATIENCE_SECONDS = 60.0
"""How long anything may take that takes a moment on an idle machine."""
IS_VIRTUAL = " hypervisor " in Path("/proc/cpuinfo").read_text(encoding="utf-8")
"""Whether a host takes our CPUs when it likes: the guest does not see all of that."""

STAMP = np.dtype([("time_ns", "<u8"), ("id", "<u4"), ("length", "<u2"), ("flags", "<u2")])
HEADER_BYTES = 64


Place = Literal["probe", "traffic"]
HELD = """
import sys, time
from pathlib import Path
from tailtap.cli import main
from tailtap.measure import run as measure

place, number, flag = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
del sys.argv[1:4]
name = {"probe": "_probe", "traffic": "_wait"}[place]
go_on, calls = getattr(measure, name), 0

def held(*arguments):
    global calls
    calls += 1
    if calls == number:
        flag.touch()
        while flag.exists():
            time.sleep(0.01)
    return go_on(*arguments)

setattr(measure, name, held)
main()
"""
"""`tailtap`, which stands still at a place as long as a file is there."""


@dataclass(frozen=True)
class Held:
    """A `tailtap` that stands still, and the file that says so."""

    process: subprocess.Popen[str]
    flag: Path

    def go_on(self) -> None:
        """Let it go on."""
        self.flag.unlink()

    def kill(self, *, group: bool = False) -> None:
        """Kill it where it stands, and what it has started where that is in its group."""
        (os.killpg if group else os.kill)(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ended(self) -> tuple[int, str]:
        """Its exit status and what it said on standard error, once it has ended."""
        _, said = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, said


class Machine:
    """A view of this machine with network namespaces of its own: nobody else's are in reach."""

    def __init__(self, holder: int) -> None:
        self.pid = holder
        """A process in its namespaces."""
        self._enter = ("nsenter", "--target", str(holder), "--mount", "--net", "--")

    def command(self, *words: str) -> list[str]:
        return [*self._enter, *words]

    def run(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=seconds, check=False
        )

    def tailtap(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        return tailtap(*words, timeout=seconds, beside=self.pid)

    def cleaned(self, what: str = "removed") -> list[tuple[str, str]]:
        """Kinds and names of what `tailtap clean` removes, or keeps."""
        done = self.tailtap("clean", "--json")
        assert done.returncode == 0, done.stderr
        return [(row["kind"], row["name"]) for row in json.loads(done.stdout)[what]]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*TAILTAP, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @contextlib.contextmanager
    def held(
        self,
        folder: Path,
        *words: str,
        number: int = 1,
        place: Place = "traffic",
        patience: float = PATIENCE_SECONDS,
        first: str = "",
    ) -> Iterator[Held]:
        """An experiment or a search that stands still in its run or trial `number`.

        So nothing that a test does to it can come too late. It stands where packets are sent and
        it would wait for their end, or right before the first packet of all, the ``probe``; until
        it is told to go on, is interrupted, or the body ends, which kills it. It may take so many
        seconds of `patience` to come there. It runs the lines of Python in `first` before all.
        """
        flag = folder / "held"
        command = self.command(
            sys.executable, "-P", "-c", first + HELD, place, str(number), str(flag)
        )
        pipe = subprocess.PIPE
        with child(
            [*command, *words], stdout=pipe, stderr=pipe, text=True, start_new_session=True
        ) as running:
            there = f"{place} {number}"
            wait_for(lambda: flag.exists() or running.poll() is not None, there, patience)
            assert running.poll() is None, running.communicate()
            yield Held(running, flag)

    def beside(
        self, namespace: str, *words: str, **options: Any
    ) -> contextlib.AbstractContextManager[subprocess.Popen[Any]]:
        """A program in a namespace while the body runs."""
        return child(self.command("ip", "netns", "exec", namespace, *words), **options)

    def namespaces(self) -> list[str]:
        return [line.split()[0] for line in self.run("ip", "netns", "list").stdout.splitlines()]

    def pids(self, namespace: str) -> list[int]:
        """The processes in a namespace."""
        return [int(pid) for pid in self.run("ip", "netns", "pids", namespace).stdout.split()]

    def received(self, namespace: str, port: str) -> int:
        shown = self.run("ip", "-n", namespace, "-s", "-j", "link", "show", "dev", port).stdout
        return int(json.loads(shown)[0]["stats64"]["rx"]["packets"]) if shown else 0


def received(lab: Lab, port: Port) -> int:
    """Packets that a port of a lab has received since it exists."""
    where = ("-n", lab.name_of(port.node), "-s", "-j")
    [row] = shown("ip", *where, "link", "show", "dev", port.name)
    return int(row["stats64"]["rx"]["packets"])


@contextlib.contextmanager
def own_machine() -> Iterator[Machine]:
    """Folders for namespaces and journals that only the commands of this machine see."""
    hide = "mkdir -p /run/netns /run/tailtap && mount -t tmpfs tt-netns /run/netns && "
    hide += "mount -t tmpfs tt-state /run/tailtap && mkdir -p /var/lib/tailtap && "
    hide += "mount -t tmpfs tt-state /var/lib/tailtap && echo ready && exec sleep infinity"
    with speaking(["unshare", "--mount", "--net", "sh", "-c", hide]) as holder:
        yield Machine(holder.pid)


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


@contextlib.contextmanager
def turn_for_huge_pages() -> Iterator[None]:
    """Nobody else who asks for a turn reserves huge pages meanwhile.

    Labs with journals of their own do not wait for each other, and each would count the pages that
    the other is just being given.
    """
    with Path(tempfile.gettempdir(), "tt-test-huge-pages").open("w", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def was_made(
    done: subprocess.CompletedProcess[str] | subprocess.Popen[str], stderr: str | None = None
) -> bool:
    """Whether a `tailtap run` or `search` that has ended made all its runs, or has status 0.

    A machine whose time is taken makes runs invalid, as their generator was late. That is exit
    status 3, and no matter of tests that ask what a run consists of.
    """
    said = str(done.stderr if stderr is None else stderr)
    # On a terminal a sentence has several lines.
    invalid = re.search(r"tailtap: \d+ of \d+ runs (is|are) invalid, ", " ".join(said.split()))
    return done.returncode == 0 or (done.returncode == 3 and invalid is not None)


def processes(*words: str) -> list[int]:
    """The processes, but this one, that have one of these texts in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if any(word in line for word in words) and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def wait_for(
    condition: Callable[[], object], what: str, patience: float = PATIENCE_SECONDS
) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.02)


def write_experiment(folder: Path, text: str) -> Path:
    """The file of an experiment, whose runs stay valid however late their generator is.

    Beside other tests it has no CPU of its own. Tests of that say how late it may be.
    """
    path = folder / "experiment.yaml"
    if "slip_limit" not in text:
        text = text.replace("traffic: {", "traffic: {slip_limit: 1 s, ", 1)
    path.write_text(text)
    return path


def record(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "run.json").read_text())
    return content


@dataclass(frozen=True)
class Ran:
    """A `tailtap run` that has ended, on a machine of its own."""

    out: Path
    done: subprocess.CompletedProcess[str]

    @property
    def runs(self) -> list[Path]:
        """The folders of its runs."""
        return sorted((self.out / "runs").iterdir())

    @property
    def run(self) -> Path:
        """That of its only run."""
        [only] = self.runs
        return only

    @property
    def record(self) -> dict[str, Any]:
        return record(self.run)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [record(run) for run in self.runs]

    @property
    def said(self) -> list[dict[str, Any]]:
        """The runs that it printed as JSON."""
        said: list[dict[str, Any]] = json.loads(self.done.stdout)["runs"]
        return said


def ran(
    folder: Path, text: str, *words: str, machine: Machine | None = None, seconds: float = 120
) -> Ran:
    """`tailtap run` of an experiment in `folder`, which may fail but leaves no namespace behind.

    On `machine`, or on one of its own.
    """
    if machine is None:
        with own_machine() as own:
            return ran(folder, text, *words, machine=own, seconds=seconds)
    command = ("run", str(write_experiment(folder, text)), "--out", str(folder / "out"), *words)
    done = machine.tailtap(*command, seconds=seconds)
    assert machine.namespaces() == []
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(folder / "out", done)


def measured(
    folder: Path, text: str, *words: str, machine: Machine | None = None, seconds: float = 120
) -> Ran:
    """The same where all runs must be made."""
    made = ran(folder, text, *words, machine=machine, seconds=seconds)
    assert was_made(made.done), made.done.stderr
    return made


def statuses(out: Path) -> list[str]:
    return [record(run)["status"] for run in sorted((out / "runs").iterdir())]


def counts_of(run: Path) -> dict[str, Any]:
    """What became of a run's packets, by its stored evaluation."""
    content: dict[str, Any] = json.loads((run / "evaluation/evaluation.json").read_text())["counts"]
    return content


def check_hops(run: Path) -> list[str]:
    """The nodes of a run's hops; each packet took for each what its stamps there are apart."""
    points = record(run)["instruments"]["taps"]["points"]
    captures = [stamps(run / point["file"]) for point in points]
    times = np.array([capture["time_ns"][np.argsort(capture["id"])] for capture in captures])
    took = np.diff(times.astype(np.int64), axis=0)
    assert (took > 0).all()
    for packet in json.loads((run / "evaluation/evaluation.json").read_text())["worst"]:
        assert packet["hops"] == took[:, int(packet["key"])].tolist()
        assert sum(packet["hops"]) == packet["latency"]
    return [point["before"] for point in points[:-1]]


def all_came(run: Path, packets: int) -> bool:
    """Whether so many packets came through and none was lost."""
    counts = counts_of(run)
    return (counts["matched"], counts["lost"]) == (packets, 0)


def ids_of(run: Path, side: str = "egress") -> list[int]:
    """The ids of the packets that were stamped on a side, in the order of their stamps."""
    ids: list[int] = stamps(run / f"{side}.stamps")["id"].tolist()
    return ids


def codes_of(run: Path) -> set[str]:
    """The codes of a run's warnings."""
    return {warning["code"] for warning in record(run)["warnings"]}


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


def frames_of(path: Path) -> list[tuple[int, int, bytes]]:
    """Time in ns, length on the wire and bytes of each packet, read without tailtap."""
    data = path.read_bytes()
    assert data[:4] == bytes.fromhex("4d3cb2a1")
    at, found = 24, []
    while at < len(data):
        seconds, ns, kept, wire = np.frombuffer(data[at : at + 16], "<u4").tolist()
        found.append((seconds * 1_000_000_000 + ns, wire, data[at + 16 : at + 16 + kept]))
        at += 16 + kept
    assert at == len(data)
    return found

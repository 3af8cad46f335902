"""Network namespaces called tt-test-…, and tailtap commands that run inside them. Needs root."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from labtools import PATIENCE_SECONDS
from numpy.typing import NDArray
from program import TAILTAP as PROGRAM
from program import tailtap
from stamps import read_stamps

TAILTAP = str(PROGRAM)
CLOCKS = {"monotonic": 1, "hardware": 2, "realtime": 3}
"""The numbers of clocks in a file of stamps."""


class Running:
    """A `tailtap` command in the background that printed its ready line."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        # A command that never gets ready must not hang the test.
        watchdog = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        watchdog.start()
        line = self._output.readline()
        watchdog.cancel()
        assert line, self.process.communicate()[1]
        assert json.loads(line)["event"] == "ready"

    @property
    def _output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def stop(self, how: signal.Signals = signal.SIGINT) -> Any:
        """Stop it and return its last line, parsed."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        out, err = self.ended()
        assert self.process.returncode == 0, err
        return json.loads(out)

    def ended(self) -> tuple[str, str]:
        """What it said on standard output and error, once it has ended by itself."""
        return self.process.communicate(timeout=PATIENCE_SECONDS)


@dataclass(frozen=True)
class Sent:
    """What a generator reports, what the tap behind it counted, and the file of its stamps."""

    report: dict[str, Any]
    link: dict[str, Any]
    path: Path

    @property
    def counts(self) -> tuple[int, ...]:
        """Packets that were seen, stored, lost, and no packets of the generator's."""
        return tuple(self.link[name] for name in ("seen", "stored", "lost", "other"))

    @property
    def stamps(self) -> NDArray[Any]:
        return read_stamps(self.path, clock=CLOCKS[self.link["clock"]])[1]

    def since_due_ns(self, gap_ns: int) -> NDArray[np.int64]:
        """How long after it was due each packet was stamped, which are due `gap_ns` apart."""
        stamps = self.stamps
        due = self.report["first_ns"] + gap_ns * np.arange(len(stamps), dtype=np.int64)
        late: NDArray[np.int64] = stamps["time"].astype(np.int64) - due
        return late


class Namespace:
    """A network namespace for a test, with IPv6 off so that nobody else sends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.running: list[Running] = []
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command inside."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        return subprocess.run(
            self.inside(*command),
            check=check,
            capture_output=True,
            text=True,
            timeout=120,
            start_new_session=True,  # so that the generator's priority counts
        )

    @contextlib.contextmanager
    def sniffer(self, interface: str, packets: int, capture: Path) -> Iterator[None]:
        """A tshark that writes so many packets into a pcap; it has listened when the body ends.

        It says that it captures a little before it listens, so that the first may be missed.
        """
        command = ("tshark", "-q", "-i", interface, "-c", str(packets), "-a", "duration:20")
        process = subprocess.Popen(
            self.inside(*command, "-F", "pcap", "-w", str(capture)),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "Capture started" in line or "Capturing" in line:
                    break
            yield
            process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
            process.communicate()

    def received(self, interface: str) -> int:
        """Packets that an interface has received since it exists."""
        shown = self.run("ip", "-s", "-j", "link", "show", "dev", interface).stdout
        return int(json.loads(shown)[0]["stats64"]["rx"]["packets"])

    def tailtap(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a tailtap command inside."""
        return self.run(TAILTAP, *arguments, check=check)

    def refuses(self, *commands: tuple[str, int, str]) -> None:
        """Fails unless each `tailtap` command line ends with its status and says so in one line."""
        with subprocess.Popen(self.inside("sleep", "infinity")) as holder:
            try:
                for words, status, said in commands:
                    done = tailtap(*shlex.split(words), beside=holder.pid)
                    told = (done.returncode, done.stderr.count("\n"))
                    assert told == (status, 1), (words, done.stderr)
                    assert said in done.stderr.replace('"', "'"), (words, done.stderr)
            finally:
                holder.kill()

    def sent(
        self,
        folder: Path,
        *words: str,
        tap: Sequence[str] = (),
        link: str = "in:drop",
        mtu: int = 1500,
    ) -> Sent:
        """Send on the first cable by the generator's `words`; its end is tapped into `folder`."""
        for end in ("gen", "in"):
            self.run("ip", "link", "set", end, "mtu", str(mtu))
        tapped, path = self.tapped(folder, *tap, link=link)
        report = json.loads(self.tailtap("generate", "gen", *words, "--json").stdout)
        return Sent(report, tapped.stop()["links"]["in"], path)

    def start(self, *arguments: str) -> Running:
        """Start a tailtap command inside and wait until it is ready."""
        started = Running(self.inside(TAILTAP, *arguments, "--json"))
        self.running.append(started)
        return started

    def cabled(self) -> Namespace:
        """With two cables that are up: from `gen` to `in`, and from `out` to `far`."""
        pairs = (("gen", "in"), ("out", "far"))
        lines = [f"link add {one} type veth peer name {other}" for one, other in pairs]
        lines += [f"link set {end} up" for pair in pairs for end in pair]
        command = ["ip", "-n", self.name, "-batch", "-"]
        subprocess.run(command, input="\n".join(lines), check=True, text=True)
        return self

    def tapped(
        self, folder: Path, *options: str, link: str = "in:drop", name: str = "in.stamps"
    ) -> tuple[Running, Path]:
        """A tap on the cable from `gen`, and the file in `folder` that it writes."""
        path = folder / name
        return self.start("tap", link, "--write", str(path), *options), path

    def veth(self, one: str, other: str, peer: Namespace | None = None) -> None:
        """Make a pair of links, the second one in `peer` if given; both are brought up."""
        far = (peer or self).name
        pair = ["link", "add", one, "type", "veth", "peer", "name", other, "netns", far]
        subprocess.run(["ip", "-n", self.name, *pair], check=True)
        for name, link in ((self.name, one), (far, other)):
            subprocess.run(["ip", "-n", name, "link", "set", link, "up"], check=True)

    def remove(self) -> None:
        """Kill what still runs inside, and delete it."""
        for running in self.running:
            running.process.kill()
            running.process.communicate()
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


class Lab:
    """Makes namespaces called tt-test-…"""

    def __init__(self) -> None:
        self.namespaces: list[Namespace] = []

    def namespace(self) -> Namespace:
        """A new namespace."""
        number = len(self.namespaces)
        self.namespaces.append(Namespace(f"tt-test-{os.getpid()}-{number}"))
        return self.namespaces[-1]

"""What a run gives its forwarder, what that needs from a machine, and programs that forward.

A program is another project's: started on the DuT's host, watched, its log kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from tailtap.base.errors import Check, Findings, MachineError, TailtapError
from tailtap.base.locks import wait_until
from tailtap.base.proc import Stat, parse_stat
from tailtap.base.schema import NoOptions
from tailtap.host.changes.systemd import Folder
from tailtap.host.facts.needs import missing_capabilities
from tailtap.lab.generators.flows import Version
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import PLATFORMS, alike, build, graph_of
from tailtap.lab.platforms.dut import Dut, DutSpec
from tailtap.lab.served import Served, is_running, threads_of
from tailtap.lab.topology.graphs import FORWARD
from tailtap.lab.topology.lab import Lab
from tailtap.records.record import Notice
from tailtap.remote import Host, ProgramMissing
from tailtap.remote.local import SYSTEM_PATH, LocalHost, Process

READY_SECONDS = 2.0
"""Seconds until the first packet must have come through a forwarder in the kernel."""


Serves: TypeAlias = Literal["pair", "ports", "flows", "clients"]
"""`pair`: nodes with two ports. `ports`: nodes where all that comes in at a port leaves by the same
other one. `flows`: nodes where each flow goes its own way. `clients`: a node with one port, which
answers what comes in."""

RouteBy: TypeAlias = Literal["address", "port"]


@dataclass(frozen=True)
class Asked:
    """What a run asks its forwarder for; known before anything is started."""

    largest: int
    """Bytes of the largest packet, check sequence included."""
    cpus: int
    cards: Sequence[str]
    """The network cards that are its ports; empty for links of the lab."""
    own_kernel: bool
    own_files: bool = False
    """Whether it has none of this machine's files."""
    iommu: bool = False
    """Whether the ports of a virtual machine are behind an IOMMU."""


@dataclass(frozen=True)
class Setting:
    """The run that a forwarder works for."""

    lab: Lab
    folder: Path
    """The run folder on this machine: logs go there."""
    flows: Mapping[str, Traffic]
    route_by: RouteBy = "port"
    """By what routers tell flows apart."""
    in_line: bool = False
    """Whether other nodes have forwarders as well."""

    @property
    def ip(self) -> Version:
        """The version of IP, which all flows have in common."""
        return next(iter(self.flows.values())).ip

    @property
    def largest(self) -> int:
        """Bytes of the largest packet, check sequence included."""
        return max(size for traffic in self.flows.values() for size in traffic.sizes)

    def part(self, dut: Dut) -> str:
        """What comes behind the names of the things of one node."""
        return f"-{dut.node}" if self.in_line else ""

    def asked(self, dut: Dut) -> Asked:
        cards = list(self.lab.graph.cards_of(dut.node).values())
        return Asked(
            self.largest,
            len(dut.cpus),
            cards,
            dut.host.own_kernel,
            dut.own is not None,
            bool(dut.facts.get("iommu")),
        )


@dataclass(frozen=True)
class Need:
    """A program that a forwarder runs, and how to get it."""

    program: str
    remedy: str

    def find(self, host: Host) -> str:
        """Its path on `host`. Raises `ProgramMissing`."""
        ask = f'PATH="{SYSTEM_PATH}:$PATH" command -v -- {shlex.quote(self.program)}'
        found = host.run(["sh", "-c", ask], check=False).stdout.strip()
        if not found:
            raise ProgramMissing(Path(self.program).name, self.remedy, host=host.name)
        return found


CpuTime = Mapping[str, int]
"""CPU time in ns by `user` and `system`."""


class Plain:
    """What holds of a forwarder that says nothing else: a program between two ports, which has its
    CPUs for itself, and of which only a run shows whether it works here.
    """

    name: str
    remedy = ""
    """What to do where the kernel refuses it, for one that is tried in a lab."""
    required = False
    in_kernel = False
    routes = False
    serves: Serves = "pair"
    shares_cpus = False
    Options: type[BaseModel] = NoOptions
    needs: Sequence[Need] = ()

    def diagnose(self) -> Iterator[Check]:
        if not self.remedy:
            return find_programs(self.name, self.needs)
        return try_in_lab(self.name, self.attempt, self.remedy, required=self.required)

    def attempt(self, dut: Dut, setting: Setting) -> str:
        """Set it up in a lab, and say what was found. Raises `TailtapError`."""
        for need in self.needs:
            need.find(LocalHost())
        self.start(dut, self.Options(), setting).close()
        return "was set up in a lab"

    def foresee(self, options: Any, asked: Asked, findings: Findings) -> None:
        """Nothing."""

    def start(self, dut: Dut, options: Any, setting: Setting) -> Any:
        raise NotImplementedError


OTHER_KERNEL = "another kernel; see docs/reference/forwarders.md"
AREA = "forwarders"
PROBE_CPU = 0


def find_programs(name: str, needs: Sequence[Need]) -> Iterator[Check]:
    """Whether the programs of the forwarder `name` are there."""
    try:
        paths = [need.find(LocalHost()) for need in needs]
    except ProgramMissing as error:
        yield Check(AREA, name, "missing", error.what, error.remedy)
        return
    yield Check(AREA, name, "ok", ", ".join(paths) or "needs nothing of its own")


def try_in_lab(
    name: str,
    attempt: Callable[[Dut, Setting], str],
    remedy: str,
    *,
    required: bool,
) -> Iterator[Check]:
    """Whether the kernel lets the forwarder `name` work, found out in a lab that is removed.

    `attempt` returns what it found, or raises `TailtapError`.
    """
    if os.geteuid() != 0 or missing_capabilities():
        found = "only root can try it"
        yield Check(AREA, name, "untested", found, "run it with sudo", required)
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-"))
        try:
            platform = PLATFORMS["bare-metal"]
            spec = DutSpec((PROBE_CPU,), platform.Options())
            lab = stack.enter_context(Lab(graph_of(alike(platform, spec))))
            [dut] = build(lab, alike(platform, spec))
            lab.wait_until_up()
            found = attempt(dut, Setting(lab, Path(folder), {FORWARD: Traffic()}))
        except TailtapError as error:
            yield Check(AREA, name, "missing", str(error.but(remedy="")), remedy, required)
            return
    yield Check(AREA, name, "ok", found, required=required)


STOP_SECONDS = 15.0
"""How long a program may take to end after it was asked to."""
LAST_LINES = 3
MAX_QUOTED = 600

# The program replaces the shell: its process id is known, and signals reach it. The host reads a
# descriptor that is closed when the program ends. DPDK puts its sockets into RUNTIME_DIRECTORY and
# leaves them there.
_START = """folder=$1 && shift && mkfifo "$folder/stdin" && echo $$ > "$folder/pid" || exit 1
export RUNTIME_DIRECTORY="$folder"
exec 0<> "$folder/stdin"; exec "$@" 3>&1 > "$folder/log" 2>&1"""
# Daemons close what they do not know, and with it the descriptor by which their end is seen. So the
# shell stays, and ends when they do. To be interrupted is something else to some of them.
_HOLD = """folder=$1 && shift && mkfifo "$folder/stdin" || exit 1
env --default-signal=INT,TERM "$@" 0<> "$folder/stdin" > "$folder/log" 2>&1 &
held=$!; echo $held > "$folder/pid"; trap 'kill $held' INT TERM
while kill -0 $held 2> /dev/null; do wait $held; status=$?; done; exit $status"""
_STATS = """set -- $(cat "$1/pid")
while [ $# -gt 0 ]; do
    cat "/proc/$1/stat"; set -- "$@" $(cat /proc/$1/task/*/children); shift
done 2> /dev/null"""
_TROUBLE = re.compile(
    r"\berror|\bcause\b|\bfatal|\bcannot\b|\bfailed|\bunable\b|\binvalid|^E: |not found", re.I
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class WorkFolder:
    """A folder on the DuT's host for one forwarder. Use it as a context; leaving removes it."""

    def __init__(self, dut: Dut, setting: Setting) -> None:
        self.host = dut.host
        self.setting = setting
        name = f"forwarder{setting.part(dut)}"
        self.path = Path(f"/tmp/tt-{setting.lab.journal.identity}-{name}")
        self.log_name = f"{name}.log"
        """What the program's log is called in the run folder."""
        self._made = contextlib.ExitStack()

    def __enter__(self) -> WorkFolder:
        if self.host.own_files:
            self.host.run(["mkdir", "-m", "700", str(self.path)])
        else:
            journal = self.setting.lab.journal
            self._made.enter_context(journal.held(Folder(str(self.path))))
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()
        with contextlib.suppress(MachineError):
            self.host.run(["rm", "-rf", str(self.path)], check=False)

    def put(self, name: str, text: str) -> Path:
        """Write a file; its path on the host."""
        target = self.path / name
        with tempfile.NamedTemporaryFile(
            "w", suffix=f"-{name}", encoding="utf-8", errors="surrogateescape"
        ) as file:
            file.write(text)
            file.flush()
            self.host.put(Path(file.name), target)
        return target

    def log(self) -> list[str]:
        """The lines that the program wrote so far, empty ones left out."""
        text = self.host.run(["cat", str(self.path / "log")], check=False).stdout
        lines = (" ".join(_COLOURS.sub("", line).split()) for line in text.splitlines())
        return [line for line in lines if line]

    def keep_log(self) -> bool:
        """Copy the log into the run folder; False when there is none."""
        with contextlib.suppress(OSError, MachineError):
            self.host.get(self.path / "log", self.setting.folder / self.log_name)
            return True
        return False


class Program:
    """A program that forwards."""

    def __init__(
        self,
        work: WorkFolder,
        name: str,
        command: Sequence[str],
        *,
        stack: contextlib.ExitStack,
        ready_seconds: float,
        version: re.Pattern[str] | None = None,
        facts: Mapping[str, Any] | None = None,
        holds_ns: int = 0,
        polls: bool = False,
        called: str = "forwarder",
        held: bool = False,
        counted: Callable[[Sequence[str]], Mapping[str, Any]] | None = None,
    ) -> None:
        """Start `command`; it may take `ready_seconds` until its first packet.

        `version` finds the version in its log, `facts` go into the record as they are. `stack`
        is closed when the program has ended; it should contain the work folder. `holds_ns` is the
        longest time that the program keeps a packet on purpose. One that `polls` never waits for
        packets. Messages have what it is `called` before its `name`. A
        daemon, which may close every descriptor, is `held` by a shell. `counted` finds further
        facts in the log of the program that has ended.
        """
        self.ready_seconds, self.holds_ns = ready_seconds, holds_ns
        self.warnings: list[Notice] = []
        self._work, self._name, self._command = work, f"{called} {name}", list(command)
        self._version, self._facts = version, dict(facts or {})
        self._polls, self._counted, self._log_kept = polls, counted, False
        self.process: Process = work.host.start(
            ["sh", "-c", _HOLD if held else _START, name, str(work.path), *command]
        )
        self._stack = stack.pop_all()

    def tell(self, facts: Mapping[str, Any], *warnings: Notice) -> None:
        """Add what was found out since it was started."""
        self._facts |= facts
        self.warnings += warnings

    def served(self) -> Served:
        """By its threads; of a program that polls by those that run."""
        threads = threads_of(self.process.pid)
        if not self._polls:
            return Served("task", threads)
        return Served("poll", [thread for thread in threads if is_running(thread)])

    def cpu_time(self) -> CpuTime | None:
        read = ["sh", "-c", _STATS, "stat", str(self._work.path)]
        lines = self._work.host.run(read, check=False).stdout.splitlines()
        times = [cpu_time(one) for line in lines if (one := parse_stat(line)) is not None]
        if not times:
            return None
        return {name: sum(one[name] for one in times) for name in times[0]}

    def failure(self) -> str:
        if not self.process.ended:
            return f"the {self._name} runs and lets nothing through{self._last_words()}"
        # The title of the process is that of the shell before it.
        return f"the {self._name} {self.process.ending()}{self._last_words()}"

    def _last_words(self) -> str:
        """The last lines of its log that tell of trouble, else the last ones, in one line."""
        lines = self._work.log()
        chosen = [line for line in lines if _TROUBLE.search(line)] or lines
        text = " / ".join(chosen[-LAST_LINES:])
        return f": {text[-MAX_QUOTED:]}" if text else " and said nothing"

    def stop(self) -> dict[str, Any]:
        self.process.interrupt()
        wait_until(lambda: self.process.ended, STOP_SECONDS, 0.01)
        status = self.process.status
        lines = self._work.log()
        matches = (self._version.search(line) for line in lines if self._version)
        version = next((match[1] for match in matches if match), None)
        counted = {} if self._counted is None else self._counted(lines)
        self.close()
        return {
            "version": version,
            "command": self._command,
            "exit_status": status,
            "log": self._work.log_name if self._log_kept else None,
            **self._facts,
            **counted,
        }

    def close(self) -> None:
        self.process.close()
        if not self._log_kept:
            self._log_kept = self._work.keep_log()
        self._stack.close()


def cpu_time(process: Stat) -> CpuTime:
    """User and system time in ns."""
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    user, system = map(int, process.fields[11:13])
    return {"user": user * tick_ns, "system": system * tick_ns}

"""The seam of what is observed during a run: start it on a scope, stop it, have a reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tailtap.base.errors import MachineError
from tailtap.host.cpu.cpus import Numa
from tailtap.lab.served import Served, Server
from tailtap.records.record import Notice
from tailtap.records.run import Facts
from tailtap.remote import Host
from tailtap.remote.local import Process

if TYPE_CHECKING:
    from tailtap.lab.instruments.events import Events


class Links(Protocol):
    """The links that a measurement hangs on."""

    def watch(self) -> Sequence[Process]:
        """Processes that print a line when a link is deleted."""

    def deleted_port(self, line: str) -> str | None:
        """The port that such a line says is gone; None for any other line."""

    def broken_ports(self) -> Sequence[object]:
        """Every port that is gone or carries no packets; as text, what is wrong with it."""


class Counters(Protocol):
    """Counters of processors that run as long as the site stands."""

    @property
    def asked(self) -> Events:
        """What is counted."""

    def read(self) -> Any:
        """All of them now."""

    def of_groups(self, groups: Sequence[Path]) -> AbstractContextManager[Counters]:
        """Counters of the same events that only count what these control groups do."""


@dataclass(frozen=True)
class Tracing:
    """What a trace of the DuT's cores should have."""

    mode: str
    """``thin`` or ``full``."""
    folder: Path
    """The run folder, which its files go into."""
    packets: int
    served: Sequence[Server]
    """By what they are served, for each node; empty where nothing forwards."""
    networks: Sequence[int] = ()
    """The inodes of the network namespaces that they pass, where softirqs serve them."""
    senders: Sequence[int] = ()
    """CPUs of this machine that hand packets over to the DuT's."""
    steered: bool = False
    """Whether packets come to the DuT's cores by function calls of other CPUs alone, and the kernel
    itself passes them on."""
    spare: int | None = None
    """A CPU that neither sends nor serves."""


@dataclass(frozen=True)
class Guest:
    """The virtual machine that the DuT is: a kernel of its own, to be traced in it."""

    host: Host
    cpus: Sequence[int]
    """Those of its CPUs that serve; the first one of all is for its own housekeeping."""
    ports: tuple[str, str]
    """Where packets come in, and where they go out."""
    key: str
    """Where packets carry their ids, as `tailtap tap --key`."""
    served: Served
    """By what its packets are served, its threads as its own kernel numbers them."""
    memory: int
    patience: float
    """How many times longer than on this machine anything may take in it."""


@dataclass(frozen=True)
class Scope:
    """What of a station is observed during one run."""

    dut_cpus: Sequence[int]
    """The CPUs that the DuT's work belongs on; empty where there is no DuT."""
    generator_cpus: Sequence[int]
    links: Links
    counting: Counters | None = None
    """None when nothing is to be counted."""
    forwarder: int | None = None
    """The process that forwards, as far as it is one of this kernel's."""
    tracing: Tracing | None = None
    """None when the kernel is not to be traced."""
    guest: Guest | None = None
    """Where the DuT is a virtual machine, and the kernel is to be traced."""
    folder: Path | None = None
    """Where files of the run go."""
    sampling_ns: int | None = None
    """The period at which interrupts are sampled; None when they are not."""
    interrupts: Mapping[str, tuple[str, Sequence[int]]] = field(default_factory=dict)
    """Those of the DuT's network cards by number: their port, and the CPUs they were sent to."""
    numa: Numa | None = None
    """The machine's NUMA nodes; None when they are not looked at."""
    groups: Sequence[Path] = ()
    """The control groups of the DuT, in the hierarchy in which events are counted."""


@dataclass(frozen=True)
class Reading:
    """What an instrument found out."""

    facts: Facts = field(default_factory=Facts)
    """Of ``run.json``."""
    warnings: Sequence[Notice] = ()
    files: Sequence[str] = ()
    """Names of files that it left in the run folder."""

    @property
    def found(self) -> dict[str, object]:
        """The facts that it has, by their keys in ``run.json``."""
        nothing = Facts()
        every = {name: getattr(self.facts, name) for name in Facts.__struct_fields__}
        return {key: value for key, value in every.items() if value != getattr(nothing, key)}


class Observation(Protocol):
    """An instrument at work."""

    def sources(self) -> Sequence[Process]:
        """What is readable when `trouble` should be asked; empty for what needs no waiting."""

    def trouble(self) -> str | None:
        """Why the run is worth nothing from now on, as one line; None when all is well."""

    def stop(self) -> Reading:
        """End it; what it found out. Raises `MachineError`."""

    def close(self) -> None:
        """Let go of everything, without a reading. May be called again."""


Instrument = Callable[[Scope], Observation | None]
"""One kind of instrument: it begins to observe, or has nothing to."""


class Quiet:
    """An observation that asks for no attention while it runs."""

    def sources(self) -> Sequence[Process]:
        return ()

    def trouble(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing is held."""


class Watching:
    """Told by the kernel when a link is deleted; asked at the end whether all of them carry.

    Its processes sleep until then: polling would disturb what is measured.
    """

    def __init__(self, scope: Scope) -> None:
        self._links = scope.links
        self._processes = list(self._links.watch())
        self._silent: set[Process] = set()

    def sources(self) -> Sequence[Process]:
        return [process for process in self._processes if process not in self._silent]

    def trouble(self) -> str | None:
        for process in self.sources():
            lines = process.read_available()
            if lines is None:
                self._silent.add(process)
            for line in lines or ():
                port = self._links.deleted_port(line)
                if port is not None:
                    return f"interface {port} vanished during the run"
        return None

    def stop(self) -> Reading:
        self.close()
        broken = self._links.broken_ports()
        if broken:
            raise MachineError(f"{broken[0]} during the run")
        return Reading()

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self._silent.update(self._processes)

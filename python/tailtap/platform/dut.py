"""What an experiment wants a device under test to be, and what a platform makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailtap.host import Host


@dataclass(frozen=True)
class Wanted:
    """What the experiment asks of the platform; None is for what it leaves open."""

    cpus: tuple[int, ...]
    """The CPUs that the DuT's work belongs on."""
    memory: int | None = None
    """What the DuT may use at most, in bytes."""
    cgroup: int | None = None
    """The version of the control group hierarchy that limits it, 1 or 2."""
    kernel: str | None = None
    """The kernel that it runs, by a name or the path of an image."""
    root: str | None = None
    """The root file system of a container, by its name."""
    boot: str = ""
    """What is on that kernel's command line; see `boot.filled_in`."""
    boot_without: frozenset[str] = frozenset()
    """Names of parameters that are not to be there."""
    huge_pages: bool = False
    """Whether the memory of a virtual machine is on huge pages."""
    both_ways: bool = False
    """Whether packets come in at both ports."""


@dataclass(frozen=True)
class Dut:
    """A host with two ports, and the CPUs that its work belongs on."""

    host: Host
    ingress: str
    egress: str
    cpus: tuple[int, ...]
    both_ways: bool = False
    """Whether a forwarder must also carry packets from `egress` to `ingress`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the platform read back of what it was asked for: `platform` in ``run.json``."""
    patience: float = 1.0
    """How many times longer than on this machine itself everything may take in it."""
    warnings: Sequence[Mapping[str, str]] = ()
    """Doubts about every measurement of it, as ``{"code", "message"}``."""

"""What an experiment asks a platform for, and the DuT that the platform gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from tailtap.lab.topology.line import DUT
from tailtap.lab.topology.placement import DEFAULT, Placement
from tailtap.remote import Host

Options_co = TypeVar("Options_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True)
class DutSpec(Generic[Options_co]):
    """What the experiment asks the platform for."""

    cpus: tuple[int, ...]
    """The CPUs that the DuT works on."""
    options: Options_co
    """An instance of the platform's `Options`."""
    varied: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The values, as written, that the runs of this experiment give to options that vary."""
    both_ways: bool = False
    """Whether packets come in at both ports."""
    tuned_boot: bool = False
    """Whether the kernel is booted with the parameters that the table of knobs recommends."""
    placement: Placement = DEFAULT
    """Where its packets are received."""
    node: str = DUT
    """The node of the graph that it is for."""
    routes: bool = True
    """Whether packets are addressed to it, as to a router."""
    alone: bool = True
    """Whether no other node and no neighbour works on its CPUs."""


Ways: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of ports: what comes in at the first is to leave by the second. Each pair is there once."""


@dataclass(frozen=True)
class Dut:
    """A host with ports, and the CPUs that it works on: one node of the graph."""

    host: Host
    ways: Ways
    """How packets pass it, in the order of the flows; there is one way at least."""
    cpus: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The settings as the platform read them back: `platform` in ``run.json``."""
    patience: float = 1.0
    """How many times longer than on this machine anything may take in it."""
    warnings: Sequence[Mapping[str, str]] = ()
    """Warnings about every measurement of it, as ``{"code", "message"}``."""
    threads: Sequence[int] = ()
    """The threads of this machine that its CPUs are, where these are virtual."""
    node: str = DUT
    """The node of the graph that it is."""

    @property
    def ingress(self) -> str:
        """The port at which packets of the first flow come in."""
        return self.ways[0][0]

    @property
    def egress(self) -> str:
        """The port by which they leave."""
        return self.ways[0][1]

    @property
    def both_ways(self) -> bool:
        """Whether packets also go from `egress` to `ingress`."""
        return (self.egress, self.ingress) in self.ways

    @property
    def ports(self) -> list[str]:
        """All ports that packets pass, in the order of the flows."""
        return list(dict.fromkeys(port for way in self.ways for port in way))

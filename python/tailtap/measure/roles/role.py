"""The seam of a role: questions in, answers and events out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from tailtap.experiment.model import Experiment
from tailtap.lab.generators.model import Traffic
from tailtap.lab.instruments.observing import Counters
from tailtap.lab.topology.lab import Lab
from tailtap.measure.roles.answers import Request
from tailtap.remote.process import Process
from tailtap.remote.session import RoleEvent, RolePlan

PLACE = Path("/var/tmp")
"""Where roles leave their files until these are fetched: stamps are too large for memory."""


@dataclass(frozen=True)
class Workbench:
    """What the roles of one site share: what stands there, and the experiment that it is for."""

    lab: Lab
    experiment: Experiment
    counting: Counters | None
    """Counters of processors, where the experiment asks for them."""

    def traffic(self, flow: str) -> Traffic:
        """What is sent as this flow."""
        return self.experiment.traffic_of(flow)


class Role(Protocol):
    """A role at work."""

    def requests(self) -> Mapping[str, Request]:
        """What it can be asked."""
        ...

    def sources(self) -> Sequence[Process]:
        """What is readable when `look` may find something."""
        ...

    def look(self) -> Sequence[RoleEvent]:
        """The events since the last look, without waiting. Not more than one that says an end."""
        ...

    def close(self) -> None:
        """End everything that it started. May be called again."""
        ...


Begin: TypeAlias = Callable[[Workbench, RolePlan], Role]
"""Begins a role on a site with its plan."""

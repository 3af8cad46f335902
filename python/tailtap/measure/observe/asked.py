"""What `tailtap observe` is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tailtap.lab.forwarders.served import Server
from tailtap.measure.observe.targets import Target

LOOK_NS = 1_000_000_000
BUDGET = 0.02


@dataclass(frozen=True)
class Asked:
    """One observation."""

    ingress: Target
    egress: Target | None = None
    """None: `ingress` is the only interface, and what comes in is answered there."""
    both: bool = False
    """Whether the way back is observed as well."""
    duration_ns: int | None = None
    packets: int | None = None
    """It ends when every tap has seen so many."""
    trace: str = "thin"
    """``thin``, ``full`` or ``none``."""
    cpus: Sequence[int] = ()
    """Where packets are served; empty: to be found out."""
    served: Sequence[Server] = ()
    """By what; empty: to be found out."""
    key: str | None = None
    """What packets are matched by; None: to be found out."""
    filter: str | None = None
    sample: int = 1
    budget: float | None = BUDGET
    """The share of the serving cores' time that observing may take; None: any."""
    look_ns: int = LOOK_NS
    """How long packets are looked at before, at least."""
    on_step: Callable[[str], object] = field(default=lambda step: None, compare=False)
    """Called with what is done before it begins: it may take a while."""

"""A run, and all that was found out about its late packets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tailtap.cause.guest import Guest
from tailtap.cause.joined import BEHIND, Joined
from tailtap.cause.labels import Labels
from tailtap.cause.periods import Period
from tailtap.cause.remedies import Knob
from tailtap.cause.segments import UNKNOWN
from tailtap.cause.taxonomy import Named
from tailtap.cause.trace import Trace
from tailtap.evaluation.values import Column, Warning
from tailtap.results.run import Run


@dataclass(frozen=True)
class Explained:
    """A run, and why its late packets were late."""

    run: Run
    trace: Trace
    joined: Joined
    labels: Labels
    periods: tuple[tuple[Named | None, Period], ...]
    warnings: tuple[Warning, ...]
    knobs: tuple[Knob, ...]
    met: frozenset[str]
    """Knobs that were as they should be while the run was measured."""
    guest: Guest | None = None
    """The guest that was traced as well."""
    control: Mapping[str, Any] | None = None
    """What the trace cost (`control.controls`); None where nothing says it."""

    @cached_property
    def behind(self) -> Column:
        """How many late packets were behind each stall."""
        joined = self.joined
        waited = joined.stall[(joined.state == BEHIND) & (joined.stall != UNKNOWN)]
        return np.bincount(waited, minlength=joined.stall_cpu.size).astype(np.int64)

    @cached_property
    def keys(self) -> Mapping[tuple[int, int], str]:
        """The keys of the worst packets, by ingress stamp and latency in ns."""
        worst = self.run.stored.worst()
        return {(packet.ingress_ns, packet.latency): packet.key for packet in worst}

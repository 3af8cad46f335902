"""A run, and all that was found out about its late packets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tailtap.analysis.causes.guest import Guest
from tailtap.analysis.causes.joined import BEHIND, Joined
from tailtap.analysis.causes.labels import Labels
from tailtap.analysis.causes.late import Late
from tailtap.analysis.causes.periods import Period
from tailtap.analysis.causes.remedies import Knob, Situation
from tailtap.analysis.causes.segments import UNKNOWN
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.causes.without import Removal
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.records.causes import Control
from tailtap.records.record import Notice


@dataclass(frozen=True)
class Explained:
    """A run, and why its late packets were late."""

    run: Run
    trace: Trace
    joined: Joined
    labels: Labels
    periods: tuple[tuple[Named | None, Period], ...]
    warnings: tuple[Notice, ...]
    knobs: tuple[Knob, ...]
    here: Situation
    """Where it was measured: what can be set there."""
    guest: Guest | None = None
    """The guest that was traced as well."""
    looked: Late | None = None
    """The packets by which coincidences were tested, where the late ones are of few stalls."""
    looked_stalls: int = 0
    removal: Removal | None = None
    """What is left of the tail without some causes."""
    control: Control | None = None
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

"""What made packets late, summed up over what was explained while a measurement goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tailtap.records.causes import CauseRow
from tailtap.records.live import LiveCause


@dataclass
class CauseSums:
    """Packets and delay by cause and detail."""

    _sums: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, causes: Iterable[CauseRow]) -> None:
        """Add those of one explanation; what was merely present is none of them."""
        for row in causes:
            if row.claim == "present":
                continue
            packets, delay = self._sums.get((row.cause, row.detail), (0, 0))
            told = (packets + row.packets, delay + row.delay_ns)
            self._sums[row.cause, row.detail] = told

    @property
    def rows(self) -> list[LiveCause]:
        """The causes, the largest delay first; any thread may ask."""
        rows = [
            LiveCause(cause=cause, detail=detail, packets=packets, delay_ns=delay)
            for (cause, detail), (packets, delay) in list(self._sums.items())
        ]
        return sorted(rows, key=lambda row: -row.delay_ns)

"""Packets that passed and that nobody read: what an evaluation tells of them, by side."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.records.evaluation import Counts, Side, Sides


@dataclass(frozen=True)
class Unread:
    """Packets of one side that passed and are in no statistic, as they were not read."""

    #: The most of which something is known.
    packets: int = 0
    #: Whether there may be more without a bound: the capture is cut off, or had not ended.
    without_end: bool = False

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return self.packets > 0 or self.without_end

    @classmethod
    def of(cls, side: Side) -> Unread:
        """Those of a capture.

        Packets without the key are of others, and no such packets.
        """
        counts = dict(side.unread)
        without_end = bool(counts.pop("without-end", False))
        counts.pop("foreign", None)
        return cls(sum(counts.values()), without_end)


NOTHING_UNREAD = Unread()


BY_ID = "packet-id"
"""The key of packets whose payloads differ behind the device: it may have merged them."""


def lost_at_least(counts: Counts, inputs: Sides, key: str) -> int:
    """How many packets surely did not leave the device, by what an evaluation says.

    Those that count as lost may be what left it unmatched, in other packets, or was not read behind
    it.
    """
    if key == BY_ID:
        return 0
    after = Unread.of(inputs.egress)
    if after.without_end:
        return 0
    return max(counts.lost - counts.unmatched_egress - after.packets, 0)

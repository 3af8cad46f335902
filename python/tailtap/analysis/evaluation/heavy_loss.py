"""Whether so much was lost that the tail is not known, and what is to say of it."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.records.evaluation import LossPattern
from tailtap.records.record import Notice

HEAVY_LOSS = 0.001
"""With more loss than this not even the 99.9th percentile exists: of so many packets nobody knows
how late they would have been.
"""
CODES = frozenset(("heavy-loss", "overload"))
"""Of the warnings about it: any, and that which comes with load."""


def heavy_loss(
    lost: int,
    offered: int,
    patterns: Sequence[LossPattern] | None,
    *,
    generated: bool,
    has_dut: bool = True,
    dropped: int = 0,
) -> Notice | None:
    """The warning about `lost` of `offered` packets; None for no more than `HEAVY_LOSS`.

    `patterns` are what the lost packets have in common, None where nobody looked. Where the traffic
    was `generated` for the measurement, a lower rate may be advised. The kernel `dropped` so many
    packets in full queues.
    """
    if lost <= HEAVY_LOSS * offered:
        return None
    kinds = {one.kind for one in patterns or ()}
    text = f"more than {100 * HEAVY_LOSS:g} % of the packets were lost"
    text += ", and nobody knows how late they would have been"
    if not has_dut:
        text = f"{text}; there is no device: links or taps lost them"
    if patterns is not None:
        told = [one.text for one in patterns] or ["the lost packets have nothing in common"]
        text = f"{text}: {'; '.join(told)}"
    if dropped:
        text += f"; the kernel dropped {dropped:,} packets in full queues"
    if generated and "load" in kinds:
        text += "; lower traffic.rate, or let `tailtap search` find the highest rate without loss"
    elif generated and not kinds & {"flow", "length", "period"}:
        text += "; a lower traffic.rate, or `tailtap search`, shows whether the rate is the cause"
    return Notice("overload" if "load" in kinds else "heavy-loss", text)

"""Whether a device was overloaded: then its latency tells how long its queues are."""

from __future__ import annotations

from tailtap.records.record import Notice

OVERLOAD_LOSS = 0.001
"""With more loss than this not even the 99.9th percentile exists: of so many packets nobody knows
how late they would have been.
"""


def overload(lost: int, offered: int, *, has_dut: bool = True) -> Notice | None:
    """The warning about `lost` of `offered` packets; None for no more than `OVERLOAD_LOSS`."""
    if lost <= OVERLOAD_LOSS * offered:
        return None
    much = f"more than {100 * OVERLOAD_LOSS:g} % of the packets were lost"
    if not has_dut:
        return Notice(
            "overload",
            f"{much} though there is no device: links and taps were overloaded; lower traffic.rate",
        )
    return Notice(
        "overload",
        f"{much}: the device was overloaded, and the latency is that of the packets that found "
        "room in its queues; lower traffic.rate, or let `tailtap search` find the highest rate "
        "that it holds",
    )

"""How fast tailtap's generator sends through an interface of this machine, and how late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tailtap.base.errors import Interrupted
from tailtap.records.datapath import GeneratorRecord, RateAsked, RateOfSize, RatesRecord

SIZES = (64, 128, 256, 512, 1024, 1518)
"""Frame sizes in bytes with their check sequence; those of RFC 2544, section 9.1, but one."""
SHARES = (0.1, 0.5, 0.9)
"""How late packets leave is measured at these shares of the highest rate."""
AT_ONCE = 1_000_000_000
"""A rate that no generator reaches, in pkt/s."""
FIRST_PACKETS = 50_000
"""How many are sent as fast as possible, for a rate to begin with."""
ROUND_NS = 500_000_000
"""How long each rate is sent."""
WARM_UP_NS = 10_000_000


def measure_rates(
    sending: Mapping[str, Any],
    *,
    cpus: Sequence[int] = (),
    sizes: Sequence[int] = SIZES,
    rate: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> RatesRecord:
    """Send packets of each of `sizes` (bytes, check sequence included) as fast as possible, at
    shares of that rate, and at `rate` (pkt/s) if given, from a thread on each of `cpus`.

    `sending` is a flow as `tailtap._core.generate` takes it; its pace, sizes and length are
    replaced. This takes about three seconds a size. The highest rate is what the device took when
    packets were due faster than that, or when it refused some: half a second of them, as a short
    burst would rather show what a queue holds. Raises `InputError`, `MachineError`, and
    `Interrupted` on a signal.
    """
    found = []
    for size in sizes:
        if tell is not None:
            tell(f"sending packets of {size} B")
        found.append(_of_size({**sending, "sizes": [size]}, cpus, rate))
    interface, mode = str(sending["interface"]), found[0][1].mode
    return RatesRecord(
        interface=interface,
        generator=str(sending["back_end"]),
        mode=mode,
        cpus=list(cpus),
        sizes=[one for one, _ in found],
    )


def _of_size(
    sending: Mapping[str, Any], cpus: Sequence[int], rate: int | None
) -> tuple[RateOfSize, GeneratorRecord]:
    most = _sent(sending, cpus, AT_ONCE, ("packets", FIRST_PACKETS))
    due, highest, reached = max(1, round(most.achieved_rate or 0)), 0, True
    while reached:
        most = _sent(sending, cpus, due, ("ns", ROUND_NS))
        highest = max(highest, round(most.achieved_rate or 0))
        reached = not most.failed and highest >= 0.99 * due and due < AT_ONCE
        due = min(2 * due, AT_ONCE)
    asked = [(share, max(1, round(highest * share))) for share in SHARES]
    at = []
    for share, one in asked if rate is None else [*asked, (None, rate)]:
        sent = _sent(sending, cpus, one, ("ns", ROUND_NS))
        at.append(
            RateAsked(
                share=share,
                rate=one,
                achieved_rate=sent.achieved_rate or 0,
                failed=sent.failed or 0,
                slip_ns=sent.slip_ns,
            )
        )
    [size] = sending["sizes"]
    return RateOfSize(size=size, highest=highest, at=at), most


def _sent(
    sending: Mapping[str, Any], cpus: Sequence[int], rate: int, length: tuple[str, int]
) -> GeneratorRecord:
    from tailtap import _core

    warm_up = ("packets", 0) if rate == AT_ONCE else ("ns", WARM_UP_NS)
    replaced = {"rate": rate, "length": length, "warm_up": warm_up, "pause_ns": 0}
    [told] = _core.generate([{**sending, **replaced}], cpus=cpus)  # type: ignore[typeddict-item]
    sent = msgspec.convert(told, GeneratorRecord)
    if sent.interrupted:
        raise Interrupted("a signal ended the measurement of rates early")
    return sent

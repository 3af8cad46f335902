"""What made packets late, summed up over explanations."""

from __future__ import annotations

from tailtap.analysis.live.numbers import CauseSums
from tailtap.records.causes import CauseRow, ClaimKind


def row(cause: str, claim: ClaimKind, delay_ns: int) -> CauseRow:
    """A cause of two packets."""
    return CauseRow(
        cause=cause, detail="x", claim=claim, packets=2, behind=0, stalls=1, delay_ns=delay_ns,
        worst_ns=delay_ns, share=0.5, beyond_chance=None, p_value=None, shifts=None, basis="core",
        without=None, knobs=[],
    )  # fmt: skip


def test_causes_add_up_and_the_largest_delay_comes_first() -> None:
    sums = CauseSums()
    sums.add([row("task", "cause", 5), row("timer", "by-exclusion", 9), row("nmi", "present", 99)])
    sums.add([row("task", "cause", 7)])
    found = [(one.cause, one.detail, one.packets, one.delay_ns) for one in sums.rows]
    assert found == [("task", "x", 4, 12), ("timer", "x", 2, 9)]

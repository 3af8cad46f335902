"""What is said of heavy loss: what was seen, and advice only to whom it is of use."""

from __future__ import annotations

import pytest

from tailtap.analysis.evaluation.flows import heavy_loss
from tailtap.records.evaluation import LossPattern


@pytest.mark.parametrize(
    ("kind", "generated", "code", "advice"),
    [
        ("load", True, "overload", "; lower traffic.rate, or let `tailtap search` find"),
        ("load", False, "overload", None),
        ("flow", True, "heavy-loss", None),
        ("flow", False, "heavy-loss", None),
        (
            "bursts",
            True,
            "heavy-loss",
            "; a lower traffic.rate, or `tailtap search`, shows",
        ),
        ("bursts", False, "heavy-loss", None),
    ],
)
def test_only_loss_with_load_is_overload(
    kind: str, *, generated: bool, code: str, advice: str | None
) -> None:
    pattern = LossPattern(kind=kind, lost=342, text="what was seen")  # type: ignore[arg-type]
    found = heavy_loss(342, 10_000, [pattern], generated=generated, dropped=7)
    assert found is not None and found.code == code
    assert ": what was seen; the kernel dropped 7 packets in full queues" in found.message
    assert ("traffic.rate" in found.message) == (advice is not None)
    assert advice is None or advice in found.message


@pytest.mark.parametrize(("patterns", "says"), [([], True), (None, False)])
def test_loss_without_a_pattern_says_how_much(
    patterns: list[LossPattern] | None, *, says: bool
) -> None:
    found = heavy_loss(11, 10_000, patterns, generated=False)
    assert found is not None and found.message.startswith("more than 0.1 % of the packets were")
    assert ("the lost packets have nothing in common" in found.message) == says
    assert heavy_loss(10, 10_000, patterns, generated=False) is None

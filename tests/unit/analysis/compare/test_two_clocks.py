"""Configurations that were captured by two clocks: a difference is one only at both ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_clocks import TwoClocks

from tailtap.analysis.compare.comparison import compare_runs
from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.clocks import known
from tailtap.records.compare import CompareRecord

US = 1_000
REPEATS = 5


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repeats of a device, and of one that takes 4 us more."""
    folder = tmp_path_factory.mktemp("captures")
    for name, least_ns in (("quick", 20 * US), ("slow", 24 * US)):
        for repeat in range(REPEATS):
            clocks = TwoClocks(least_ns=least_ns, mean_ns=300, packets=1_000)
            clocks.write(folder / f"{name}-{repeat}", repeat)
    return folder


def compared(captures: Path, out: Path, within_ns: int) -> CompareRecord:
    sources = []
    for folder in sorted(captures.iterdir()):
        pair = folder / "ingress.stamps", folder / "egress.stamps"
        clocks = known(-within_ns, within_ns) if within_ns else None
        evaluate(*pair, clocks=clocks).write(out / folder.name)
        sources.append((folder.name.partition("-")[0], out / folder.name))
    return compare_runs(sources, 0.5)


@pytest.mark.parametrize(
    ("within_ns", "shown"),
    [(0, True), (1 * US, True), (1_900, True), (2_300, False), (9_000, False)],
)
def test_a_difference_is_shown_at_both_ends(
    captures: Path, tmp_path: Path, within_ns: int, shown: bool
) -> None:
    found = compared(captures, tmp_path, within_ns)
    [load] = found.loads
    [pair] = load.comparisons
    assert pair.significant is shown
    assert pair.ratio == pytest.approx(24.2 / 20.2, rel=0.01)
    assert pair.ratio_low is not None and pair.ratio_high is not None
    # The bounds of the ratio hold what the clocks leave open.
    assert pair.ratio_low <= (24.2 * US - within_ns) / (20.2 * US + within_ns) * 1.01
    assert pair.ratio_high >= (24.2 * US + within_ns) / (20.2 * US - within_ns) * 0.99
    told = load.configurations[0].repeats[0]
    assert told.within_ns == within_ns
    assert any("two-clocks" in one.message for one in found.warnings) is bool(within_ns)

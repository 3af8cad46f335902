"""The benchmark's ways answer the same question, or comparing them would mean nothing."""

from __future__ import annotations

import shutil

import numpy as np
import postgres
import pytest
from scipy import stats

from benches import evaluate, long, process, timing, traffic
from benches.coverage import Way as Estimator
from benches.coverage import by_evd, by_scipy, by_tailtap, errors
from benches.timing import Answer, Way
from tailtap.analysis.evaluation.percentiles import papers

PAIRS = 20_000


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, traffic.Pair]:
    return traffic.variants(tmp_path_factory.mktemp("captures"), PAIRS)


def test_all_ways_find_the_percentiles_of_the_traffic(captures: dict[str, traffic.Pair]) -> None:
    ways = evaluate.ways(captures, rounds=2)
    timing.in_turn(ways)
    assert all(len(way.seconds) == 2 for way in ways)
    lines = list(timing.table(ways, reading=ways[0], ours=ways[1]))
    assert [line[:42].strip() for line in lines] == ["", *(way.name for way in ways)]
    assert [line.split()[-1] for line in lines if "program" in line] == [
        f"{way.peak / timing.MIB:,.0f}" for way in ways if way.peak
    ]


def test_so_does_postgresql(captures: dict[str, traffic.Pair]) -> None:
    binaries = postgres.programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    with postgres.cluster(binaries) as address:
        timing.in_turn(evaluate.postgresql_ways(captures["plain"], address))


@pytest.mark.parametrize("kind", long.FORMATS)
def test_long_captures_hold_what_they_should(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "BLOCK", PAIRS // 3)
    assert long.measure(kind, PAIRS, rounds=1).peak > 0


def test_a_wrong_answer_is_noticed(captures: dict[str, traffic.Pair]) -> None:
    plain = captures["plain"]
    wrong = [*plain.percentiles[:-1], plain.percentiles[-1] + 1]
    with pytest.raises(AssertionError, match="sloppy: other percentiles"):
        Way("sloppy", plain, lambda _pair: Answer(wrong), rounds=1).measure()


def test_percentiles_of_counts_are_those_of_the_values() -> None:
    values = np.random.default_rng(3).integers(0, 50, 999)
    expected = np.quantile(values, papers(), method="inverted_cdf").tolist()
    assert traffic.percentiles(np.bincount(values)) == expected


def test_memory_is_that_of_the_command_alone() -> None:
    ballast = np.ones(40_000_000)
    small = process.run("cat", "/dev/null").peak
    large = process.run("python3", "-c", "held = b'x' * 100_000_000").peak
    assert small < 50_000_000
    assert 100_000_000 < large < ballast.nbytes


@pytest.mark.parametrize(
    "way",
    [
        by_scipy,
        pytest.param(
            by_evd,
            marks=pytest.mark.skipif(
                shutil.which("Rscript") is None, reason="R is not installed (r-cran-evd)"
            ),
        ),
    ],
)
@pytest.mark.parametrize("xi", [-0.2, 0.0, 0.4])
def test_no_larger_than_those_of_others(way: Estimator, xi: float) -> None:
    random = np.random.default_rng(round(1000 * xi) + 1000)
    samples = stats.genpareto.rvs(xi, size=(40, 500), random_state=random)
    ours, theirs = errors(by_tailtap(samples), xi), errors(way(samples), xi)
    assert ours == pytest.approx(theirs, rel=0.05) or all(np.array(ours) <= theirs)
    assert ours[0] < 0.1 and ours[1] < 0.3

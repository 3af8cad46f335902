"""Packets counted while their captures grow, and what makes an incident of the counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from growing import START, taps

from tailtap.analysis.evaluation import Settings, WorstPacket
from tailtap.analysis.live.counting import (
    Counted,
    Counter,
    Span,
)
from tailtap.analysis.live.numbers import (
    Above,
    CauseSums,
    Episodes,
    Found,
    Lost,
    Numbers,
    PercentileAbove,
    Watched,
    parse_trigger,
)
from tailtap.analysis.live.written import Growing, Row, Written
from tailtap.base.errors import InputError
from tailtap.records.causes import CauseRow, ClaimKind
from tests.simulation.growing import SECOND

SETTINGS = Settings(key="moonsniff", window_ns=SECOND)


def sides(folder: Path, kind: type[Growing] | type[Row]) -> tuple[Written, Written]:
    return kind(folder / "ingress.stamps"), kind(folder / "egress.stamps")


def test_a_device_that_lets_nothing_out_loses_all(tmp_path: Path) -> None:
    counter = Counter(*sides(tmp_path, Growing), SETTINGS)
    for tap in taps(tmp_path, 3, lost=range(3000)):
        tap.write(START + 3 * SECOND)
    assert counter.look(START + 2 * SECOND) is None  # that side may merely be written late
    counted = counter.look(START + 8 * SECOND)
    assert counted is not None
    assert counted.counts["lost"] == counted.counts["ingress"] > 1900


def test_before_there_is_a_file_there_is_nothing_to_count(tmp_path: Path) -> None:
    counter = Counter(*sides(tmp_path, Growing), SETTINGS)
    assert counter.look(START) is None
    assert counter.look(START, complete=True) is None
    (tmp_path / "ingress.stamps").write_bytes(b"\x89TTS")
    assert counter.look(START) is None
    (tmp_path / "ingress.stamps").write_bytes(b"neither of both")
    with pytest.raises(InputError, match="no stamp file"):
        counter.look(START)


def test_a_key_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="key that is known"):
        Counter(*sides(tmp_path, Growing), Settings())


def test_files_of_a_row_go_when_nobody_needs_them(tmp_path: Path) -> None:
    for tap in taps(tmp_path, 5, every_ns=SECOND):
        tap.write(START + 5 * SECOND)
    row = Row(tmp_path / "ingress.stamps")
    assert Row(tmp_path / "other.stamps").between(0, START) == []
    assert len(row.files()) == 5
    between = row.between(START + SECOND + 1, START + 3 * SECOND)
    assert [path.name for path in between] == ["ingress-00002.stamps", "ingress-00003.stamps"]
    assert len(row.drop(START + 2 * SECOND)) == 2
    assert row.first_ns() == START + 2 * SECOND
    assert row.last_ns() == START + 5 * SECOND - SECOND // 1000
    row.drop(START + 100 * SECOND)
    assert [path.name for path in row.files()] == ["ingress-00005.stamps"]  # it is being written


def test_numbers_tell_of_all_flows(tmp_path: Path) -> None:
    for tap in taps(tmp_path, 4, late={1000: 5_000_000}, lost=(7, 8)):
        tap.write(START + 4 * SECOND)
    flow = Watched("forward", *sides(tmp_path, Growing), SETTINGS)
    numbers = Numbers("001-x", [flow], seconds=10, runs=3, notes=["a note"])
    [(name, _)] = numbers.look(START + 4 * SECOND)
    record = numbers.record(START + 4 * SECOND)
    [told] = record.flows
    assert name == told.name == "forward"
    assert told.lost == 2 and 2990 < told.ingress < 3010
    assert told.rate == pytest.approx(1000, rel=0.01)
    assert told.worst[0].key == "1000" and told.worst[0].latency > 5_000_000
    assert told.percentiles[0].supported and record.left_s == pytest.approx(6, abs=0.1)
    assert (record.window_ns, record.notes) == (SECOND, ["a note"])
    assert numbers.needed_ns == numbers.until_ns - 2 * SECOND


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


def counted(second: int, latencies: dict[int, int], *, lost: tuple[int, ...] = ()) -> Counted:
    """A second with so many packets of each latency."""
    from_ns = second * SECOND
    values = np.array(sorted(latencies), np.int64)
    counts = np.array([latencies[int(value)] for value in values], np.int64)
    worst = [
        WorstPacket(value, from_ns + 5, from_ns + 5 + value, "k")
        for value in sorted(latencies, reverse=True)
    ]
    return Counted(
        Span(from_ns, from_ns + SECOND),
        {"lost": len(lost)},
        (values, counts),
        worst,
        np.array(lost, np.int64),
    )


def test_a_percentile_makes_one_incident_each_time_that_it_rises() -> None:
    trigger = PercentileAbove(0.99, 1000, 3 * SECOND)
    low, high = {100: 1000}, {100: 900, 5000: 100}
    seconds = [low, low, high, high, low, low, low, low, high]
    seen = [trigger.look(counted(at, one)) is not None for at, one in enumerate(seconds)]
    assert seen == [False, False, True, False, False, False, False, False, True]


def test_a_percentile_that_few_packets_support_makes_none() -> None:
    assert PercentileAbove(0.99, 1000, SECOND).look(counted(1, {5000: 500})) is None


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("200 us", Above(200_000)),
        (" loss ", Lost()),
        ("p99.9 > 1 ms over 10 s", PercentileAbove(0.999, 1_000_000, 10 * SECOND)),
    ],
)
def test_triggers_are_read(text: str, trigger: object) -> None:
    assert parse_trigger(text) == trigger


@pytest.mark.parametrize("text", ["", "200", "p99.9 > 1 ms", "p100 > 1 ms over 1 s", "loss > 1"])
def test_what_is_no_trigger_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--above"):
        parse_trigger(text)


def finding(first: int, last: int) -> Found:
    return Found(first * SECOND, last * SECOND, 1, f"{first}")


def test_what_is_near_is_one_episode_and_what_is_far_another() -> None:
    episodes = Episodes(2 * SECOND)
    assert episodes.add([finding(10, 11), finding(12, 12)]) == []
    assert episodes.over(13 * SECOND) == []
    [over] = episodes.add([finding(20, 20)])
    assert (over.begin_ns, over.end_ns, over.packets) == (8 * SECOND, 12 * SECOND, 2)
    assert over.words == ["10", "12"]
    [over] = episodes.over(22 * SECOND)
    assert (over.begin_ns, over.end_ns, episodes.open) == (18 * SECOND, 20 * SECOND, None)

"""What is called a cause, over many runs whose truth is known, and what is a fact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from made_records import rewrite
from program import in_process
from stamps import write_stamps
from traced import (
    HOG,
    SECOND,
    START,
    Record,
    arrivals,
    encode,
    random_jobs,
    simulate,
    stamped,
    write_run,
)
from traces import IDLE, IRQ, TASK

from tailtap import _core
from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.claims import (
    FALSE_ALARM,
    FALSE_CLAIMS,
    SHIFTS,
    benjamini_hochberg,
    periods,
    tick,
)
from tailtap.analysis.causes.late import ENOUGH, FEW
from tailtap.analysis.causes.record import record
from tailtap.analysis.causes.taxonomy import By, Named, Served, holds
from tailtap.analysis.causes.trace import RUNNABLE, WAKEUP
from tailtap.records.causes import CauseRow, CausesRecord
from tests.simulation.device import CORE, SERVES
from tests.simulation.machine import Integers, Job
from tests.simulation.records import columns, in_order
from tests.simulation.tracer import Told
from tests.simulation.truth import rows_of

LENGTH = 2 * SECOND


def events(count: int, length: int, random: np.random.Generator) -> Integers:
    return START + np.sort(random.integers(0, LENGTH - length, count))


def p_values(
    folder: Path, starts: Sequence[Integers], length: int, windows: Integers, wide: int, seed: int
) -> list[float]:
    """P-values of interrupts that begin at `starts`, one number each, against windows."""
    records = [Record(int(t), length, IRQ, number) for number, ts in enumerate(starts) for t in ts]
    records += [Record(START + at * SECOND, SECOND, IDLE) for at in range(LENGTH // SECOND)]
    (folder / "trace.events").write_bytes(encode(records))
    write_stamps(folder / "egress.stamps", [START], [0])
    cores, _ = _core.Cores.read(folder / "trace.events", [CORE], START + LENGTH)
    served = {IRQ: 2, IDLE: 1}  # whoever is not interrupted serves
    rows = [
        served.get(kind, 0) + (number if kind == IRQ else 0) for kind, number, _ in cores.owners
    ]
    constant = np.full(windows.size, CORE), np.full(windows.size, length)
    found = cores.test(
        rows, list(range(2, 2 + len(starts))), (windows, windows + wide, *constant),
        (START, START + LENGTH), shifts=SHIFTS, seed=seed,
    )  # fmt: skip
    return [p for *_, p in found]


def test_runs_without_a_cause_get_none(tmp_path: Path) -> None:
    claims = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        starts = [events(count, 20_000, random) for count in (5, 50, 500, 2000)]
        # Periodic events, and windows that come in groups, as behind real stalls.
        starts.append(START + np.arange(0, LENGTH - 20_000, 4_000_000))
        windows = np.repeat(events(10, 100_000, random), 4) + np.tile(
            [0, 9_000, 21_000, 30_000], 10
        )
        ps = p_values(tmp_path, starts, 20_000, windows, 60_000, seed)
        claims += any(benjamini_hochberg(ps))
    # Two of 200 are expected; seven or more have a probability below 1 %.
    assert claims < 7, f"{claims} of 200 runs without a cause have one"


def test_a_cause_among_others_is_found_alone(tmp_path: Path) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        cause = events(12, 20_000, random)
        starts = [cause, *(events(count, 20_000, random) for count in (20, 200, 2000))]
        ps = p_values(tmp_path, starts, 20_000, cause - 5_000, 40_000, seed)
        assert ps[0] == pytest.approx(1 / (SHIFTS + 1))
        assert benjamini_hochberg(ps)[0]
        beyond = np.append(cause - 5_000, [START - 9_000, START + LENGTH - 9_000])
        assert p_values(tmp_path, starts, 20_000, beyond, 40_000, seed) == ps


def test_shifts_part_a_long_stay_from_what_it_met(tmp_path: Path) -> None:
    cause = np.array([START + LENGTH // 2])
    [p] = p_values(tmp_path, [cause], 20_000, cause - 5_000, LENGTH // 4, 1)
    assert p == pytest.approx(1 / (SHIFTS + 1))


def test_the_rule_is_that_of_its_paper() -> None:
    # The example of Benjamini and Hochberg, section 3.2: four of fifteen at 5 %.
    ps = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
          0.5719, 0.6528, 0.7590, 1.0000]  # fmt: skip
    assert benjamini_hochberg(ps, 0.05) == [True] * 4 + [False] * 11
    assert benjamini_hochberg([], FALSE_CLAIMS) == []


SPAN = (START, START + 30 * SECOND)


def test_random_points_have_no_period() -> None:
    alarms = 0
    for seed in range(100):
        points = np.sort(np.random.default_rng(seed).integers(*SPAN, 400))
        alarms += bool(periods(points, SPAN, 20_000.0, 250.0))
    # At most two families are tried in each: known periods, and all frequencies.
    assert alarms <= 2 + 100 * 2 * FALSE_ALARM


def test_points_that_come_in_groups_have_none_either() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        groups = random.integers(*SPAN, 20)
        points = (groups[:, None] + random.integers(0, SECOND // 2, (20, 15))).ravel()
        assert not periods(np.sort(points), SPAN, None, 250.0), seed


@pytest.mark.parametrize("period_ns", [1_000_000, 4_000_000, 7_300_000, 100_000_000, SECOND])
def test_a_period_is_found_among_random_points(period_ns: int) -> None:
    random = np.random.default_rng(1)
    times = START + np.arange(123_456, 30 * SECOND, period_ns)
    chosen = np.sort(random.choice(times, min(times.size, 200), replace=False))
    points = np.sort(np.concatenate((chosen, random.integers(*SPAN, chosen.size // 2))))
    found = periods(points, SPAN, None, None)[0]
    assert found.period_ns == pytest.approx(period_ns, rel=1e-3)
    assert found.false_alarm < FALSE_ALARM


def test_timers_at_any_time_are_no_tick() -> None:
    assert tick(np.sort(np.random.default_rng(1).integers(*SPAN, 5000))) is None
    assert tick(np.array([1, 2])) is None


def test_a_beat_of_packets_with_the_tick_is_named() -> None:
    """A packet every 333,200 ns meets a tick of 4 ms at a phase that drifts."""
    rate = 1e9 / 333_200
    packets = START + np.arange(0, 30 * SECOND, 333_200)
    met = packets[(packets - START) % 4_000_000 < 20_000]
    beat = abs(rate - 250 * round(rate / 250))
    found = periods(met, SPAN, rate, 250.0)
    words = " ".join(period.words for period in found)
    assert "the beat of 3,001.20 pkt/s with the tick (250 Hz)" in words, (found, beat)


SECONDS = 2.0
RATE = 20_000
MS = 1_000_000


def hogs() -> list[Job]:
    """Each 100 ms for 2 ms, two of them for longer."""
    longer = {3: 3 * MS, 12: 3 * MS}
    return [Job(START + 3 * MS + at * 100 * MS, longer.get(at, 2 * MS), HOG) for at in range(19)]


def run(tmp_path: Path) -> tuple[Path, Told]:
    random = np.random.default_rng(7)
    simulated = simulate(arrivals(RATE, SECONDS, random), hogs(), random)
    return write_run(tmp_path / "001-facts", simulated), simulated


def row_of(content: CausesRecord, cause: str) -> CauseRow:
    [row] = [row for row in content.causes if row.cause == cause]
    return row


def explained(folder: Path, late: str = "p99.9") -> CausesRecord:
    [found] = explain_runs([folder], late=late)
    return record(found)


def test_where_stalls_are_few_coincidences_are_tested_lower(tmp_path: Path) -> None:
    """A thread that serves may have slept by itself: two stalls say nothing, and more are found."""
    folder, simulated = run(tmp_path)
    content = explained(folder)
    latency = np.sort(simulated.made.left - simulated.made.sent)
    late, looked = content.late, content.late.looked
    assert looked is not None and late.stalls == 2
    assert late.packets == (latency > late.threshold_ns).sum()
    assert late.threshold_ns > looked.threshold_ns >= late.threshold_ns // 8
    assert looked.packets == (latency > looked.threshold_ns).sum()
    assert FEW <= looked.stalls <= len(hogs())
    row = row_of(content, "task")
    assert (row.claim, row.basis) == ("cause", "chance")
    assert row.stalls == 2 and row.p_value is not None and row.p_value <= 0.01


def test_candidates_are_what_the_audit_leaves_as_they_are_typed(tmp_path: Path) -> None:
    folder, _ = run(tmp_path)
    answers = {"isolated-cpus": "not-met", "groups": "met", "stat-interval": "not-met"}
    audit = {name: {"answer": answer} for name, answer in answers.items()}
    tuning = {"cpus": "1", "role": "bare-metal", "interfaces": [], "audit": audit}
    rewrite(folder / "run.json", tuning=tuning)
    done = in_process("explain", folder, "--quiet")
    line = "tailtap host bootline isolated-cpus --cpus 1 --role bare-metal"
    assert f"candidates, not tried here: {line}; estimate without " in done.stdout
    assert "stat-interval" not in done.stdout and "groups" not in done.stdout


@pytest.mark.parametrize(
    ("waits", "basis"),
    [("runnable", "core"), ("woken", "core"), ("for quota", "core"), ("else", "chance")],
)
def test_what_had_the_core_of_a_thread_that_could_run_is_a_fact(
    tmp_path: Path, waits: str, basis: str
) -> None:
    """The trace says so; of a thread that waited for its group's quota the task was not the reason,
    and before or after a stall it says nothing."""
    random = np.random.default_rng(7)
    simulated = simulate(arrivals(RATE, SECONDS, random), hogs(), random)
    kind, aux = (WAKEUP, 0) if waits == "woken" else (RUNNABLE, int(waits == "for quota"))
    away = 10 * MS if waits == "else" else 0
    start, end = rows_of(simulated.made.core)[HOG.row]
    waited = columns(start + away, end - start, kind=kind, id=SERVES, aux=aux, cpu=CORE)
    simulated.records = in_order(np.concatenate([simulated.records, waited]))
    content = explained(write_run(tmp_path / "001-waits", simulated))
    # Whoever waits for its quota is kept from the core by that.
    row = row_of(content, "throttled" if waits == "for quota" else "task")
    assert (row.stalls, row.basis) == (2, basis)


def test_a_task_that_has_every_idle_core_is_a_cause_by_its_longest_times(tmp_path: Path) -> None:
    """Before a slow line, any stay has enough of it to explain the worst: rarely at one time."""
    random = np.random.default_rng(2)
    jobs = random_jobs(HOG, 2 * ENOUGH, (MS, 2 * MS), SECONDS, random)
    told = stamped(simulate(arrivals(RATE, SECONDS, random), jobs, random), later_ns=MS // 2)
    idle = told.records["kind"] == IDLE
    told.records["kind"][idle], told.records["id"][idle] = TASK, HOG.id
    begun, over = rows_of(told.made.core)[HOG.row]
    content = explained(write_run(tmp_path / "001-always", told), "1 ms")
    row = row_of(content, "task")
    stalls = 1 + int((begun[1:] - over[:-1] > 20_000).sum())
    assert (row.stalls, row.claim, row.basis) == (stalls, "cause", "chance")


HOGGED = Named("task", "x")
NEVER = [
    Named(name, "") for name in ("own-work", "behind", "gap", "mixed", "unexplained", "idle-exit")
]


@pytest.mark.parametrize(
    ("name", "servers", "fact"),
    [
        (HOGGED, ["softirq"], True),
        (HOGGED, ["poll"], True),
        (HOGGED, ["softirq", "poll"], True),
        (HOGGED, ["task"], False),
        (HOGGED, ["softirq", "task"], False),
        (Named("device-interrupt", "eth0"), ["task"], True),
        (Named("steal", ""), ["task"], True),
        (Named("task", "x, on the generator's CPU 0"), ["task"], True),
        (Named("idle-exit", "until the IPI was entered"), ["task"], True),
        *((name, ["softirq"], False) for name in NEVER),
    ],
)
def test_facts_are_those_of_a_server_that_wanted_the_core(
    name: Named, servers: Sequence[By], fact: bool
) -> None:
    kinds = [Served.one(by) for by in servers]
    assert holds(name, kinds) is fact
    assert not (name == HOGGED and holds(name, kinds, guest=True))

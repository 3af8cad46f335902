"""Stalls in sentences, what makes each percentile, what the trace cost, and knobs to try."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from improvements import helped, improvement, trial
from made_records import rewrite
from traced import (
    FLUSH,
    HOG,
    KWORKER,
    START,
    arrivals,
    simulate,
    stamped,
    traffic,
    write_run,
    write_two_causes,
)
from traces import FUNCTION

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.joined import BEHIND
from tailtap.analysis.causes.many import control_words
from tailtap.analysis.causes.record import Line, record, worst_stalls
from tailtap.analysis.causes.remedies import MADE_FOR, OF_CARDS, Situation, knobs_for, remedy
from tailtap.analysis.causes.stored import Causes, causes_of, delays
from tailtap.analysis.causes.taxonomy import NAMES, Named, Names
from tailtap.analysis.causes.trace import Sender
from tailtap.analysis.runs.reader import finished_runs
from tailtap.records.causes import (
    CauseName,
    CausesRecord,
    ClaimKind,
    Control,
    TraceCost,
    Without,
)
from tailtap.records.knobs import CAUSES, KNOBS, KnobFacts
from tailtap.records.record import copied, read
from tailtap.records.search import KnobTrial
from tests.simulation.device import FLUSH as FLUSH_AT
from tests.simulation.device import NEIGHBOUR
from tests.simulation.machine import Job

STALLED_S = 0.5
HOG_NS, WORKER_NS, FLUSH_NS = 600_000, 1_790_000, 4_000
ASKED = FLUSH._replace(inner=(FUNCTION, NEIGHBOUR | HOG.id << 10, FLUSH_AT))
"""A flush that the hog asked for on the other core."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Explained:
    """Of a run with hogs, and with kworkers that begin when the core has flushed its TLB."""
    random = np.random.default_rng(7)
    at = [START + 20_000_000 * number for number in range(1, 22)]
    jobs = [job for start in at[::2]
            for job in (Job(start, FLUSH_NS, ASKED), Job(start, WORKER_NS, KWORKER))]  # fmt: skip
    jobs += [Job(start, HOG_NS, HOG) for start in at[1::2]]
    told = simulate(arrivals(20_000, STALLED_S, random), jobs, random)
    return explain_runs([write_run(tmp_path_factory.mktemp("runs") / "001-stalls", told)],
                        late="20 us")[0]  # fmt: skip


def test_a_line_has_the_course_of_its_stall(found: Explained) -> None:
    """In the order of time; with the packets that waited, as the tables count them."""
    joined = found.joined
    lines = worst_stalls(found, 100)
    assert joined.stall_cpu.size == len(lines) == len({line.packet for line in lines}) == 21
    for line in lines[:11]:
        told = re.fullmatch(
            r"1\.7\d+ ms late: (?:waiting \(its thread slept\) for 1\.\d+ us, then )?"
            r"tlb-flush \(flush_tlb_func\) from hog for 3\.\d+ us, then "
            r"kernel-thread \(kworker: vmstat_update\) for 1\.7\d+ ms; (\d+) more packets waited "
            r"for its end; (\d+) packets? behind this stall; candidates: stat-interval",
            line.words,
        )
        assert told, line.words
        packet = int(np.argmin(np.abs(joined.late.packets.ingress_ns - _ingress(found, line))))
        mine = joined.stall == joined.stall[packet]
        behind = joined.state == BEHIND
        assert int(told[1]) == (mine & ~behind).sum() - 1
        assert int(told[2]) == (mine & behind).sum()


def test_a_sender_is_a_thread_or_else_a_core() -> None:
    """Where the core idled or nobody told, only the core is known, and in the end not even that."""
    names = Names({HOG.id: "hog"})
    told = [Sender.of(word) for word in (NEIGHBOUR | HOG.id << 10, 5 | 77 << 10, 5, 0xFFFFFFFF)]
    assert [one and one.words(names) for one in told] == ["hog", "CPU 5", "CPU 5", None]


def _ingress(found: Explained, line: Line) -> int:
    """Within 1 us."""
    after = float(line.packet.removesuffix(" s").rpartition(" ")[2])
    return found.run.stored.inputs.ingress.first_ns + round(after * 1e9)


def test_packets_of_one_queue_without_a_stall_share_a_line(tmp_path: Path) -> None:
    """A burst makes a queue that no stall made: it is no ten lines."""
    random = np.random.default_rng(3)
    steady = arrivals(10_000, STALLED_S, random)
    burst = steady[steady.size // 2] + np.arange(100) * 10
    simulated = simulate(np.sort(np.concatenate([steady, burst])), [], random)
    [found] = explain_runs([write_run(tmp_path / "001-burst", simulated)], late="20 us")
    assert found.joined.state.size > 50
    [line] = worst_stalls(found, 10)
    assert line.words.endswith("late: a queue that no stall made")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_two_causes(tmp_path_factory.mktemp("told"))
    explain_runs([folder], late="150 us")
    return folder


@pytest.fixture(scope="module")
def causes(folder: Path) -> Causes:
    return causes_of(finished_runs(folder)[0])


@pytest.mark.parametrize(("claim", "explained"), [("by-exclusion", True), ("present", False)])
def test_what_is_a_cause_by_exclusion_is_explained(
    causes: Causes, claim: ClaimKind, explained: bool
) -> None:
    changed = copied(causes.record)
    for row in changed.causes:
        row.claim = claim if row.cause == "task" else row.claim
    names, cells = delays(replace(causes, record=changed))
    before, expected = delays(causes)
    np.testing.assert_array_equal(cells.sum(axis=1), expected.sum(axis=1))
    task = int(expected[:, before.index("task")].sum())
    found = dict(zip(names, cells.sum(axis=0).tolist(), strict=True))
    assert found.get("task", 0) == (task if explained else 0)


def of_another_evaluation(content: dict[str, Any]) -> None:
    content["late"]["median_ns"] += 1


def without_segments(content: dict[str, Any]) -> None:
    """As before devices had several."""
    del content["segments"]


@pytest.mark.parametrize("change", [of_another_evaluation, without_segments])
def test_what_is_stored_is_taken_unless_it_is_old(
    folder: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    run = finished_runs(folder)[0]
    stored = causes_of(run)
    assert stored.record.late.words == "150 us"
    path = folder / "causes.json"
    text = path.read_text()
    content = json.loads(text)
    change(content)
    path.write_text(json.dumps(content))
    now = causes_of(run)
    path.write_text(text)
    assert now.record.late.words.startswith("p99.9")
    assert now.late.num_rows == now.record.late.packets < stored.late.num_rows


SECONDS, RATE, REPEATS = 1.0, 20_000, 3


def add(home: Path, number: int, repeat: int, mode: str, slower_ns: int, **more: str) -> list[int]:
    """A run of an experiment; its latencies in ns, ascending."""
    made = traffic(number, SECONDS, (HOG, 10, (300_000, 900_000)), rate=RATE)
    simulated = stamped(made, later_ns=slower_ns)
    folder = write_run(home / f"runs/{number:03}-{mode}", simulated)
    variables, parameters = {"trace": mode, **more}, {"dut": {"platform": "bare-metal"}}
    rewrite(folder / "run.json", number=number, repeat=repeat, variables=variables,
            parameters={**parameters, "traffic": {}, "trace": mode})  # fmt: skip
    if mode == "none":
        (folder / "trace.events").unlink()
        (folder / "trace.json").unlink()
    return sorted((simulated.made.left - simulated.made.sent).tolist())


@pytest.fixture
def taken(tmp_path: Path) -> dict[str, list[list[int]]]:
    """Latencies by mode, in the order of the repeats; each mode is slower than the one before."""
    found: dict[str, list[list[int]]] = {"none": [], "thin": [], "full": []}
    number = 0
    for repeat in range(1, REPEATS + 1):
        for place, mode in enumerate(found):
            number += 1
            found[mode].append(add(tmp_path, number, repeat, mode, place * 200 * repeat))
    (tmp_path / "experiment.yaml").write_text("name: control\n")
    return found


def expected(taken: dict[str, list[list[int]]], mode: str) -> Control:
    rows = []
    for p in (0.5, 0.999):
        traced, plain = (
            np.quantile(taken[which], p, axis=1, method="inverted_cdf") for which in (mode, "none")
        )
        more = traced / plain - 1
        rows.append(TraceCost(
            p=p, traced_ns=round(np.median(traced)), plain_ns=round(np.median(plain)),
            more=float(np.median(more)), least=float(more.min()), most=float(more.max()),
        ))  # fmt: skip
    return Control(runs=REPEATS, percentiles=rows)


def test_each_mode_is_held_against_runs_without_a_trace(
    tmp_path: Path, taken: dict[str, list[list[int]]]
) -> None:
    found = explain_runs([tmp_path])
    assert len(found) == 2 * REPEATS
    for one in found:
        mode = str(one.run.variables["trace"])
        assert one.control == expected(taken, mode)
        assert one.run.own_folder is not None
        stored = read(one.run.own_folder / "causes.json", CausesRecord)
        assert stored.control == expected(taken, mode)


def test_runs_that_differ_in_more_than_the_trace_are_no_control(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("name: control\n")
    add(tmp_path, 1, 1, "none", 0, rate="10 kpkt/s")
    add(tmp_path, 2, 1, "thin", 0, rate="50 kpkt/s")
    add(tmp_path, 3, 2, "none", 0, rate="50 kpkt/s")
    [found] = explain_runs([tmp_path])
    assert found.control is None
    assert "cost of the trace: unknown" in control_words(found.control)


def test_percentiles_that_few_packets_support_are_left_out() -> None:
    row = TraceCost(p=0.5, traced_ns=11, plain_ns=10, more=0.1, least=0.1, most=0.1)
    assert control_words(Control(runs=1, percentiles=[row])) == (
        "cost of the trace, by a run without it: median +10.0 %; median without it 10 ns"
    )
    assert control_words(Control(runs=2, percentiles=[])).endswith("had too few packets")


def names(cause: str, detail: str, here: Situation | None = None) -> list[str]:
    return [k.name for k in knobs_for(Named(cause, detail), here or Situation())]


def test_no_two_causes_have_the_same_letter() -> None:
    letters = [cause.letter for cause in CAUSES if cause.letter]
    assert len(letters) == len(set(letters))


def test_knobs_that_are_made_for_a_thing_exist() -> None:
    rows = [*((cause, made) for cause, _, made in MADE_FOR), *OF_CARDS.items()]
    for cause, made in rows:
        assert cause in NAMES
        for name in made:
            assert name in KNOBS, name


@pytest.mark.parametrize(
    ("cause", "detail", "wanted"),
    [
        ("kernel-thread", "kdamond.0", {"damon", "damon-modules", "kernel-threads",
                                        "isolated-cpus"}),
        ("kernel-thread", "kworker: vmstat_update", {"stat-interval"}),
        ("kernel-thread", "kworker: wb_workfn", {"workqueues", "workqueues-default"}),
        ("kernel-thread", "khungtaskd", {"hung-task", "kernel-threads", "isolated-cpus"}),
        ("kernel-thread", "kcompactd0", {"compaction", "kernel-threads", "isolated-cpus"}),
        ("kernel-thread", "ksoftirqd/1", set()),
        ("kernel-thread", "jbd2/vda-8", {"kernel-threads", "isolated-cpus"}),
        ("task", "cc1", {"isolated-cpus", "groups"}),
        ("task", "fstrim", {"maintenance", "isolated-cpus", "groups"}),
        ("softirq", "RCU", {"rcu-nocbs"}),
        ("softirq", "BLOCK", set()),
        ("function-call-ipi", "ipi_mb", set()),
        ("function-call-ipi", "rcu_exp_handler", {"rcu-normal"}),
        ("timer", "watchdog_timer_fn", {"soft-watchdog", "watchdog-cores"}),
        ("timer", "some_driver_timer", set()),
        ("device-interrupt", "virtio1-input.0", {"device-interrupts", "interrupt-default",
                                                 "isolated-cpus"}),
        ("device-interrupt", "thermal", set()),
        ("reschedule-ipi", "", set()),
        ("tlb-flush", "flush_tlb_func", set()),
        ("steal", "", set()),
        ("own-work", "", set()),
        ("behind", "", set()),
        ("waiting", "its core was not notified", set()),
        ("gap", "", set()),
        ("link", "", set()),
        ("task", "hog, on the generator's CPU 0",
         {"generator: isolated-cpus", "generator: groups"}),
        ("steal", "on the generator's CPU 0", set()),
    ],
)  # fmt: skip
def test_a_knob_answers_this_very_cause(cause: str, detail: str, wanted: set[str]) -> None:
    assert set(names(cause, detail)) == wanted


CARD = Situation(cards=frozenset(("eth1",)))
INTERRUPT = {"device-interrupts", "interrupt-default", "isolated-cpus"}
SLEEPS = {"resume-latency": "not-met", "idle-poll": "met", "intel-idle-limit": "unknown"}
IN_GUEST = Situation({"isolated-cpus": "met"}, {"isolated-cpus": "not-met"})


@pytest.mark.parametrize(
    ("cause", "detail", "here", "wanted"),
    [
        ("idle-exit", "", Situation(SLEEPS), {"resume-latency"}),
        ("device-interrupt", "eth1-TxRx-0", Situation(), INTERRUPT),
        ("device-interrupt", "eth0-TxRx-0", CARD, INTERRUPT),
        ("device-interrupt", "eth1-TxRx-0", CARD,
         {*INTERRUPT, "adaptive-receive", "card-queues", "card-interrupts", "deferred-interrupts"}),
        ("task", "guest: hog", IN_GUEST, {"guest: isolated-cpus"}),
        ("task", "host: hog", IN_GUEST, set()),
        ("kernel-thread", "guest: kworker: vmstat_update", Situation(), set()),
    ],
)  # fmt: skip
def test_what_is_met_or_of_another_card_or_machine_is_no_candidate(
    cause: str, detail: str, here: Situation, wanted: set[str]
) -> None:
    assert set(names(cause, detail, here)) == wanted


def test_what_cannot_be_set_is_no_candidate() -> None:
    every = [knob for cause in NAMES for knob in knobs_for(Named(cause, "x"), CARD)]
    assert every and all(knob.settable != "no" for knob in every)


def test_what_to_type_is_said() -> None:
    here = Situation(purpose="--cpus 1 --role bare-metal")
    knobs = [
        KnobFacts("a", (), 0, "runtime"),
        KnobFacts("b", (), 0, "boot"),
        KnobFacts("c", (), 0, "runtime", disruptive=True),
        KnobFacts("guest: d", (), 0, "boot"),
    ]
    assert here.lines(knobs) == [
        "sudo tailtap host apply a c --cpus 1 --role bare-metal --disruptive",
        "tailtap host bootline b --cpus 1 --role bare-metal",
        "tailtap run EXPERIMENT --set dut.tuning=full",
    ]
    assert Situation().lines(knobs[:1]) == ["sudo tailtap host apply a"]


def test_the_rule_is_greedy_and_ends() -> None:
    knobs = [
        KnobFacts("isolated-cpus", (), 2, "boot"),
        KnobFacts("groups", (), 0, "runtime", recommended=False),
        KnobFacts("hung-task", (), 0, "runtime"),
        KnobFacts("nmi-watchdog", (), 0, "runtime"),
    ]
    anywhere = Situation(knobs=knobs)
    task, thread = Named("task", "a"), Named("kernel-thread", "khungtaskd")
    found = remedy({task: 60, thread: 39}, 100, anywhere)
    assert found is not None
    assert ([k.name for k in found.knobs], found.packets) == (["isolated-cpus"], 99)
    assert (found.share, set(found.causes)) == (0.99, {task, thread})
    answers = dict.fromkeys(("groups", "hung-task", "nmi-watchdog"), "not-met")
    found = remedy({task: 60, thread: 39}, 100, Situation(answers, knobs=knobs))
    assert found is not None
    assert [k.name for k in found.knobs] == ["groups", "hung-task"]
    assert remedy({Named("gap", ""): 60}, 100, anywhere) is None
    # Timers made more packets late, but without them the tail is no shorter.
    timer = Named("timer", "local timer")

    def without(causes: Collection[Named]) -> Without:
        shorter = 5 if task in causes else 9
        return Without(p=0.99, measured_ns=9, percentile_ns=shorter, measured_worst_ns=9,
                       worst_ns=9, least_ns=1)  # fmt: skip

    found = remedy({timer: 60, task: 39}, 100, Situation(), without)
    assert found is not None and found.causes == {task}
    assert remedy({task: 1}, 1000, anywhere) is None


def test_knobs_of_the_generator_s_cpu_are_set_for_that() -> None:
    """What the audit says of the device's CPUs says nothing of it."""
    here = Situation({"isolated-cpus": "met", "groups": "met"}, None, frozenset(), "--cpus 1",
                     "--cpus 0 --role generator")  # fmt: skip
    found = knobs_for(Named("task", "hog, on the generator's CPU 0"), here)
    assert {knob.name for knob in found} == {"generator: isolated-cpus", "generator: groups"}
    assert sorted(here.lines(found)) == [
        "sudo tailtap host apply groups --cpus 0 --role generator",
        "tailtap host bootline isolated-cpus --cpus 0 --role generator",
    ]
    assert names("steal", "on the generator's CPU 0", here) == []
    assert names("timer", "local timer, on the generator's CPU 0") != []


MS = 1_000_000


TIMER = [CauseName(cause="timer", detail="hog")]


@pytest.mark.parametrize(
    ("trials", "proven", "candidates"),
    [
        ([helped("groups")], ["groups"], ["isolated-cpus"]),
        ([trial("isolated-cpus", answer="no effect"), trial("groups")], [], ["groups"]),
        ([helped("groups", causes=TIMER)], [], ["isolated-cpus"]),
    ],
)
def test_remedies_are_candidates_until_a_trial_showed_what_they_do(
    tmp_path: Path, trials: list[KnobTrial], proven: list[str], candidates: list[str]
) -> None:
    """What did nothing is none, and what helped against another cause is not proven."""
    noise = np.random.default_rng(7)
    jobs = [Job(START + (3 + 100 * at) * MS, 2 * MS, HOG) for at in range(19)]
    made = write_run(tmp_path / "001-a", simulate(arrivals(20_000, 2.0, noise), jobs, noise))
    (tmp_path / "improve.json").write_bytes(msgspec.json.encode(improvement(*trials)))
    [found] = explain_runs([made])
    remove = record(found).remove
    assert [row.knob for row in remove.proven] == proven
    assert remove.knobs == candidates
    says = "proven: groups (p99.9 from 2.1 ms to 300 us); candidates, not tried here: "
    assert remove.words.startswith(says) == bool(proven) == ("proven" in remove.words)

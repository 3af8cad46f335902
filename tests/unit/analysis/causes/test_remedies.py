"""Which knobs are candidates for a cause, and what an improvement showed of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from improvements import helped, improvement, trial
from traced import START, Block, arrivals, hog, simulate, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.record import record
from tailtap.analysis.causes.remedies import MADE_FOR, OF_CARDS, Situation, knobs_for, remedy
from tailtap.analysis.causes.taxonomy import CAUSES, NAMES, Named
from tailtap.host.knobs.knob import CAUSES as REMOVABLE
from tailtap.records.causes import CauseName, Remove
from tailtap.records.knobs import KNOBS, KnobFacts
from tailtap.records.search import KnobTrial


def names(cause: str, detail: str, here: Situation | None = None) -> list[str]:
    return [k.name for k in knobs_for(Named(cause, detail), here or Situation())]


def test_causes_are_those_that_knobs_remove() -> None:
    assert NAMES - {"mixed", "unexplained"} == REMOVABLE
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
        ("waiting", "nobody had told its core", set()),
        ("gap", "", set()),
        ("link", "", set()),
    ],
)  # fmt: skip
def test_a_knob_answers_this_very_cause(cause: str, detail: str, wanted: set[str]) -> None:
    assert set(names(cause, detail)) == wanted


def test_what_cannot_be_set_or_is_met_or_does_not_apply_is_no_candidate() -> None:
    assert "deep-idle-states" in names("idle-exit", "")
    answers = {"resume-latency": "not-met", "idle-poll": "met", "intel-idle-limit": "unknown"}
    assert names("idle-exit", "", Situation(answers)) == ["resume-latency"]
    anywhere = Situation()
    assert all(
        knob.settable != "no" for cause in NAMES for knob in knobs_for(Named(cause, "x"), anywhere)
    )


def test_knobs_of_cards_are_for_cards_that_packets_pass() -> None:
    card = Situation(cards=frozenset(("eth1",)))
    assert "card-queues" in names("device-interrupt", "eth1-TxRx-0", card)
    assert "card-queues" not in names("device-interrupt", "eth0-TxRx-0", card)
    assert "card-queues" not in names("device-interrupt", "eth1-TxRx-0")
    assert "pause-frames" in names("link", "", card)


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


def test_a_guest_has_its_line_and_answers_of_its_own() -> None:
    here = Situation({"isolated-cpus": "met"}, {"isolated-cpus": "not-met"})
    assert names("task", "guest: hog", here) == ["guest: isolated-cpus"]
    assert names("task", "host: hog", here) == []
    assert names("kernel-thread", "guest: kworker: vmstat_update") == []


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


def told(folder: Path, *trials: KnobTrial) -> Remove:
    """The remedies of a run of an improvement with these trials."""
    noise = np.random.default_rng(7)
    blocks = [Block(START + (3 + 100 * at) * MS, 2 * MS, hog) for at in range(19)]
    made = write_run(folder / "001-a", simulate(arrivals(20_000, 2.0, noise), blocks, noise))
    (folder / "improve.json").write_bytes(msgspec.json.encode(improvement(*trials)))
    [found] = explain_runs([made])
    return record(found).remove


def test_a_proven_remedy_says_so_and_others_are_candidates(tmp_path: Path) -> None:
    remove = told(tmp_path, helped("groups"))
    assert [row.knob for row in remove.proven] == ["groups"]
    assert remove.knobs == ["isolated-cpus"]
    assert remove.words.startswith(
        "proven: groups (p99.9 from 2.1 ms to 300 us); candidates, not tried here: "
    )


def test_what_did_nothing_is_no_candidate_and_what_was_not_shown_is_one(tmp_path: Path) -> None:
    remove = told(tmp_path, trial("isolated-cpus", answer="no effect"), trial("groups"))
    assert (remove.proven, remove.knobs) == ([], ["groups"])


def test_what_helped_against_other_causes_is_not_told(tmp_path: Path) -> None:
    remove = told(tmp_path, helped("groups", causes=[CauseName(cause="timer", detail="hog")]))
    assert remove.proven == []
    assert "proven" not in remove.words

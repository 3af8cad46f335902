"""Which knobs are named for causes."""

from __future__ import annotations

from tailtap.cause.remedies import MADE_FOR, ONLY_FOR, Knob, knobs_for, remedy
from tailtap.cause.taxonomy import CAUSES, NAMES, Named
from tailtap.machine.knobs import KNOBS, named
from tailtap.machine.knobs.knob import CAUSES as REMOVABLE

TABLE = [Knob(k.name, tuple(k.removes), k.risk, k.settable, k.recommended) for k in KNOBS]


def test_causes_are_those_that_knobs_remove() -> None:
    assert NAMES - {"mixed", "unexplained"} == REMOVABLE
    letters = [cause.letter for cause in CAUSES if cause.letter]
    assert len(letters) == len(set(letters))


def test_knobs_that_are_made_for_a_thing_exist() -> None:
    for cause, _, names in MADE_FOR:
        assert cause in NAMES
        for name in names:
            assert named(name) is not None, name
    for name in ONLY_FOR:
        assert named(name) is not None, name


def test_stopped_timers_are_no_remedy_for_the_work_of_others() -> None:
    compiler = [k.name for k in knobs_for(Named("task", "cc1"), TABLE)]
    assert "isolated-cpus" in compiler
    assert not {"maintenance", "emulator-threads"} & set(compiler)
    assert "maintenance" in [k.name for k in knobs_for(Named("task", "fstrim"), TABLE)]
    assert "emulator-threads" in [k.name for k in knobs_for(Named("task", "CPU 0/KVM"), TABLE)]


def test_knobs_of_another_thread_are_not_named() -> None:
    names = [k.name for k in knobs_for(Named("kernel-thread", "khugepaged"), TABLE)]
    assert names == ["transparent-huge-pages"]
    assert "workqueues" in [k.name for k in knobs_for(Named("kernel-thread", "kworker: x"), TABLE)]
    assert knobs_for(Named("function-call-ipi", "ipi_mb"), TABLE) == []


def test_the_rule_is_greedy_and_ends() -> None:
    knobs = [
        Knob("both", ("task", "timer"), 2, "boot"),
        Knob("task-only", ("task",), 0, "runtime"),
        Knob("timer-only", ("timer",), 0, "runtime"),
        Knob("nothing", ("steal",), 0, "runtime"),
    ]
    found = remedy({Named("task", "a"): 60, Named("timer", ""): 39}, 100, knobs)
    assert found is not None
    assert (found.knobs, found.packets, found.share) == (("both",), 99, 0.99)
    found = remedy({Named("task", "a"): 60, Named("timer", ""): 39}, 100, knobs, {"both"})
    assert found is not None
    assert found.knobs == ("task-only", "timer-only")
    assert remedy({Named("gap", ""): 60}, 100, knobs) is None
    assert remedy({Named("task", "a"): 1}, 1000, knobs) is None

"""Threads of this machine's kernel are moved to the housekeeping CPU, and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailtap.base.units import parse_cpus
from tailtap.host.changes.journal import Journal
from tailtap.host.knobs import named
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.scheduling import threads
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import plan, tuned


def cpus() -> dict[tuple[str, str], str]:
    """Where each thread may run that lives as long as the machine."""
    return {
        (one.number, one.name): one.cpus for one in threads(Tree()) if "kworker" not in one.name
    }


@pytest.mark.apart
def test_kernel_threads_are_moved_and_put_back(tmp_path: Path) -> None:
    tree = Tree()
    if len(tree.online) < 2:
        pytest.skip("this machine has one CPU, so that nothing can be moved")
    purpose = Purpose.of(tree, "bare-metal", [tree.online[-1]])
    knob = named("kernel-threads")
    assert knob is not None
    before = cpus()
    [change] = plan(tree, purpose, ["kernel-threads"]).changes
    [moved] = change.resources
    journal = Journal.create(tmp_path)
    with tuned(plan(tree, purpose, ["kernel-threads"]), journal):
        inside = cpus()
        assert {key for key, now in inside.items() if now != before.get(key, now)}
        assert {key[0] for key, now in inside.items() if now != before.get(key, now)} <= set(
            moved.as_json()["threads"]
        )
        wish = knob.wish(purpose, tree)
        assert all(wish.holds(now, "cpus") for key, now in inside.items()
                   if key[0] in moved.as_json()["threads"])  # fmt: skip
        # One that somebody else has moved meanwhile stays where it is.
        number, name = next(key for key, now in inside.items() if now != before.get(key, now))
        os.sched_setaffinity(int(number), purpose.cpus)
    assert len(journal.left) == 1
    assert (
        f"somebody else changed {name} (CPUs {purpose.isolated}, before tailtap" in journal.left[0]
    )
    os.sched_setaffinity(int(number), parse_cpus(before[number, name]))
    journal.close()
    after = cpus()
    assert {key: now for key, now in after.items() if key in before} == {
        key: was for key, was in before.items() if key in after
    }

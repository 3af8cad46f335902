"""Which knobs are tried: those that answer a cause and that a run can set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailtap.analysis.causes.taxonomy import Named
from tailtap.host import knobs as table
from tailtap.host.knobs.knob import Files, Knob, fixed
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.library import remedies
from tailtap.measure.improve.trials import BOOT, Candidates, candidates

PURPOSE = Purpose("bare-metal", (1,), (0,))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """A machine with two knobs of another package: one is met, and one is not."""
    mine = [
        Knob(
            name, Files(f"/{name}"), fixed("off"), "It is a program's.", "its author",
            group="services", removes=("task",), risk=0, details=details,
        )
        for name, details in (("mine", "^hog$"), ("met", "hog"), ("missing", "hog"))
    ]  # fmt: skip
    monkeypatch.setattr(table, "KNOBS", (*table.KNOBS, *mine))
    (tmp_path / "mine").write_text("on\n")
    (tmp_path / "met").write_text("off\n")
    yield Tree(tmp_path)


def found(tree: Tree, causes: dict[Named, int]) -> Candidates:
    return candidates(causes, remedies(), (), tree, PURPOSE, disruptive=False)


def test_a_knob_of_another_package_answers_what_it_says(tree: Tree) -> None:
    rows = found(tree, {Named("task", "hog"): 90, Named("task", "hogs"): 10}).found
    assert [(row.knob, row.causes, row.packets) for row in rows] == [
        ("mine", (Named("task", "hog"),), 90)
    ]


def test_what_takes_a_reboot_is_left_with_the_reason(tree: Tree) -> None:
    left = found(tree, {Named("task", "hog"): 90}).left
    assert left["isolated-cpus"] == BOOT


def test_causes_without_weight_ask_for_nothing(tree: Tree) -> None:
    causes = {Named("task", "hog"): 5, Named("own-work", ""): 995}
    assert found(tree, causes).found == []
    assert found(tree, {}).found == []

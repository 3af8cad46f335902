"""Which knobs may answer the causes that were found, and which of them can be tried here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tailtap.analysis.causes.remedies import LEAST_SHARE, Knob, Situation, knobs_for
from tailtap.analysis.causes.taxonomy import Named
from tailtap.host.knobs import named
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.plan import plan

BOOT = "the kernel's command line sets it, so that trying it takes a reboot"
ELSEWHERE = "it is not set on the device's machine"
NOTHING = "nothing sets it"
DISRUPTS = "setting it takes links down or stops what runs"
HARMS = "it can harm the machine or others"
MOST_RISK = 1
"""What costs something elsewhere is tried, and put back after each run."""


@dataclass(frozen=True)
class Candidate:
    """A knob that may answer causes, and can be tried."""

    knob: str
    causes: tuple[Named, ...]
    packets: int
    """Late packets with these causes."""


@dataclass(frozen=True)
class Candidates:
    """What can be tried, the most promising first, and what cannot, with the reason."""

    found: Sequence[Candidate]
    left: Mapping[str, str]


def candidates(
    causes: Mapping[Named, int],
    knobs: Sequence[Knob],
    cards: Iterable[str],
    tree: Tree,
    purpose: Purpose,
    *,
    disruptive: bool,
) -> Candidates:
    """The candidates for causes of so many late packets each, where packets pass these cards.

    Other than `tailtap explain`, this names also knobs that help some loads and harm others: they
    are tried. A knob that is met, or that no cause of some weight asks for, is none.
    """
    here = Situation(cards=frozenset(cards))
    late = sum(causes.values())
    by_knob: dict[Knob, list[Named]] = {}
    for name in causes:
        for knob in knobs_for(name, knobs, here):
            by_knob.setdefault(knob, []).append(name)
    gains = {knob: sum(causes[name] for name in names) for knob, names in by_knob.items()}
    found: list[Candidate] = []
    left: dict[str, str] = {}
    for knob in sorted(gains, key=lambda knob: (-gains[knob], knob.rank)):
        if gains[knob] < max(1, LEAST_SHARE * late):
            continue
        can = _can_be_tried(knob, tree, purpose, disruptive=disruptive)
        if isinstance(can, str):
            left[knob.name] = can
        elif can:
            found.append(Candidate(knob.name, tuple(by_knob[knob]), gains[knob]))
    return Candidates(found, left)


def _can_be_tried(knob: Knob, tree: Tree, purpose: Purpose, *, disruptive: bool) -> bool | str:
    """Whether a run can set it and it is not met yet, or why no run can."""
    row = named(knob.name)
    if row is None:
        return ELSEWHERE  # a guest's, or a generator's
    if row.settable == "no":
        return NOTHING
    if row.disruptive and not disruptive:
        return f"{DISRUPTS}: say --disruptive"
    if row.settable == "boot":
        return BOOT
    if row.risk > MOST_RISK and not disruptive:
        return f"{HARMS}: say --disruptive"
    steps = plan(
        tree, purpose, [row.name], disruptive=bool(purpose.interfaces), measuring=True
    )  # as for runs
    if steps.left:
        return steps.left[0][1]
    return bool(steps.changes)

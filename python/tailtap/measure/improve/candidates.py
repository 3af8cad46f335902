"""Why packets of runs were late, which knobs may answer that, and which of these can be tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailtap.analysis.causes.many import Told, explain_many
from tailtap.analysis.causes.remedies import LEAST_SHARE, Knob, Situation, knobs_for
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.verdict.judge import CONFIDENCE, judge
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.analysis.verdict.runs import ANSWERS, evidence_of
from tailtap.host.knobs import named
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import plan
from tailtap.measure.pairs import Made
from tailtap.records.verdict import Answer

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


@dataclass
class Explainer:
    """Explains runs with a trace, and names candidates."""

    knobs: tuple[Knob, ...]
    """Those of `tailtap host`, as remedies."""
    tree: Tree
    purpose: Purpose
    disruptive: bool
    set_already: frozenset[str]
    """Knobs that the experiment sets by itself: between runs nobody sees that they are."""
    note: Callable[[str], object]
    """Called with what could not be explained."""
    explained: dict[Path, str] = field(default_factory=dict)
    """The runs, and which of their packets were late."""

    def causes(self, made: Made, threshold_ns: int) -> Counter[Named]:
        """The causes of packets as late as that, with how many each; none where nothing was."""
        late = f"{threshold_ns - 1} ns"
        self.explained |= dict.fromkeys(made.folders, late)
        found: Counter[Named] = Counter()
        for _, told in explain_many(made.folders, knobs=self.knobs, late=late):
            if isinstance(told, Told):
                for row in told.record.causes:
                    if row.claim != "present" and row.packets:
                        found[Named(row.cause, row.detail)] += row.packets
            else:
                self.note(f"{made.slug}: not explained: {told}")
        return found

    def answer(self, requirement: Requirement, made: Sequence[Made]) -> Answer:
        """Whether the requirement holds, over some measurements: the worst run decides."""
        found = [
            judge(requirement, evidence_of(run), CONFIDENCE).answer
            for one in made
            for run in one.runs
        ]
        return max(found, key=ANSWERS.index)

    def candidates(self, causes: Counter[Named]) -> Candidates:
        """What may answer these causes, and can be tried."""
        return candidates(
            causes,
            [knob for knob in self.knobs if knob.name not in self.set_already],
            self.purpose.interfaces,
            self.tree,
            self.purpose,
            disruptive=self.disruptive,
        )

    def tell(self) -> None:
        """Explain again what was explained, as more is known of the candidates now."""
        for folder, late in self.explained.items():
            explain_many([folder], knobs=self.knobs, late=late)

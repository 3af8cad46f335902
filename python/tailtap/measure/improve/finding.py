"""Why packets of a run were late, and what may be done about it on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailtap.analysis.causes.many import Told, explain_many
from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.verdict.judge import CONFIDENCE, judge
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.analysis.verdict.runs import ANSWERS, evidence_of
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.measure.improve.candidates import Candidates, candidates
from tailtap.measure.pairs import Made
from tailtap.records.verdict import Answer


@dataclass
class Finding:
    """Explains runs with a trace, and names candidates."""

    knobs: tuple[Knob, ...]
    """Those of `tailtap host`, as remedies."""
    tree: Tree
    purpose: Purpose
    disruptive: bool
    set_already: frozenset[str]
    """Knobs that the experiment sets by itself: between runs nobody sees that they are."""
    print_line: Callable[[str], object]
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
                self.print_line(f"{made.slug}: not explained: {told}")
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

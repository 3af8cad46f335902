"""Which knobs are tried, and an improvement that goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from made_records import made as made_record
from stamps import write_stamps

from tailtap.analysis.causes.remedies import Situation, known_knobs
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.evaluation import evaluate
from tailtap.base.errors import Interrupted, NothingBegun, Occupied
from tailtap.base.files import slugify
from tailtap.experiment.reading import read_experiment
from tailtap.host import knobs as table
from tailtap.host.knobs.knob import Files, Knob, fixed
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.measure.campaign import Campaign
from tailtap.measure.improve import Goal, Improvement, improved, plan_of_experiment, settings_of
from tailtap.measure.improve.trials import (
    BOOT,
    Candidate,
    Candidates,
    Explainer,
    Measuring,
    candidates,
)
from tailtap.measure.pairs import Made, Runs
from tailtap.records.knobs import KnobFacts
from tailtap.records.record import read
from tailtap.records.run import RunRecord
from tailtap.records.search import ImproveRecord

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
    mine = [KnobFacts(knob.name, ("task",), 0, details=knob.details) for knob in table.KNOBS[-3:]]
    here = Situation(knobs=[*known_knobs(), *mine])
    return candidates(causes, here, tree, PURPOSE, disruptive=False)


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


EXPERIMENT = "name: a\ndut: {cpus: [1]}\ntraffic: {rate: 10 kpkt/s}\n"
HOG, LIMIT_NS = Named("task", "hog"), 1_000_000
PACKETS, APART_NS = 400, 100_000
LATE = 60


@dataclass
class Device(Measuring):
    """Writes run folders whose packets a hog makes late, unless the knob ends it."""

    stops_after: int = 10_000
    measured: list[str] = field(default_factory=list)

    def measure(self, name: str, knobs: Sequence[str], p: float, *, trace: bool) -> Made:
        runs = self.runs
        slug = f"{runs.number + 1:03}-{slugify(name)}"
        folder = runs.campaign.folder.run(slug)

        def make() -> RunRecord:
            if len(self.measured) == self.stops_after:
                raise KeyboardInterrupt
            self.measured.append(slug)
            folder.start_anew()
            late = 1 if "end-hog" in knobs else LATE
            came = 1_000_000_000 + np.arange(PACKETS) * APART_NS
            left = came + 10_000 + np.arange(PACKETS)
            left[:late] += 2 * LIMIT_NS + runs.number * 100
            order = np.argsort(left, kind="stable")
            write_stamps(folder.ingress, came, np.arange(PACKETS))
            write_stamps(folder.egress, left[order], order)
            evaluate(folder.ingress, folder.egress, trim_ns=0).write(folder.evaluation)
            folder.generator.write_text("{}")
            record = made_record(slug=slug, status="done")
            folder.write(record)
            return record

        return runs.take([slug], p, make)


class Explained(Explainer):
    """All late packets are the hog's, and of two knobs one ends it."""

    def causes(self, made: Made, threshold_ns: int) -> Counter[Named]:
        late, _ = made.late(threshold_ns)
        return Counter({HOG: late})

    def candidates(self, causes: Counter[Named]) -> Candidates:
        return Candidates(
            [Candidate(knob, (HOG,), causes[HOG]) for knob in ("end-hog", "decoy")], {}
        )


def improve(
    out: Path, *, resume: bool = False, stops_after: int = 10_000, require: str = "p90 < 1 ms"
) -> tuple[Improvement, Device]:
    file = out.parent / "experiment.yaml"
    file.write_text(EXPERIMENT)
    plan = plan_of_experiment(read_experiment(file), file, Goal.of([require]), settings_of())
    devices = []

    def prepare(runs: Runs) -> tuple[Measuring, Explainer]:
        devices.append(Device(runs, 1 + plan.repeats, stops_after=stops_after))
        purpose = Purpose("bare-metal", (1,), (0,))
        return devices[0], Explained(Tree(), purpose, False, frozenset(), str)

    return improved(plan, Campaign(out, resume), 0.01, prepare), devices[0]


def test_what_was_interrupted_is_finished_with_the_runs_that_are_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Interrupted, match="with --resume goes on"):
        improve(out, stops_after=15)
    before = read(out / "improve.json", ImproveRecord)
    assert before.status == "interrupted"
    made, device = improve(out, resume=True)
    found = read(out / "improve.json", ImproveRecord)
    assert (found.status, found.stopped, found.kept) == ("done", "holds", ["end-hog"])
    assert found.seed == before.seed
    folders = sorted(path.name for path in (out / "runs").iterdir())
    assert device.measured == folders[15:]
    hog = next(row for row in found.trials if row.knob == "end-hog")
    assert len(hog.pairs) >= 9
    assert set(hog.runs) & set(folders[:15]) and set(hog.runs) & set(folders[15:])
    again, device = improve(out, resume=True)
    assert device.measured == []
    assert again.record.trials == made.record.trials


def test_what_is_another_improvement_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(NothingBegun, match="nothing to resume"):
        improve(out, resume=True)
    with pytest.raises(Interrupted):
        improve(out, stops_after=3)
    with pytest.raises(Occupied, match="not empty"):
        improve(out)
    with pytest.raises(Occupied, match="another value of the requirement"):
        improve(out, resume=True, require="p90 < 2 ms")

"""Stretches of observing a device that was there before, each with knobs that are put back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder
from tailtap.base.errors import Interrupted, MachineError
from tailtap.base.files import make_folder, move, remove_tree, slugify
from tailtap.experiment.tuning import purpose_of
from tailtap.host.changes.journal import Journal
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import tuned
from tailtap.host.tuning.plan import plan
from tailtap.measure.improve.measuring import Measuring
from tailtap.measure.observe.asked import Asked
from tailtap.measure.observe.observing import observe_prepared
from tailtap.measure.observe.prepared import Prepared, prepare
from tailtap.measure.observe.record import begun, ended
from tailtap.measure.pairs import Made
from tailtap.records.run import RunRecord

DRAFT = "observing"
"""Beside the runs: the stretch that is observed now."""


@dataclass(frozen=True)
class Observable:
    """A device that can be observed, and what its machine is to be ready for."""

    prepared: Prepared
    tree: Tree
    purpose: Purpose


def prepare_stretches(asked: Asked) -> Observable:
    """Find out how a device is observed, and which cores serve it.

    Raises what `prepare` raises, and `MachineError` where nobody knows which cores serve.
    """
    prepared = prepare(asked)
    if not prepared.traced:
        raise MachineError(
            "nobody can say why these packets are late: what serves them is not known, or they are "
            "matched by more than a hash: name its cores with --cpus"
        )
    tree = Tree()
    traits = prepared.traits
    cpus = prepared.serving.cpus
    cards = sorted(
        end.interface.name
        for way in prepared.ways
        for end in way
        if f"/sys/class/net/{end.interface.name}/device"
        in tree.glob(f"/sys/class/net/{end.interface.name}/device")
    )
    return Observable(prepared, tree, purpose_of(traits.virtualization, cpus, cards, tree))


@dataclass
class Stretches(Measuring):
    """Observes for a while, with knobs and without."""

    of_it: Observable = field(kw_only=True)
    disruptive: bool = field(kw_only=True)

    def measure(self, name: str, knobs: Sequence[str], p: float, *, trace: bool) -> Made:
        """Observe once with the `knobs` set; they are put back before it returns."""
        runs = self.runs
        variables = {"tuning": list(knobs), "trace": trace}
        repeat, number = runs.repeat_of(variables), runs.number + 1
        slug = f"{number:03}-{slugify(name)}"

        def make() -> RunRecord:
            folder = runs.campaign.folder.run(slug)
            try:
                record = self._observed(folder, knobs, trace=trace)
            except MachineError as error:  # a knob that cannot be set here, say
                prepared = self.of_it.prepared
                folder.start_anew()
                record = begun(prepared, number, prepared.ways[0])
                ended(record, folder, "failed", str(error))
            except Interrupted as error:
                raise KeyboardInterrupt from error
            record.slug, record.repeat, record.number = slug, repeat, number
            record.variables |= variables
            folder.write(record)
            return record

        return runs.take([slug], p, make)

    def _observed(self, folder: RunFolder, knobs: Sequence[str], *, trace: bool) -> RunRecord:
        """Observe into a draft, whose run becomes this one."""
        of_it, below = self.of_it, self.runs.campaign.out
        draft = ExperimentFolder(self.runs.campaign.out / DRAFT, below)
        remove_tree(draft.path, below=below)
        make_folder(draft.runs, below=below)
        asked = of_it.prepared.asked
        # What the trace of a stage costs is no matter: nothing is compared with it.
        asked = replace(asked, budget=None) if trace else replace(asked, trace="none")
        prepared = replace(of_it.prepared, asked=asked)
        with ExitStack() as stack:
            if knobs:
                steps = plan(
                    of_it.tree, of_it.purpose, knobs, disruptive=self.disruptive, measuring=True
                )
                journal = Journal.create()
                stack.callback(journal.close)
                stack.enter_context(tuned(steps, journal))
            [made] = observe_prepared(prepared, draft, ends_early=False)
        remove_tree(folder.path, below=below)
        move(made.path, folder.path, below=below)
        remove_tree(draft.path, below=below)
        return folder.read()

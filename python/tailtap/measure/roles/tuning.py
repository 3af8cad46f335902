"""The machines of a run, judged; that of the DuT is tuned before as `dut.tuning` says."""

from __future__ import annotations

from tailtap.base.errors import InputError, MachineError, TailtapError
from tailtap.experiment.model import Experiment
from tailtap.experiment.tuning import FULL, NONE, knobs_of, purpose_of
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import Plan, plan, tuned
from tailtap.host.tuning.audit import Audit, audit
from tailtap.lab.topology.lab import Lab
from tailtap.records.machine import Tuning


def purpose_for(experiment: Experiment, tree: Tree) -> Purpose:
    """What the machine is to be ready for. Raises `InputError` where no other CPU is left."""
    cards = [card for pair in experiment.cables() for card in pair.dut]
    virtualization = experiment.traits.virtualization
    return purpose_of(virtualization, experiment.dut.cpus, cards, tree)


def planned(experiment: Experiment, tree: Tree, purpose: Purpose) -> Plan:
    """What a run sets. Its cards are the lab's own, so that their links may go down."""
    names = knobs_of(experiment.dut.tuning)
    if not names:
        return Plan(tree, (), (), ())
    return plan(tree, purpose, names, disruptive=bool(purpose.interfaces), measuring=True)


def require_boot(experiment: Experiment, tree: Tree, purpose: Purpose) -> None:
    """Raises `MachineError` where the run needs a kernel that was booted otherwise."""
    if experiment.dut.tuning != FULL or experiment.traits.own_kernel:
        return
    boot = [knob.name for knob in KNOBS if knob.settable == "boot"]
    lacking = [row for row in audit(tree, purpose, boot).rows if row.answer == "not-met"]
    words = [row.knob.word(purpose, tree) for row in lacking if row.knob.word]
    if words:
        raise MachineError(
            f"dut.tuning: full needs a kernel that was booted with {' '.join(words)}: "
            "`tailtap host bootline` prints the whole line; or take dut.tuning: runtime"
        )


def tune(experiment: Experiment, lab: Lab) -> Tuning | None:
    """Set what the run asks for until the lab is removed; what the machine is like then.

    None where nothing can be kept apart from the DuT, as on a machine with a single CPU. Raises
    `InputError`, and `MachineError` when the kernel refuses a value or was booted otherwise.
    """
    tree = Tree()
    try:
        purpose = purpose_for(experiment, tree)
    except TailtapError:
        if experiment.dut.tuning == NONE:
            return None
        raise
    require_boot(experiment, tree, purpose)
    wanted = planned(experiment, tree, purpose)
    before = {change.knob.name: change.before.value for change in wanted.changes}
    lab.keep(tuned(wanted, lab.journal))
    return record(audit(tree, purpose), before, dict(wanted.left))


def judged_as_generator(experiment: Experiment, tree: Tree | None = None) -> Tuning | None:
    """What the machine of the generators is like, of which nothing is tuned.

    None where nothing can be kept apart from them, as on a machine with a single CPU.
    """
    tree = tree or Tree()
    try:
        purpose = Purpose.of(tree, "generator", list(experiment.senders), interfaces=[])
    except InputError:
        return None
    return record(audit(tree, purpose), {}, {})


def record(found: Audit, before: dict[str, str | None], left: dict[str, str]) -> Tuning:
    """`tuning` of ``run.json``: the audit during the run, and what was set for it."""
    there = [row for row in found.rows if row.answer != "not-applicable"]
    return found.tuning(there, before=before, left=left)

"""`tailtap run --check`: what of an experiment this machine cannot do, before anything is made.

Everything is asked by what the real run asks first. What only trying it would tell, such as whether
a kernel has a certain classifier, is not found out: `tailtap doctor` tries that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailtap import forwarder, platform
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun, make_plan
from tailtap.experiment.preconditions import require_clock, require_cpus, require_room, stamp_bytes
from tailtap.experiment.reading import CheckedExperiment
from tailtap.findings import Findings
from tailtap.forwarder import Asked
from tailtap.host.cards import Loan
from tailtap.host.local import LocalHost, require_program
from tailtap.host.perf import Counting
from tailtap.host.privileges import missing_capabilities, require_root
from tailtap.traffic import GENERATORS

SCHEMA = "tailtap.check/1"
PROGRAMS = ("ip", "setpriv")
"""What every run calls on this machine, whatever is measured."""


@dataclass(frozen=True)
class Outlook:
    """A planned experiment, and what was found out about it."""

    name: str
    differs: Sequence[str]
    runs: Sequence[tuple[PlannedRun, Findings]]
    whole: Findings
    """What concerns all runs."""
    seconds: float
    """How long packets are sent, all runs together."""
    stamp_bytes: int

    @property
    def can_run(self) -> bool:
        """Whether nothing is known that prevents any of the runs."""
        return not self.whole.problems and not self.impossible

    @property
    def impossible(self) -> Sequence[tuple[PlannedRun, Findings]]:
        """The runs with problems of their own."""
        return [row for row in self.runs if row[1].problems]

    def as_json(self) -> dict[str, Any]:
        """What ``tailtap run --check --json`` prints."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "differs": list(self.differs),
            "can_run": self.can_run,
            "runs": [
                {
                    "number": run.number,
                    "slug": run.slug,
                    "variables": dict(run.variables),
                    **_messages(findings),
                }
                for run, findings in self.runs
            ],
            **_messages(self.whole),
            "traffic_seconds": self.seconds,
            "stamp_bytes": self.stamp_bytes,
        }


def check_experiment(checked: CheckedExperiment, out: Path) -> Outlook:
    """Plan the experiment and find out what keeps this machine from it; makes nothing.

    `out` is where its results would go. Takes about 10 ms for each combination of variables.
    """
    plan = make_plan(checked)
    whole = Findings()
    if os.geteuid() == 0:
        whole.ask(require_root)
    else:
        whole.notes.append("a run needs root; what only root can ask was not asked: use sudo")
    for program in PROGRAMS:
        whole.ask(require_program, program)
    whole.ask(require_room, out, plan)
    # Repeats are the same experiment.
    known: dict[int, Findings] = {}
    for run in plan:
        if id(run.experiment) not in known:
            known[id(run.experiment)] = _foresee(run)
    return Outlook(
        checked.name,
        checked.differs,
        [(run, known[id(run.experiment)]) for run in plan],
        whole,
        sum(run.experiment.traffic.seconds for run in plan),
        stamp_bytes(plan),
    )


def _foresee(run: PlannedRun) -> Findings:
    experiment, findings = run.experiment, Findings()
    dut, traffic = experiment.dut, experiment.traffic
    findings.ask(require_cpus, [run])
    findings.ask(require_clock, [run])
    GENERATORS[traffic.generator].foresee(traffic, findings)
    kind = platform.PLATFORMS[dut.platform]
    cables = experiment.cables()
    for card in () if cables is None else (*cables.dut, *cables.tap):
        findings.ask(Loan.of, card, "", "")
    programs = [need.program for need in forwarder.FORWARDERS[dut.forwarder].needs]
    kind.foresee(experiment.wanted(both_ways=traffic.bidirectional), cables, programs, findings)
    if kind.has_dut:
        _foresee_forwarder(experiment, findings)
        if experiment.counters and not missing_capabilities():
            findings.ask(_count)
    return findings


def _foresee_forwarder(experiment: Experiment, findings: Findings) -> None:
    dut, cables = experiment.dut, experiment.cables()
    kind = forwarder.FORWARDERS[dut.forwarder]
    on = platform.PLATFORMS[dut.platform]
    for need in kind.needs:
        findings.ask(need.find, LocalHost())
    cards = () if cables is None else cables.dut
    asked = Asked(experiment.traffic, len(dut.cpus), cards, on.own_kernel)
    kind.foresee(kind.Options.model_validate(dut.options), asked, findings)


def _count() -> None:
    """Raises `MachineError` when processors must not be counted on."""
    with Counting():
        pass


def _messages(findings: Findings) -> Mapping[str, list[dict[str, str]]]:
    return {
        "problems": [{"message": text} for text in findings.problems],
        "notes": [{"message": text} for text in findings.notes],
    }

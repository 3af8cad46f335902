"""The plan: the runs of an experiment, in their order and with their names.

The repeats are the outermost loop: whatever drifts on the machine over the hours (temperature,
neighbours) then meets every combination, not only the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailtap.base.files import slugify
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import CheckedExperiment
from tailtap.lab.topology.graphs import FORWARD
from tailtap.records.record import opened
from tailtap.records.run import CASE, Parameters, Plan, PlanRow

MAX_PART = 40
"""Most characters of one value in a slug, so that it has room for the others."""
MAX_SLUG = 100
"""Longest slug in characters; file systems allow 255 bytes for a name."""


@dataclass(frozen=True)
class PlannedRun:
    """One flow of one measurement of the plan."""

    number: int
    slug: str
    repeat: int
    variables: Mapping[str, Any]
    """The varied values as written, and the flow's name where it has one of its own."""
    experiment: Experiment
    flow: str
    """One of the experiment's flows."""
    together: Sequence[PlannedRun] = ()
    """The runs of the other flows, measured at the same time. Only the first flow's run has any."""

    @property
    def group(self) -> Sequence[PlannedRun]:
        """This run and those of the other flows."""
        return [self, *self.together]

    def row(self) -> PlanRow:
        """The run's row in ``plan.json``."""
        asked = self.experiment.parameters(self.flow)
        return PlanRow(
            number=self.number,
            slug=self.slug,
            repeat=self.repeat,
            variables=dict(self.variables),
            parameters=opened(f"the parameters of {self.slug}", asked, Parameters),
        )


def make_plan(checked: CheckedExperiment) -> list[PlannedRun]:
    """All measurements of an experiment. The same experiment gives the same plan.

    Runs are numbered from 1, and each flow is one: the plan has the first flow's, which has the
    others (`together`).
    """
    runs: list[PlannedRun] = []
    number = 0
    for repeat in range(1, checked.repeat + 1):
        for variables, experiment in checked.combinations:
            name = name_of(variables) or slugify(checked.name) or "run"
            name += f"-r{repeat}" if checked.repeat > 1 else ""
            runs.append(plan_run(number + 1, name, repeat, variables, experiment))
            number += len(experiment.flows)
    return runs


def plan_run(
    number: int, name: str, repeat: int, variables: Mapping[str, Any], experiment: Experiment
) -> PlannedRun:
    """The run of an experiment's first flow, with those of the others, numbered from `number`.

    Slugs are numbers and `name`. That of bidirectional traffic's first direction is as it would be
    without the other one.
    """
    # A single flow of dut.flows has its name as well: others may join it where flows vary.
    several = len(experiment.flows) > 1 or bool(experiment.dut.flows)
    runs = []
    for place, flow in enumerate(experiment.flows):
        own = {experiment.flow_variable: flow} if several else {}
        ending = f"-{_part(flow)}" if several and flow != FORWARD else ""
        slug = f"{number + place:03}-{name}"[: MAX_SLUG - len(ending)].rstrip("-.") + ending
        runs.append(
            PlannedRun(number + place, slug, repeat, {**variables, **own}, experiment, flow)
        )
    first, *others = runs
    return replace(first, together=others)


def name_of(variables: Mapping[str, Any]) -> str:
    """What a run with these values is called in its slug; may be empty.

    The name of a case stands for values of it that have no room there.
    """
    parts = [_part(value) for value in variables.values()]
    if CASE in variables:
        short = [one for one in variables.values() if len(slugify(_text(one))) <= MAX_PART]
        parts = list(dict.fromkeys(_part(value) for value in (variables[CASE], *short)))
    return "-".join(filter(None, parts))


def plan_record(name: str, runs: list[PlannedRun]) -> Plan:
    """``plan.json``."""
    return Plan(name=name, runs=[run.row() for run in runs])


def _part(value: object) -> str:
    return slugify(_text(value))[:MAX_PART].rstrip("-.")


def _text(value: object) -> str:
    if isinstance(value, list):
        return "-".join(_text(item) for item in value)
    if isinstance(value, Mapping):
        return "-".join(f"{key}-{_text(item)}" for key, item in value.items())
    return str(value)

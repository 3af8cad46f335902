"""The plan: the runs of an experiment, in their order and with their names.

The repeats are the outermost loop: whatever drifts on the machine over the hours (temperature,
neighbours) then meets every combination, not only the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import CheckedExperiment
from tailtap.files import slugify

SCHEMA = "tailtap.plan/1"
DIRECTION = "direction"
"""The variable that differs between the two runs of bidirectional traffic."""
MAX_PART = 40
"""Most characters of one value in a slug, so that it has room for the others."""
MAX_SLUG = 100
"""Longest slug in characters; file systems allow 255 bytes for a name."""


@dataclass(frozen=True)
class PlannedRun:
    """One measurement of the plan. `variables` are the varied values as written."""

    number: int
    slug: str
    repeat: int
    variables: Mapping[str, Any]
    experiment: Experiment

    @property
    def reverse(self) -> PlannedRun | None:
        """The run of the other direction of bidirectional traffic, measured at the same time.

        It has the next number.
        """
        if not self.experiment.traffic.bidirectional or self.variables.get(DIRECTION) != "forward":
            return None
        slug = f"{self.number + 1:03}{self.slug.removeprefix(f'{self.number:03}')}-reverse"
        variables = {**self.variables, DIRECTION: "reverse"}
        return replace(self, number=self.number + 1, slug=slug, variables=variables)

    def as_json(self) -> dict[str, Any]:
        """The run's row in ``plan.json``."""
        return {
            "number": self.number,
            "slug": self.slug,
            "repeat": self.repeat,
            "variables": dict(self.variables),
            "parameters": self.experiment.parameters(),
        }


def make_plan(checked: CheckedExperiment) -> list[PlannedRun]:
    """All runs of an experiment, numbered from 1. The same experiment gives the same plan.

    Bidirectional traffic takes two numbers, one for each direction; the plan has the first.
    """
    runs: list[PlannedRun] = []
    number = 0
    for repeat in range(1, checked.repeat + 1):
        for variables, experiment in checked.combinations:
            number += 1
            parts = [_part(value) for value in variables.values()]
            parts = [part for part in parts if part] or [slugify(checked.name) or "run"]
            if checked.repeat > 1:
                parts.append(f"r{repeat}")
            slug = f"{number:03}-{'-'.join(parts)}"[:MAX_SLUG].rstrip("-.")
            run = PlannedRun(number, slug, repeat, variables, experiment)
            if experiment.traffic.bidirectional:
                run = replace(run, variables={**variables, DIRECTION: "forward"})
                number += 1
            runs.append(run)
    return runs


def plan_as_json(name: str, runs: list[PlannedRun]) -> dict[str, Any]:
    """The content of ``plan.json``."""
    return {"schema": SCHEMA, "name": name, "runs": [run.as_json() for run in runs]}


def _part(value: object) -> str:
    return slugify(_text(value))[:MAX_PART].rstrip("-.")


def _text(value: object) -> str:
    if isinstance(value, list):
        return "-".join(_text(item) for item in value)
    if isinstance(value, Mapping):
        return "-".join(f"{key}-{_text(item)}" for key, item in value.items())
    return str(value)

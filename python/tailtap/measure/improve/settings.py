"""What an improvement is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tailtap.analysis.compare.significance import ERROR
from tailtap.analysis.verdict.requirement import Requirement, parse_requirements
from tailtap.base.errors import InputError
from tailtap.experiment.combinations import CASES, VARY
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import CheckedExperiment
from tailtap.experiment.tuning import FULL
from tailtap.measure.campaign import experiment_text
from tailtap.measure.observe.look import Asked
from tailtap.records.search import ImproveSettings

REPEATS = 2
"""How many stretches of observing the requirement is judged on, at each stage."""
TESTS = 16
"""Among so many trials of knobs the error is divided: no more are made."""
WITHIN_NS = 30 * 60 * 1_000_000_000


def settings_of(
    within_ns: int = WITHIN_NS,
    margin: float = 0.2,
    *,
    disruptive: bool = False,
    undisturbed: bool = False,
) -> ImproveSettings:
    """The settings of an improvement. Raises `InputError` for those that make no sense.

    An effect below `margin` on the share of late packets counts as none. With `disruptive` knobs
    are tried that take links of the lab's cards down, or can do harm. With `undisturbed` latencies
    without pauses from outside are compared, and every run is traced.
    """
    if not 0.01 <= margin <= 1:
        raise InputError("give a share from 1 % to 100 %, such as '20 %'").at("--margin")
    if within_ns <= 0:
        raise InputError("give a time above zero, such as 30min").at("--within")
    return ImproveSettings(
        within_ns=within_ns,
        margin=margin,
        error=ERROR,
        tests=TESTS,
        disruptive=disruptive,
        undisturbed=undisturbed,
    )


@dataclass(frozen=True)
class Goal:
    """What is required: at most a share of packets as late as a time."""

    requirement: Requirement
    p: float
    """The percentile, 0 to 1."""
    limit_ns: int

    @classmethod
    def of(cls, texts: Sequence[str]) -> Goal:
        """The one requirement of a percentile or of the reliability. Raises `InputError`."""
        found = parse_requirements(texts)
        if len(found) != 1 or found[0].quantity not in ("percentile", "reliability"):
            told = ", ".join(one.text for one in found) or "nothing"
            raise (
                InputError(
                    "give one percentile, such as 'p99.9 < 1 ms', or one "
                    "reliability, such as 'reliability(1 ms) >= 99.9 %'"
                )
                .at(told)
                .at("--require")
            )
        one = found[0]
        share, time = one.argument or 0, one.limit
        if one.quantity == "reliability":
            share, time = time, share
        if share == 1:
            raise InputError("no run shows that no packet at all is late: name a share").at(
                "--require"
            )
        return cls(one, float(share), int(time))


@dataclass(frozen=True)
class Plan:
    """What is improved, and until when."""

    name: str
    goal: Goal
    settings: ImproveSettings
    repeats: int
    """How many runs the requirement is judged on, at each stage."""
    text: str
    """What is kept beside the runs: the experiment, or what was asked for."""
    parameters: dict[str, Any]
    """What the record says of it."""
    of_it: Experiment | Asked
    """What is measured; of a device that is observed, `duration_ns` is the length of a stretch."""


def plan_of_experiment(
    checked: CheckedExperiment, source: Path, goal: Goal, settings: ImproveSettings
) -> Plan:
    """The plan for an experiment. Raises `InputError` for one that cannot be improved."""
    document, experiment = checked.document, checked.combinations[0][1]
    for key in (VARY, CASES):
        if document.data.get(key):
            raise document.wrong(
                (key,),
                "an improvement looks at one configuration: "
                f"choose a value with --set and remove {key} from the file",
            )
    if not experiment.traits.has_dut:
        raise document.wrong(
            ("dut", "platform"),
            f"{experiment.dut.platform} has no device, and so nothing to improve",
        )
    if experiment.dut.tuning == FULL:
        raise document.wrong(
            ("dut", "tuning"),
            "full asks for words of the "
            "kernel's line, which no trial can leave out: write runtime, none or a list",
        )
    if experiment.snap is not None:
        raise document.wrong(
            ("tap",),
            "a trace is joined with stamps, and these taps keep packets: leave tap.snap out",
        )
    return Plan(
        checked.name, goal, settings, checked.repeat, experiment_text(checked, source),
        experiment.parameters(), experiment,
    )  # fmt: skip


def plan_of_observed(asked: Asked, goal: Goal, settings: ImproveSettings) -> Plan:
    """The plan for a device that was there before, under its own load: stretches of observing it.

    Raises `InputError` for what cannot be improved.
    """
    if asked.trace == "none":
        raise InputError("--trace none: without a trace nobody can say why packets are late")
    name = asked.ingress.text + ("" if asked.egress is None else f" to {asked.egress.text}")
    parameters = {
        "in": asked.ingress.text,
        "out": None if asked.egress is None else asked.egress.text,
        "stretch_ns": asked.duration_ns,
        "filter": asked.filter,
        "sample": asked.sample,
    }
    text = yaml.safe_dump({"observed": parameters}, sort_keys=False)  # nothing runs it
    return Plan(name, goal, settings, REPEATS, text, parameters, asked)

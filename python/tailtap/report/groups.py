"""Configurations: the runs that differ only in their repeat, how they look, what they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tailtap.evaluation import Percentile
from tailtap.evaluation.percentiles import label as percentile_label
from tailtap.report.data import Evaluation, Experiment, Run
from tailtap.report.text import (
    count_text,
    percent_text,
    share_text,
    time_text,
)
from tailtap.units import format_rate

# Okabe and Ito's colour-blind-safe hues, darkened until they stand out on white paper, and the
# same hues lightened for a dark page; a second round of configurations takes the second shades.
LIGHT = (
    ("#0072b2", "#c84e00", "#008763", "#b0518c", "#a87400", "#2a94cf"),
    ("#004a75", "#8f3800", "#005a42", "#7a3160", "#6e4c00", "#175f87"),
)
DARK = (
    ("#4aa8e8", "#ff8a4c", "#2fc9a0", "#e394c3", "#e8b440", "#8fd3f7"),
    ("#8cc6f0", "#ffb58c", "#86e0c6", "#f0c0dc", "#f2d48f", "#c2e7fb"),
)
# The floor is no result: it stays in the background, in grey.
WIRE_LIGHT = ("#6a7178", "#9aa1a8", "#454b51")
WIRE_DARK = ("#9aa3ac", "#6d757d", "#c5ccd3")


@dataclass(frozen=True)
class Member:
    """A finished run as a figure shows it: `index` counts over all finished runs."""

    index: int
    run: Run
    evaluation: Evaluation
    label: str


@dataclass(frozen=True)
class Configuration:
    """Runs of one configuration, in the order of their repeats."""

    label: str
    variables: Mapping[str, str]
    members: tuple[Member, ...]
    common_percentile: float | None
    """The percentile that configurations are judged by; None when a run supports none."""
    wire: bool
    light: str
    dark: str

    @cached_property
    def worst(self) -> Member:
        """The worst repeat: the highest at `common_percentile`, then by its maximum."""

        def badness(member: Member) -> tuple[int, int]:
            row = listed(member.evaluation, self.common_percentile)
            return (row.value if row else 0, member.evaluation.maximum)

        return max(self.members, key=badness)


def listed(evaluation: Evaluation, p: float | None) -> Percentile | None:
    """The listed percentile `p` of an evaluation, if it has it."""
    return next((row for row in evaluation.percentiles if row.p == p), None)


def common_percentile(evaluations: Iterable[Evaluation]) -> float | None:
    """The highest listed percentile that every evaluation supports; None when there is none."""
    supported = [{row.p for row in e.percentiles if row.supported} for e in evaluations]
    return max(set.intersection(*supported), default=None) if supported else None


def configurations(experiment: Experiment) -> list[Configuration]:
    """The finished runs grouped by what was varied, in the order of their first run."""
    groups: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in experiment.finished:
        groups.setdefault(tuple(run.variables.items()), []).append(run)
    result: list[Configuration] = []
    index = coloured = grey = 0
    # One for all, so that configurations can be compared.
    common = common_percentile(run.evaluation for run in experiment.finished if run.evaluation)
    for key, runs in groups.items():
        label = configuration_label(runs[0], experiment.name)
        members = []
        for run in sorted(runs, key=lambda run: (run.repeat, run.number)):
            assert run.evaluation is not None  # by the definition of `finished`
            name = f"{label} #{run.repeat}" if len(runs) > 1 else label
            members.append(Member(index, run, run.evaluation, name))
            index += 1
        wire = runs[0].platform == "wire"
        if wire:
            light, dark = WIRE_LIGHT[grey % 3], WIRE_DARK[grey % 3]
            grey += 1
        else:
            row, column = coloured // 6 % 2, coloured % 6
            light, dark = LIGHT[row][column], DARK[row][column]
            coloured += 1
        result.append(Configuration(label, dict(key), tuple(members), common, wire, light, dark))
    return result


def configuration_label(run: Run, fallback: str) -> str:
    """What tells this configuration from the others: the varied values, else what is known."""
    if run.variables:
        return " · ".join(run.variables.values())
    dut: Any = run.parameters.get("dut")
    traffic: Any = run.parameters.get("traffic")
    known = [dut.get("platform"), dut.get("forwarder")] if isinstance(dut, dict) else []
    if isinstance(traffic, dict) and isinstance(traffic.get("rate"), int):
        known.append(format_rate(traffic["rate"]))
    return " · ".join(str(value) for value in known if value) or fallback


def floor_of(configuration: Configuration, groups: list[Configuration]) -> Configuration | None:
    """The `wire` configuration that differs from this one in the device under test alone."""

    def rest(group: Configuration) -> dict[str, str]:
        return {k: v for k, v in group.variables.items() if not k.startswith("dut.")}

    if configuration.wire:
        return None
    return next((g for g in groups if g.wire and rest(g) == rest(configuration)), None)


@dataclass(frozen=True)
class Finding:
    """The result of one configuration: the percentile that counts, and a sentence."""

    configuration: Configuration
    name: str
    value: str
    sentence: str


def finding(configuration: Configuration, groups: list[Configuration]) -> Finding:
    """One sentence for a configuration, from its worst repeat by the rule of `worst`."""
    p = configuration.common_percentile
    evaluations = [member.evaluation for member in configuration.members]
    slowest = max(evaluation.maximum for evaluation in evaluations)
    if p is None:
        name, value = "max", time_text(slowest)
        sentence = "Too few packets for any percentile: only the extremes are known"
    else:
        rows = [row for e in evaluations if (row := listed(e, p)) is not None]
        name, value = percentile_label(p), time_text(max(row.value for row in rows))
        sentence = f"{percent_text(p)} of the packets took at most {value}"
        if len(rows) > 1:
            best = time_text(min(row.value for row in rows))
            sentence += f" in the worst of {len(rows)} repeats ({best} in the best)"
        sentence += f"; the slowest took {time_text(slowest)}"
    sentence += f"; {_loss_clause(evaluations)}."
    floor = floor_of(configuration, groups)
    row = listed(floor.worst.evaluation, p) if floor else None
    if configuration.wire:
        sentence += " This is the floor: what taps and links cost without a device."
    elif row:
        sentence += f" Floor (wire): {time_text(row.value)}."
    return Finding(configuration, name, value, sentence)


def _loss_clause(evaluations: list[Evaluation]) -> str:
    lost = sum(e.counts.get("lost", 0) for e in evaluations)
    matched = sum(e.counts.get("matched", 0) for e in evaluations)
    if not lost:
        return "none was lost"
    verb = "was" if lost == 1 else "were"
    return (
        f"{count_text(lost)} of {count_text(lost + matched)} {verb} lost "
        f"({share_text(lost / (lost + matched))})"
    )

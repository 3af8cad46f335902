"""Configurations: the runs that differ only in their repeat, how they look, what they show."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from tailtap.analysis.evaluation import Percentile
from tailtap.analysis.evaluation.model import Latencies
from tailtap.analysis.evaluation.values import HEAVY_LOSS
from tailtap.analysis.evaluation.values import label as percentile_label
from tailtap.analysis.runs.run import Experiment, Origin, Run
from tailtap.analysis.runs.text import (
    count_text,
    percent_text,
    share_text,
    time_text,
)
from tailtap.base.units import format_rate
from tailtap.records.run import CASE, DutSettings

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
SHADES = sum(len(row) for row in LIGHT)
"""Configurations that colours alone tell apart; later ones have dashes too."""
RATE = "traffic.rate"
"""The variable that loss is drawn against."""
DRAWN = 8
"""Imported configurations that figures show when nobody chose."""
INVALID_MARK = "invalid"
"""What stands beside the name of a run whose generator did not send what was asked of it."""
NOT_REQUESTED = "the generator did not send the requested load"
# The floor is no result: it stays in the background, in grey.
WIRE_LIGHT = ("#6a7178", "#9aa1a8", "#454b51")
WIRE_DARK = ("#9aa3ac", "#6d757d", "#c5ccd3")


T = TypeVar("T")
K = TypeVar("K")


class Colour(NamedTuple):
    """A colour on white paper and on a dark page."""

    light: str
    dark: str


class Colours:
    """Colours on white paper and on a dark page, in the order in which they are given away."""

    def __init__(self) -> None:
        """None is taken yet; `taken` counts those of devices (False) and of what has none."""
        self.taken = {False: 0, True: 0}

    def next(self, *, wire: bool) -> Colour:
        """The next one: a hue, or a grey for what has no device."""
        light, dark = (WIRE_LIGHT, WIRE_DARK) if wire else (sum(LIGHT, ()), sum(DARK, ()))
        place = self.taken[wire]
        self.taken[wire] += 1
        return Colour(light[place % len(light)], dark[place % len(dark)])


@dataclass(frozen=True)
class Member:
    """A finished run as a figure shows it: `index` counts over all finished runs."""

    index: int
    run: Run
    evaluation: Latencies
    label: str
    dash: int
    """Which pattern of dashes its lines have; 0 is none."""
    undisturbed: Latencies | None = None
    """Without the time around pauses from outside, where there were any and this is shown."""
    left_out: str = ""
    """What of its time that leaves out, or why it is not shown, in a sentence."""


@dataclass(frozen=True)
class Configuration:
    """Runs of one configuration, in the order of their repeats."""

    label: str
    variables: Mapping[str, str]
    members: tuple[Member, ...]
    common_percentile: float | None
    """The percentile that configurations are judged by: the highest that was asked for, else the
    highest, of those that every run supports; None when a run supports none."""
    wire: bool
    light: str
    dark: str
    drawn: bool
    """Whether the figures show it; the tables do in any case."""

    @property
    def origin(self) -> Origin | None:
        """Where its runs were imported from; None for one's own."""
        return self.members[0].run.origin

    @property
    def dash(self) -> int:
        """The dashes of its first repeat, by which the legend shows it."""
        return self.members[0].dash

    @property
    def leading(self) -> tuple[Member, ...]:
        """The repeats that may stand for all: those that are not invalid."""
        return tuple(member for member in self.members if member.run.valid is not False)

    @property
    def title(self) -> str:
        """Its label, and that its repeats are invalid where all of them are."""
        return self.label if self.leading else f"{self.label} ({INVALID_MARK})"

    @property
    def lost_heavily(self) -> bool:
        """Whether some valid repeat lost so much that its tail is not known."""
        return any(member.evaluation.lost_heavily for member in self.leading)

    def shows(self, kind: str) -> bool:
        """Whether a figure of this kind has anything to show of it."""
        return any(member.evaluation.shows(kind) for member in self.members)

    @cached_property
    def worst(self) -> Member | None:
        """The worst valid repeat: the highest at `common_percentile`, then by its maximum.

        None where every repeat is invalid: nothing stands for such a configuration.
        """

        def badness(member: Member) -> tuple[int, int]:
            row = listed(member.evaluation, self.common_percentile)
            return (row.value if row else 0, member.evaluation.max or 0)

        return max(self.leading, key=badness, default=None)

    def example(self, members: Sequence[Member]) -> Member | None:
        """Which of `members` a figure with room for one repeat shows.

        The worst repeat, else the first valid one, else the first, whose label says that it is
        invalid; None of nothing.
        """
        choice = (self.worst, *self.leading, *self.members)
        return next((member for member in choice if member in members), None)


def listed(evaluation: Latencies, p: float | None) -> Percentile | None:
    """The listed percentile `p` of an evaluation, if it has it."""
    return next((row for row in evaluation.listed if row.p == p), None)


def common_percentile(
    evaluations: Iterable[Latencies], asked: Collection[float] = ()
) -> float | None:
    """The highest listed percentile that every evaluation supports; None when there is none.

    One that was `asked` for comes before higher ones. Published runs of which no percentiles are
    known, or not their support, are left out.
    """
    supported = [
        {row.p for row in e.listed if row.supported}
        for e in evaluations
        if e.listed and e.packets is not None
    ]
    common = set.intersection(*supported) if supported else set()
    return max(common & set(asked) or common, default=None)


def configurations(
    experiment: Experiment, *, every: bool = True, asked: Collection[float] = ()
) -> list[Configuration]:
    """The finished runs grouped by what was varied, in the order of their first run.

    Imported ones follow one's own: first those at the packet rate of a run of one's own, then the
    others, last those without percentiles. Figures show all of them or, without `every`, the first
    `DRAWN`. `asked` are percentiles (0 to 1) that requirements are about.
    """
    groups = _in_order(experiment)
    own = sum(runs[0].origin is None for runs in groups)
    drawn = len(groups) if every else own + DRAWN
    result: list[Configuration] = []
    index, colours = 0, Colours()
    # One for all, so that configurations can be compared.
    counted = (run for runs in groups[:drawn] for run in runs if run.valid is not False)
    common = common_percentile((run.evaluation for run in counted if run.evaluation), asked)
    for place, runs in enumerate(groups):
        label = configuration_label(runs[0], experiment.name)
        traits = runs[0].traits
        wire = traits is not None and not traits.has_dut
        turn = 0 if wire else colours.taken[False] // SHADES
        members = []
        for position, run in enumerate(runs):
            assert run.evaluation is not None  # by the definition of `finished`
            name = f"{label} #{run.repeat}" if len(runs) > 1 else label
            name += f" ({INVALID_MARK})" if run.valid is False else ""
            repeat = position if run.origin else run.repeat - 1
            members.append(Member(index, run, run.evaluation, name, repeat + turn))
            index += 1
        if place >= drawn:
            light, dark = "transparent", "transparent"
        else:
            light, dark = colours.next(wire=wire)
        result.append(
            Configuration(
                label,
                runs[0].variables,
                tuple(members),
                common,
                wire,
                light,
                dark,
                drawn=place < drawn,
            )
        )
    return result


def grouped(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Values by what they have in common, in the order of the first ones."""
    found: dict[K, list[T]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return found


def group(
    runs: Iterable[Run], key: Callable[[Run], object] = attrgetter("variables")
) -> list[list[Run]]:
    """Runs that differ in the repeat only, in the order of their repeats.

    Groups are in the order of their first runs. `key` is what repeats have in common besides their
    origin: the varied values unless said otherwise.
    """

    def same(run: Run) -> str:
        place = str(Path(run.origin.source).parent) if run.origin else None
        return json.dumps([run.root, place, key(run)], sort_keys=True, default=str)

    found = grouped(runs, same).values()
    return [sorted(repeats, key=lambda run: (run.repeat, run.number)) for repeats in found]


def _in_order(experiment: Experiment) -> list[list[Run]]:
    """The finished runs by configuration: one's own, then imported ones that have most to show."""
    rates = {run.rate for run in experiment.own}

    def order(runs: list[Run]) -> tuple[bool, bool, bool]:
        imported = runs[0].origin is not None
        curves = any(run.evaluation and run.evaluation.shows("hdr") for run in runs)
        return imported, imported and not curves, imported and runs[0].rate not in rates

    return sorted(group(experiment.finished), key=order)


NEEDS_NAME = frozenset(("dut.cgroup", "dut.irq", "dut.line", "dut.napi", "dut.queues", "dut.taps"))
"""Variables whose values say nothing without their name: `none` of what?"""


LONG = 40
"""Letters of a value that has no room in a label."""


def label_parts(run: Run, without: tuple[str, ...] = ()) -> list[str]:
    """What tells a configuration from the others: the varied values, else what is known of it.

    Values of variables that begin with one of `without` are told elsewhere. The name of a case
    stands for its long values.
    """
    named = CASE in run.variables
    values = [
        with_name(name, value)
        for name, value in run.variables.items()
        if not name.startswith(without) and not (named and len(value) > LONG)
    ]
    if run.origin:
        return [run.origin.short, *values]
    if values or run.record is None:
        return values
    known = _device(run.dut)
    if run.rate is not None and not RATE.startswith(without):
        known.append(format_rate(run.rate))
    return [part for part in known if part]


def with_name(name: str, value: str) -> str:
    """A value, with its variable's name where it says nothing alone, as when it is empty."""
    short = name.rpartition(".")[2]
    if not value:
        return f"no {short}"
    return f"{short} {value}" if name in NEEDS_NAME else value


def _device(dut: DutSettings) -> list[str]:
    """What is measured: nodes that differ by their names."""
    if isinstance(dut.line, list):
        return [f"line {' and '.join(map(str, dut.line))}"]
    known = [str(name or "") for name in (dut.platform, dut.forwarder)]
    return [*known, *([f"line {dut.line}"] if dut.line not in (None, 1) else [])]


def configuration_label(run: Run, fallback: str, without: tuple[str, ...] = ()) -> str:
    """`label_parts` as one text; `fallback` where nothing is known."""
    text = " · ".join(label_parts(run, without))
    return f"{text} (imported)" if run.origin else text or fallback


def floor_of(configuration: Configuration, groups: list[Configuration]) -> Configuration | None:
    """The `wire` configuration that differs from this one in the device under test alone.

    One without a valid repeat is no floor.
    """

    def rest(group: Configuration) -> dict[str, str]:
        # The wire has no cables: what is at the other ends of the DuT's does not matter to it.
        others = ("dut.", "tap.", CASE)
        return {k: v for k, v in group.variables.items() if not k.startswith(others)}

    if configuration.wire or configuration.origin:
        return None  # the wire of this machine is no floor of another's
    return next(
        (
            g
            for g in groups
            if g.wire and g.worst and not g.origin and rest(g) == rest(configuration)
        ),
        None,
    )


@dataclass(frozen=True)
class Finding:
    """The result of one configuration: the percentile that counts, and a sentence."""

    configuration: Configuration
    name: str
    value: str
    sentence: str


def finding(configuration: Configuration, groups: list[Configuration]) -> Finding:
    """A sentence or two for a configuration, from its valid repeats; without any it has none."""
    if not configuration.leading:
        return _invalid(configuration)
    found = (
        _heavy_loss(configuration) if configuration.lost_heavily else _tail(configuration, groups)
    )
    within = max(
        (member.evaluation.within for member in configuration.leading), key=lambda one: one.ns
    )
    if not within.ns:
        return found
    off = time_text(within.ns)
    why = f"{within.why[:1].upper()}{within.why[1:]}"
    sentence = f"{found.sentence} {why}: every latency may be off by {off}."
    value = found.value if configuration.lost_heavily else f"{found.value} ± {off}"
    return replace(found, value=value, sentence=sentence)


def _tail(configuration: Configuration, groups: list[Configuration]) -> Finding:
    p = configuration.common_percentile
    evaluations = [member.evaluation for member in configuration.leading]
    slowest = max((e.max for e in evaluations if e.max is not None), default=None)
    rows = [row for e in evaluations if (row := listed(e, p)) is not None]
    failed = max(evaluation.failed or 0.0 for evaluation in evaluations)
    if p is not None and failed > 1 - p:
        sentence = f"{_loss_clause(evaluations)}: no percentile of the others stands for all"
        return Finding(configuration, "failed", share_text(failed), f"{sentence}.")
    if p is None or not rows:
        name, value = "max", "unknown" if slowest is None else time_text(slowest)
        sentence = "Too few packets for any percentile: only the extremes are known"
        if configuration.origin:
            known = any(one.listed for one in evaluations)
            lacks = "percentile is supported by all runs" if known else "percentiles are published"
            sentence = f"No {lacks}"
    else:
        name, value = percentile_label(p), time_text(max(row.value for row in rows))
        sentence = f"{percent_text(p)} of the packets took at most {value}"
        if len(rows) > 1:
            best = time_text(min(row.value for row in rows))
            valid = "valid " * (len(configuration.leading) < len(configuration.members))
            sentence += f" in the worst of {len(rows)} {valid}repeats ({best} in the best)"
        if slowest is not None:
            sentence += f"; the slowest took {time_text(slowest)}"
    sentence += f"; {_loss_clause(evaluations)}.{_invalid_clause(configuration)}"
    floor = floor_of(configuration, groups)
    row = listed(floor.worst.evaluation, p) if floor and floor.worst else None
    if configuration.wire:
        sentence += " This is the floor: what taps and links cost without a device."
    elif row:
        sentence += f" Floor (wire): {time_text(row.value)}."
    return Finding(configuration, name, value, sentence)


def _heavy_loss(configuration: Configuration) -> Finding:
    evaluations = [member.evaluation for member in configuration.leading]
    worst = max(evaluation.loss or 0.0 for evaluation in evaluations)
    over = sum(evaluation.lost_heavily for evaluation in evaluations)
    when = f" in {over} of {len(evaluations)} repeats" if len(evaluations) > 1 else ""
    slowest = max((e.max for e in evaluations if e.max is not None), default=None)
    others = "" if slowest is None else f"; the others took up to {time_text(slowest)}"
    most = max(evaluations, key=lambda evaluation: evaluation.loss or 0.0)
    patterns = most.loss_patterns or []
    seen = "".join(f" {one.text[0].upper()}{one.text[1:]}." for one in patterns)
    clause = _loss_clause(evaluations)
    sentence = (
        f"{clause[0].upper()}{clause[1:]}, more than {share_text(HEAVY_LOSS)}{when}. Their latency "
        f"is unknown{others}.{seen}{_invalid_clause(configuration)}"
    )
    return Finding(configuration, "lost", share_text(worst), sentence)


def _invalid(configuration: Configuration) -> Finding:
    many = len(configuration.members)
    whose = "The run is" if many == 1 else f"All {many} repeats are"
    sentence = f"{whose} invalid: {NOT_REQUESTED}. The table below has what was measured."
    return Finding(configuration, "no result", INVALID_MARK, sentence)


def _invalid_clause(configuration: Configuration) -> str:
    invalid = len(configuration.members) - len(configuration.leading)
    if not invalid:
        return ""
    which = f"{invalid} of {len(configuration.members)} repeats {'is' if invalid == 1 else 'are'}"
    return f" {which} invalid and left out: {NOT_REQUESTED}."


def _loss_clause(evaluations: list[Latencies]) -> str:
    if any(e.failed for e in evaluations):
        errors = sum(e.counted.get("errors", 0) for e in evaluations)
        requests = sum(e.offered or 0 for e in evaluations)
        share = share_text(errors / requests)
        return f"{count_text(errors)} of {count_text(requests)} requests failed ({share})"
    if any(e.loss is None for e in evaluations):
        return "how many were lost is not published"
    lost = sum(e.counted["lost"] for e in evaluations)
    offered = sum(e.offered or 0 for e in evaluations)
    if not lost:
        return "none was lost"
    verb = "was" if lost == 1 else "were"
    return f"{count_text(lost)} of {count_text(offered)} {verb} lost ({share_text(lost / offered)})"

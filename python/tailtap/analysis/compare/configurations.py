"""Groups runs into configurations, and configurations by their load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailtap.analysis.compare.aspects import ASKED, aspects_of, device_variables, load_of
from tailtap.analysis.runs.groups import group, label_parts
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.units import format_rate
from tailtap.records.machine import BUILT_IN, Traits

#: Measured and published rates this near (as a share) may be the same load.
_NEAR = 0.05


@dataclass(frozen=True)
class Configuration:
    """Runs that differ in nothing but the repeat."""

    label: str
    aspects: Mapping[str, str]
    load: Mapping[str, Any]
    #: Its repeats; `excluded` has the other runs, each with the reason.
    runs: tuple[Run, ...]
    excluded: tuple[Run, ...]

    @property
    def wire(self) -> bool:
        """Whether it had no device, so that it is the floor of the others."""
        return self.traits is not None and not self.traits.has_dut

    @property
    def traits(self) -> Traits | None:
        """What is known of the platform; None where nothing is."""
        first = (*self.runs, *self.excluded)[0]
        return first.traits or BUILT_IN.get(self.aspects.get("platform", ""))

    @property
    def virtual(self) -> bool | None:
        """Whether the device was virtual; None without a device, and where it is unknown."""
        if self.traits is None or not self.traits.has_dut:
            return None
        return self.traits.virtualization != "none"

    @property
    def imported(self) -> bool:
        """Whether it is of imported runs."""
        return (*self.runs, *self.excluded)[0].origin is not None


@dataclass(frozen=True)
class Load:
    """Configurations under the same load, as far as it is known."""

    load: Mapping[str, Any]
    label: str
    configurations: tuple[Configuration, ...]

    @property
    def ranked(self) -> tuple[Configuration, ...]:
        """Those that can be ranked: devices with at least one good run."""
        return tuple(found for found in self.configurations if found.runs and not found.wire)


def gather(runs: Sequence[Run]) -> list[Load]:
    """All runs by load and configuration, in the order of reading."""
    groups = group(runs, _device_and_load)
    for members in groups:
        _require_one_load(members)
    labels = _labels([members[0] for members in groups])
    found = [
        Configuration(
            label,
            aspects_of(members[0]),
            load_of(members[0]),
            tuple(run for run in members if not run.excluded),
            tuple(run for run in members if run.excluded),
        )
        for label, members in zip(labels, groups, strict=True)
    ]
    return _by_load(found)


def _device_and_load(run: Run) -> object:
    """What repeats have in common. Measured rates scatter: they are held against each other."""
    measured = isinstance(run.offered_rate, float)
    return device_variables(run), {} if measured else load_of(run)


def _require_one_load(members: Sequence[Run]) -> None:
    """Raises `InputError` where runs that were given one name got different loads."""
    rates = [run.offered_rate for run in members if run.offered_rate]
    if rates and max(rates) > (1 + _NEAR) * min(rates):
        raise InputError(
            "runs of different traffic "
            f"({format_rate(min(rates))} and {format_rate(max(rates))}) are no "
            "repeats of each other: give them different names"
        ).at(members[0].root)


def _labels(firsts: Sequence[Run]) -> list[str]:
    """Labels that distinguish the configurations; the load is not part of them."""
    several = len({run.root for run in firsts if run.origin is None}) > 1
    found = []
    for run in firsts:
        parts = label_parts(run, ASKED)
        if run.origin:
            parts.insert(0, run.alias)
        elif several or run.record is None:
            parts.insert(0, Path(run.root).name)
        found.append(" · ".join(part for part in parts if part) or run.slug)
    # Where the last parts of two paths are equal, the whole paths distinguish them.
    roots: dict[str, set[str]] = {}
    for label, run in zip(found, firsts, strict=True):
        roots.setdefault(label, set()).add(run.root)
    return [
        label if len(roots[label]) == 1 else f"{run.root} · {label}"
        for label, run in zip(found, firsts, strict=True)
    ]


def _by_load(configurations: Sequence[Configuration]) -> list[Load]:
    loads: list[tuple[Mapping[str, Any], list[Configuration]]] = []
    # Who knows most decides: a published rate may fit several loads of our own, and then fits none.
    for found in sorted(configurations, key=lambda one: -len(one.load)):
        fitting = [entry for entry in loads if _agree(entry[0], found.load)]
        same = [entry for entry in fitting if entry[0] == found.load]
        if same or len(fitting) == 1:
            (same or fitting)[0][1].append(found)
        else:
            loads.append((found.load, [found]))
    order = {id(found): place for place, found in enumerate(configurations)}
    texts = _load_texts([load for load, _ in loads])
    result = [
        Load(load, text, tuple(sorted(members, key=lambda one: order[id(one)])))
        for text, (load, members) in zip(texts, loads, strict=True)
    ]
    return sorted(result, key=lambda one: (one.load.get("rate") or 0, one.label))


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two loads may be the same: what is known of both is equal, or nearly for rates."""
    for name in one.keys() & other.keys():
        left, right = one[name], other[name]
        measured = isinstance(left, float) or isinstance(right, float)
        if name == "rate" and measured:
            if abs(left - right) > _NEAR * max(left, right):
                return False
        elif left != right:
            return False
    # A trim that only one has leaves out packets that the other shows.
    return bool(one.get("trim") == other.get("trim"))


def _load_texts(loads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels of the loads: the rate, and what else differs between them."""
    names = dict.fromkeys(name for load in loads for name in load if name != "rate")
    differing = [n for n in names if len({_text(load.get(n)) for load in loads if n in load}) > 1]
    texts = []
    for load in loads:
        rate = load.get("rate")
        parts = [format_rate(rate) if rate else "unknown rate"]
        parts += [f"{name} {_text(load[name])}" for name in differing if name in load]
        texts.append(", ".join(parts))
    return texts


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(_text(inner) for inner in value.values() if inner is not None)
    if isinstance(value, list | tuple):
        return "-".join(_text(inner) for inner in value)
    return str(value)

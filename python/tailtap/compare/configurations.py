"""Runs gathered into configurations, and configurations into those under the same load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailtap.compare.aspects import aspects_of, device_variables, load_of
from tailtap.compare.reading import Sample
from tailtap.errors import InputError
from tailtap.units import format_rate

#: Measured and published rates this near (as a share) may be the same load.
_NEAR = 0.05


@dataclass(frozen=True)
class Configuration:
    """Runs that differ in nothing but the repeat."""

    label: str
    aspects: Mapping[str, str]
    load: Mapping[str, Any]
    #: Its repeats; the others, `excluded`, each say why they are none.
    runs: tuple[Sample, ...]
    excluded: tuple[Sample, ...]

    @property
    def wire(self) -> bool:
        """Whether there was no device: the floor under the others."""
        return self.aspects.get("platform") == "wire"

    @property
    def imported(self) -> bool:
        """Whether others measured it."""
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


def gather(samples: Sequence[Sample]) -> list[Load]:
    """All runs by load and configuration, in the order in which they were read."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        # Measured rates scatter: they are held against each other below.
        load = {} if isinstance(sample.rate, float) else load_of(sample)
        key = (sample.root, device_variables(sample), load)
        groups.setdefault(json.dumps(key, sort_keys=True, default=str), []).append(sample)
    for members in groups.values():
        _require_one_load(members)
    labels = _labels([members[0] for members in groups.values()])
    found = [
        Configuration(
            label,
            aspects_of(members[0]),
            load_of(members[0]),
            tuple(sample for sample in members if not sample.excluded),
            tuple(sample for sample in members if sample.excluded),
        )
        for label, members in zip(labels, groups.values(), strict=True)
    ]
    return _by_load(found)


def _require_one_load(members: Sequence[Sample]) -> None:
    """Raises `InputError` where runs that were given one name got different loads."""
    rates = [sample.rate for sample in members if sample.rate]
    if rates and max(rates) > (1 + _NEAR) * min(rates):
        raise InputError(
            f"{members[0].root}: runs of different traffic "
            f"({format_rate(round(min(rates)))} and {format_rate(round(max(rates)))}) are no "
            "repeats of each other: give them different names"
        )


def _labels(firsts: Sequence[Sample]) -> list[str]:
    """What tells each configuration from the others; the load is told elsewhere."""
    several = len({sample.root for sample in firsts if sample.origin is None}) > 1
    found = []
    for sample in firsts:
        parts = list(device_variables(sample).values())
        if sample.origin is not None:
            parts = [sample.root.removesuffix(sample.origin.path).rstrip("/"),
                     sample.origin.short, *parts]  # fmt: skip
        else:
            if not parts and sample.record:
                dut = sample.parameters.get("dut")
                known = dut if isinstance(dut, dict) else {}
                parts = [str(known.get(key) or "") for key in ("platform", "forwarder")]
            if several or not sample.record:
                parts.insert(0, Path(sample.root).name)
        found.append(" · ".join(str(part) for part in parts if part) or sample.name)
    # The same last part of different paths tells nothing apart: then the whole path does.
    roots: dict[str, set[str]] = {}
    for label, sample in zip(found, firsts, strict=True):
        roots.setdefault(label, set()).add(sample.root)
    return [
        label if len(roots[label]) == 1 else f"{sample.root} · {label}"
        for label, sample in zip(found, firsts, strict=True)
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
    """Whether two loads may be the same: what both say is equal, measured rates nearly."""
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
    """Each load by its rate, and by what differs between loads."""
    names = dict.fromkeys(name for load in loads for name in load if name != "rate")
    differing = [n for n in names if len({_text(load.get(n)) for load in loads if n in load}) > 1]
    texts = []
    for load in loads:
        rate = load.get("rate")
        parts = [format_rate(round(rate)) if rate else "unknown rate"]
        parts += [f"{name} {_text(load[name])}" for name in differing if name in load]
        texts.append(", ".join(parts))
    return texts


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(_text(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return "-".join(_text(inner) for inner in value)
    return str(value)

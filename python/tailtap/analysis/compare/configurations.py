"""Groups runs into configurations, and configurations by their load.

What a configuration consists of, as far as is known: platform, kernel, tuning, interrupts, NIC,
machine.

Own runs have it in `run.json`, published runs in the names of their folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from tailtap.analysis.runs.groups import group, label_parts
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.units import format_count, format_rate
from tailtap.records.machine import BUILT_IN, Traits

#: Parameters of the traffic that are no part of the load: generator, duration, limits.
NO_LOAD = frozenset(
    ("generator", "options", "external", "cpu", "cpus", "reverse_cpu", "slip_limit", "duration",
     "warm_up", "warm_up_packets", "pause")
)  # fmt: skip
#: Variables that tell runs apart that were measured at the same time.
TOGETHER = ("direction", "flow")
#: Variables that describe the load of a configuration, not the configuration.
ASKED = ("traffic.", "evaluation.", *TOGETHER)
#: The last part of a variable's path, by the aspect that it decides.
_DECIDES = {"platform": "platform", "forwarder": "forwarder", "kernel": "kernel",
            "boot": "tuning", "irq": "irq", "nic": "nic", "driver": "nic", "interface": "nic",
            "interfaces": "nic", "ports": "nic"}  # fmt: skip
#: Variables of the other ends of the DuT's cables, which change with the DuT's cards.
BESIDE = "tap."
#: The name of the DuT's first port in the platform's facts about cards.
INGRESS = "tt-in"
#: So many of the runs that are left out for one reason are named.
NAMED = 3
_PUBLISHED_PLATFORMS = {"bare-metal": "bare-metal", "vm": "vm", "container": "container"}
_TUNED = re.compile(r"(vanilla|rt|nohz)[-/](non-optimized|optimized)(?:/|$)")
_SCENARIO = re.compile(r"scenario(\d)(-l3)?(?:/|$)")
_CGROUP = re.compile(r"(?:^|/)v([12])(?:/|$)")


def load_of(run: Run) -> dict[str, Any]:
    """The load of the device, as far as it is known; runs are compared where it is the same."""
    traffic = run.parameters.traffic
    whole = traffic.whole if traffic else {}
    asked = {name: value for name, value in whole.items() if name not in NO_LOAD}
    if run.offered_rate is not None:
        asked.setdefault("rate", run.offered_rate)
    # Each flow is a run; which one it is is no property of the device.
    for name in ("evaluation.trim", *TOGETHER):
        if value := run.variables.get(name):
            asked[name.removeprefix("evaluation.")] = value
    return asked


def device_variables(run: Run) -> dict[str, str]:
    """The varied values that make the configuration."""
    return {k: v for k, v in run.variables.items() if not k.startswith(ASKED)}


def aspects_of(run: Run) -> dict[str, str]:
    """What is known of the configuration, by aspect; what is not known is left out."""
    return _published(run) if run.origin else _own(run)


def _own(run: Run) -> dict[str, str]:
    dut, host, facts = run.dut, run.environment, run.platform_facts
    known: dict[str, Any] = {"platform": dut.platform, "forwarder": dut.forwarder}
    kernel = [host.kernel.release, host.kernel.preemption]
    if run.traits is not None and run.traits.own_kernel:
        guest = facts.kernel
        kernel = [guest.release, guest.kind] if guest else []
    known["kernel"] = dut.kernel or " ".join(part for part in kernel if part)
    known["tuning"] = dut.boot
    observed = run.record is not None and run.record.observed is not None
    if not observed and (run.traits is None or run.traits.has_dut):
        known["irq"] = dut.irq
    known["machine"] = ", ".join(part for part in (host.hostname, host.cpu.model) if part)
    card = facts.cards.get(INGRESS)
    known["nic"] = card.driver if card else None
    for name, value in device_variables(run).items():
        if name.startswith(BESIDE):
            continue
        known[_DECIDES.get(name.rpartition(".")[2], name)] = value
    return {name: str(value) for name, value in known.items() if value}


def _published(run: Run) -> dict[str, str]:
    assert run.origin is not None  # asked before
    place = run.origin.place
    parts = PurePath(place).parts
    found = {"machine": f"that of {run.origin.tree}"}
    for part in parts:
        if part in _PUBLISHED_PLATFORMS:
            found |= {"platform": _PUBLISHED_PLATFORMS[part], "networking": "user space"}
        elif part == "kernel":
            found |= {"platform": "container", "networking": "kernel space"}
    if tuned := _TUNED.search(place):
        found |= {"kernel": tuned[1], "tuning": tuned[2]}
    if scenario := _SCENARIO.search(place):
        found["machine"] += f", scenario {scenario[1]}"
        if scenario[2]:
            found["forwarder"] = "l3"
    if cgroup := _CGROUP.search(place):
        found["cgroup"] = cgroup[1]
    return found | device_variables(run)


def differs_only_in(one: Mapping[str, str], other: Mapping[str, str], aspect: str) -> bool:
    """Whether two configurations are known to differ in this aspect and in nothing else."""
    return (
        aspect in one
        and aspect in other
        and one[aspect] != other[aspect]
        and {**one, aspect: ""} == {**other, aspect: ""}
    )


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


def exclusions(runs: Iterable[Run]) -> Iterator[str]:
    """Which runs are left out, and why: those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if run.excluded:
            reasons.setdefault(run.excluded, []).append(run.slug)
    for why, slugs in reasons.items():
        more = format_count(len(slugs) - NAMED, "more run")
        yield f"{', '.join(slugs[:NAMED])}{f' and {more}' if slugs[NAMED:] else ''}: {why}"


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
    load = load_of(run)
    if isinstance(run.offered_rate, float):
        load = {name: load.get(name) for name in TOGETHER}
    return device_variables(run), load


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
    rates = [format_rate(load["rate"]) if load.get("rate") else "unknown rate" for load, _ in loads]
    others = differing([load for load, _ in loads])
    result = [
        Load(load, ", ".join([rate, *more]), tuple(sorted(members, key=lambda one: order[id(one)])))
        for rate, more, (load, members) in zip(rates, others, loads, strict=True)
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


def differing(loads: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Of each load what differs between them besides the rate, as words."""
    names = dict.fromkeys(name for load in loads for name in load if name != "rate")
    told = [n for n in names if len({_text(load.get(n)) for load in loads if n in load}) > 1]
    return [[f"{name} {_text(load[name])}" for name in told if name in load] for load in loads]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(_text(inner) for inner in value.values() if inner is not None)
    if isinstance(value, list | tuple):
        return "-".join(_text(inner) for inner in value)
    return str(value)

"""The variables of a loop of pos, what they are called in runs of ours, and what hosts are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailtap.analysis.runs.text import as_words
from tailtap.base.units import exact_rate
from tailtap.records.run import FCS, MOONGEN_SIZE, RATES, REPEATS
from tailtap.results.importers.pos.tree import Files, Loop, read_mapping
from tailtap.results.importers.published import MOST_RATE

RATE, SIZE, TRIM = "traffic.rate", "traffic.size", "evaluation.trim"
_IDENTITY = re.compile(r"(.*_)?serial|uuid|mac(_.*)?|asset_tag")
"""Serial numbers and hardware addresses tell one machine from others of its kind."""


@dataclass(frozen=True)
class Variables:
    """What the variables of a loop mean."""

    repeat_key: str | None
    repeats: tuple[Any, ...]
    """The values of the variable that numbers repeats, in ascending order."""
    constant: Mapping[str, Any] = field(default_factory=dict)
    """What all runs of an experiment of ours have in common, by its paths."""

    @classmethod
    def of(
        cls,
        hosts: Iterable[Mapping[int, Loop]],
        allocated: Mapping[str, Any],
    ) -> Variables:
        """Those of a measurement: of its loops, and of the allocation that planned them."""
        loops = [loop for of in hosts for loop in of.values()]
        constant = _constant(allocated)
        key = next((key for key in REPEATS if any(key in loop.variables for loop in loops)), None)
        if key is None:
            return cls(None, (), constant)
        planned = allocated.get("loop")
        listed = planned.get(key) if isinstance(planned, dict) else None
        values = [loop.variables[key] for loop in loops if key in loop.variables]
        values += listed if isinstance(listed, list) else []
        numbers = sorted({json.dumps(one) for one in values}, key=_ascending)
        return cls(key, tuple(numbers), constant)

    def repeat(self, loop: Loop) -> int:
        """The number of the repeat, from 1."""
        value = json.dumps(loop.variables.get(self.repeat_key)) if self.repeat_key else ""
        return self.repeats.index(value) + 1 if value in self.repeats else 1

    def rate(self, loop: Loop) -> int | None:
        """The packet rate in pkt/s."""
        values = (loop.variables.get(name) for name in RATES)
        return next((one for one in values if type(one) is int and 0 < one <= MOST_RATE), None)

    def named(self, loop: Loop) -> dict[str, str]:
        """The variables of a run of ours: all but the repeat, and the rate under our name."""
        found = {}
        rate = self.rate(loop)
        for name, value in loop.variables.items():
            if name == self.repeat_key:
                continue
            if name == MOONGEN_SIZE and (
                SIZE in loop.variables or value == self.constant.get(SIZE, 0) - FCS
            ):
                continue
            if name in RATES and rate is not None and value == rate:
                if RATE not in loop.variables and self.constant.get(RATE) != rate:
                    found[RATE] = exact_rate(rate)
                continue
            found[name] = as_words(value)
        return found


def _constant(allocated: Mapping[str, Any]) -> dict[str, Any]:
    """What `tailtap export` wrote of the experiment, as far as loop variables may repeat it."""
    found: dict[str, Any] = {}
    for path in (RATE, SIZE, TRIM):
        value: Any = allocated
        for key in ("global", "experiment", *path.split(".")):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found


def _ascending(text: str) -> tuple[bool, float, str]:
    """Numbers by their value, before texts."""
    value = json.loads(text)
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, text


def hosts_of(files: Files, hosts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For each host its `role` and `image` where they are told, `hardware` and `topology`.

    Hardware is the content of `config/HOST/hardware.json` or `config/HOST.json`, without serial
    numbers and hardware addresses. A damaged file is a warning of the tree.
    """
    shared = files.variables.get("global")
    told = shared if isinstance(shared, dict) else {}
    return {host: _host(files, host, told) for host in hosts}


def _host(files: Files, host: str, told: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    nodes = told.get("nodes")
    node = nodes.get(host) if isinstance(nodes, dict) else None
    if isinstance(node, dict):
        found = {key: node[key] for key in ("role", "image") if key in node}
    if "role" not in found:
        roles = [name for name, value in told.items() if value == host]
        found |= {"role": roles[0]} if roles else {}
    config = files.root / "config"
    for key, paths in (
        ("hardware", (config / host / "hardware.json", config / f"{host}.json")),
        ("topology", (config / host / "topology.json",)),
    ):
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            continue
        try:
            found[key] = without_identity(read_mapping(path, files.root))
        except (OSError, ValueError) as error:
            files.damaged(path, str(error))
    return found


def without_identity(value: Any) -> Any:
    """A JSON value without what tells one machine from others of its kind."""
    if isinstance(value, dict):
        return {
            key: without_identity(inner)
            for key, inner in value.items()
            if not _IDENTITY.fullmatch(key.lower())
        }
    return [without_identity(inner) for inner in value] if isinstance(value, list) else value

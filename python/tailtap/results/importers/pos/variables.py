"""The variables of a loop of pos, and what they are called in runs of ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailtap.analysis.runs.text import as_words
from tailtap.base.units import exact_rate
from tailtap.results.importers.pos.tree import Loop
from tailtap.results.importers.published import MOST_RATE

RATE, SIZE, TRIM = "traffic.rate", "traffic.size", "evaluation.trim"
#: What experiments call the packet rate in pkt/s.
RATES = ("pkt_rate", "packetrate", "packet_rate")
#: What they call the number of the repeat.
REPEATS = ("repeat", "repetition")
#: MoonGen's size of a packet: without the frame's check sequence, which tailtap counts.
MOONGEN_SIZE = "pkt_sz"
FCS = 4


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

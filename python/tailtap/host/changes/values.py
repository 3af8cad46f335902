"""Values of the kernel's files, compared by what they mean, not as they are written.

A form says how a file writes its value:

- ``text``: as it is
- ``number``: an integer, decimal or with 0x
- ``switch``: Y or N, 1 or 0, on or off
- ``choice``: all that can be chosen, the chosen one in brackets: ``always [madvise] never``
- ``cpus``: a list of CPUs: ``0-1,4``
- ``percent``: a share, ``0.02%``; hundredths of a per cent count
- ``mask``: a hexadecimal mask of CPUs: ``00000000,0000000f``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from tailtap.base.units import mask_cpus, parse_cpus, ranges

Form = Literal["text", "number", "switch", "choice", "cpus", "percent", "mask"]
FORMS = frozenset(get_args(Form))
Test = Literal["equal", "at-most", "at-least", "within", "contains"]
TESTS = frozenset(get_args(Test))
Parsed = str | int | bool | frozenset[int]
_SWITCH = {"y": True, "1": True, "on": True, "enabled": True,
           "n": False, "0": False, "off": False, "disabled": False}  # fmt: skip
SHOWN = 4
"""How many different values of a knob's places are shown."""


def parse(text: str, form: Form) -> Parsed:
    """What `text` means. Raises `ValueError` for what is not of that form."""
    text = text.strip()
    match form:
        case "number":
            return int(text, 16) if text.lower().startswith("0x") else int(text)
        case "percent":
            return round(100 * float(text.removesuffix("%")))
        case "switch":
            if text.lower() not in _SWITCH:
                raise ValueError(f"{text!r} is no switch")
            return _SWITCH[text.lower()]
        case "choice":
            return chosen(text)
        case "cpus":
            return frozenset(parse_cpus(text))
        case "mask":
            return frozenset(mask_cpus(text))
        case "text":
            return text


def same(one: str, other: str, form: Form) -> bool:
    """Whether both mean the same."""
    if one.strip() == other.strip():
        return True
    try:
        return parse(one, form) == parse(other, form)
    except ValueError:
        return False


def chosen(text: str) -> str:
    """The chosen one of ``always [madvise] never``; a single word is itself.

    Parentheses mark it in debugfs' file of the preemption model.
    """
    match = re.search(r"[\[(]([^\])]*)[\])]", text)
    return match[1] if match else text.strip()


def writable(text: str, form: Form) -> str:
    """`text`, which a file said, as it is written to that file."""
    return chosen(text) if form == "choice" else text


def shown(text: str, form: Form) -> str:
    """`text` as people read it: sets of CPUs as lists, of a choice what is chosen."""
    try:
        parsed = parse(text, form)
    except ValueError:
        parsed = text
    match parsed:
        case frozenset():
            return ranges(parsed) or "none"
        case str():
            return " ".join(parsed.split()) or "none"
    return text.strip()


@dataclass(frozen=True)
class Wish:
    """What a knob should be: `value` is shown and written, `test` says what else will do.

    ``at-most`` and ``at-least`` compare numbers, ``within`` and ``contains`` sets of CPUs.
    """

    value: str
    test: Test = "equal"
    also: tuple[str, ...] = ()
    """Other values that will do."""

    def told(self, form: Form) -> str:
        """As a table shows it."""
        words = {"equal": "", "at-most": "at most ", "at-least": "at least "}
        others = "".join(f" or {shown(other, form)}" for other in self.also)
        return f"{words.get(self.test, f'{self.test} ')}{shown(self.value, form)}{others}"

    def holds(self, text: str, form: Form) -> bool:
        """Whether `text` will do. Raises `ValueError` when it is not of that form."""
        is_so, wanted = parse(text, form), parse(self.value, form)
        if any(is_so == parse(other, form) for other in self.also):
            return True
        match is_so, wanted:
            case frozenset(), frozenset() if self.test == "within":
                return is_so <= wanted
            case frozenset(), frozenset() if self.test == "contains":
                return is_so >= wanted
            case int(), int() if self.test == "at-most":
                return is_so <= wanted
            case int(), int() if self.test == "at-least":
                return is_so >= wanted
        return is_so == wanted


def summary(found: Mapping[str, str], form: Form = "text") -> str:
    """The values of all places in one line: each different one, with how often it is there."""
    counts: dict[str, int] = {}
    for text in found.values():
        words = shown(text, form)
        counts[words] = counts.get(words, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    rows = [f"{text} ({count})" for text, count in sorted(counts.items(), key=lambda row: -row[1])]
    more = f", {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return ", ".join(rows[:SHOWN]) + more

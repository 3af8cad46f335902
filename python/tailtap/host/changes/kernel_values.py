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

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, TypeVar, get_args

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text, set_value
from tailtap.base.units import mask_cpus, parse_cpus, ranges
from tailtap.host.changes.resource import Joint, Value, left_as_it_is
from tailtap.host.net.inside import inside, inside_those_left

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


T = TypeVar("T")


@dataclass(frozen=True)
class KernelValue(Joint):
    """The same `value` in all files that match `paths`."""

    kind: ClassVar[str] = "value"

    paths: Sequence[str]
    """Absolute; they may hold ``*``."""
    value: str
    form: Form = "text"
    namespace: str | None = None
    """The network namespace in which the files are seen; None for this process's own."""
    optional: bool = False
    """Whether files may refuse the value, such as affinities of interrupts that the kernel places.
    """
    root: str = "/"
    hint: str = ""
    """What an error begins with: what is not possible without this, and what it needs."""

    def __post_init__(self) -> None:
        for path in self.paths:
            if not path.strip("/") or "\0" in path:
                raise ValueError(f"{path!r} is no file")
        if self.namespace is not None and (not self.namespace or "/" in self.namespace):
            raise ValueError(f"{self.namespace!r} is no network namespace")

    @property
    def label(self) -> str:
        where = "" if self.namespace is None else f" in {self.namespace}"
        first, *more = self.paths
        paths = f"{first} and {len(more)} more" if len(more) > 2 else " ".join(self.paths)
        return f"{paths}{where}"

    @property
    def claims(self) -> Sequence[str]:
        return [f"file {path}" for path in self.paths] if self.namespace is None else ()

    def read(self) -> dict[str, str]:
        [found] = self.read_all([self])
        return found

    def plan(self) -> Value:
        return dict.fromkeys(self.paths, self.value)

    @classmethod
    def read_all(cls, many: Sequence[KernelValue]) -> list[dict[str, str]]:
        return _where_they_are(many, cls._read, {})

    @classmethod
    def apply_all(cls, many: Sequence[KernelValue]) -> None:
        if any(one.namespace is None for one in many):
            for one in many:
                one._apply()
        else:
            inside((str(one.namespace), one._apply) for one in many)

    @classmethod
    def undo_all(cls, many: Sequence[tuple[KernelValue, Value]]) -> list[str | None]:
        old = {id(one): state for one, state in many}
        values = [one for one, _ in many]
        return _where_they_are(values, lambda one: one._undo(old[id(one)]), None)

    def _read(self) -> dict[str, str]:
        found = {str(path): read_text(path) for path in self._files()}
        return {f"/{Path(path).relative_to(self.root)}": text
                for path, text in found.items() if text is not None}  # fmt: skip

    def _apply(self) -> None:
        try:
            self._write_and_check()
        except MachineError as error:
            if not self.hint:
                raise
            raise error.at(self.hint) from error

    def _write_and_check(self) -> None:
        for file in self._files():
            # Writing what is there already is no change, yet it can restart a card.
            if not self._same(read_text(file) or "", self.value):
                self._write(file, self.value)
        answer = self._read()
        if self.optional:
            return
        if not answer:
            raise MachineError("there is no such file").at(self.label)
        for path, text in answer.items():
            if not self._same(text, self.value):
                raise MachineError(f"{path} should be {self.value}, but the kernel says {text}")

    def _undo(self, old: Mapping[str, str]) -> str | None:
        changed: list[str] = []
        for path, text in self._read().items():
            before = old.get(path)
            if before is None or self._same(text, before):
                continue
            if not self._same(text, self.value):
                changed.append(f"{path} ({text}, before tailtap {before})")
            else:
                self._write(Path(self.root, path.lstrip("/")), writable(before, self.form))
        return left_as_it_is(changed)

    def pending(self, old: Value, applied: Value = None) -> bool:
        return any(
            not self._same(text, old[path]) for path, text in self.read().items() if path in old
        )

    def _same(self, one: str, other: str) -> bool:
        return same(one, other, self.form)

    def _files(self) -> list[Path]:
        root = Path(self.root)
        with contextlib.suppress(OSError):  # of names that no file can have
            return sorted(file for path in self.paths for file in root.glob(path.lstrip("/")))
        return []

    def _write(self, path: Path, value: str) -> None:
        try:
            set_value(path, value)
        except OSError as error:
            if not self.optional:
                raise MachineError(f"{path} cannot be {value}: {error.strerror}") from error


def _where_they_are(
    many: Sequence[KernelValue], work: Callable[[KernelValue], T], gone: T
) -> list[T]:
    """What `work` returns of each, done in its namespace; `gone` where that is not there."""
    if all(one.namespace is None for one in many):
        return [work(one) for one in many]
    return inside_those_left(((str(one.namespace), partial(work, one)) for one in many), gone)

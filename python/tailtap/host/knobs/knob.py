"""The row type of the table of knobs: what on a host adds tail latency, and what it should be.

A knob says where its value is (`Where`), what it should be for a purpose (`want`), and how it gets
there: at once by resources, by a word on the kernel's command line, or not by us. Presence decides
whether it applies, never the kernel's version.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tailtap.host.changes.kernel_values import FORMS, Form, KernelValue, Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.knobs.tree import EVERY, ROLES, Absent, Purpose, Role, Tree, Unreadable
from tailtap.records import knobs as catalogue
from tailtap.records.knobs import CAUSES, Settable

Group = Literal[
    "cpus", "interrupts", "timers", "memory", "frequency", "cards", "scheduling", "guests",
    "services",
]  # fmt: skip
GROUPS: tuple[Group, ...] = get_args(Group)
REMOVABLE = frozenset(cause.name for cause in CAUSES if cause.letter)
"""What a knob can remove: causes without a letter are several, or none that is known."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

Want = Callable[[Purpose, Tree], Wish | str]
"""What it should be; a text is the same as `Wish(text)`. May raise `Absent` or `Unreadable`."""
Word = Callable[[Purpose, Tree], str]
"""What stands on the kernel's command line, such as ``nohz_full=2-5``. May raise `Absent`."""


Read = Callable[[Tree, Purpose], Mapping[str, str]]
Change = Callable[[Tree, Purpose, str], Sequence[Resource]]


class Where(abc.ABC):
    """Where the value of a knob is: in `Files`, or in a `Place` that a function knows."""

    form: Form = "text"
    """How values are written there."""
    optional: bool = False
    """Whether single places may refuse a value, such as the affinities of managed interrupts."""
    held: bool = False
    """Whether it lasts as long as the process that sets it: a measurement's, not `tailtap host
    apply`."""

    @property
    @abc.abstractmethod
    def settable(self) -> bool:
        """Whether `changes` can set it while the machine runs."""

    @property
    @abc.abstractmethod
    def place(self) -> str:
        """The place as documentation shows it."""

    @abc.abstractmethod
    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        """The value at each place, at least one.

        Raises `Absent` when there is none, `Unreadable` when it cannot be found out.
        """

    @abc.abstractmethod
    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        """What sets it to `value`, in this order."""


@dataclass(frozen=True)
class Knob:
    """One row of the table; it is checked when it is made."""

    name: str
    group: Group = field(kw_only=True)
    where: Where
    want: Want
    why: str
    """What it does to packets, a sentence or two."""
    source: str
    """Who says so: a page of the kernel's documentation, a paper's section, a program's profile."""
    removes: Sequence[str] = ()
    """The causes of lateness that it removes, of `REMOVABLE`; empty if it only keeps runs alike."""
    risk: int = 1
    """0 harmless, 1 costs something elsewhere, 2 can harm the machine or others, 3 takes away
    protection."""
    roles: frozenset[Role] = EVERY
    since: str = ""
    """The kernel that brought it, for people; nothing is decided by it."""
    word: Word | None = None
    does: str = ""
    """What its word does, a sentence; empty without a word."""
    disruptive: bool = False
    """Whether setting it takes links down or stops what runs."""
    recommended: bool = True
    """False for what helps some loads and harms others, or is disputed: to compare, not to set."""
    elsewhere: bool = False
    """Whether only somebody else can change it, such as the host of this guest: it is shown, and
    does not decide whether the audit is met."""
    details: str | None = None
    """Of a knob of another package: a pattern of the details, as `tailtap explain` prints them, of
    the causes that it removes; what answers which cause by itself is in `analysis/causes`."""
    absent: str = ""
    """What it means that the place is not there, a clause; the missing path by default."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a row that cannot be right."""
        wrong = [
            *([] if _NAME.fullmatch(self.name) else ["its name is not of the kind some-words"]),
            *([] if self.group in GROUPS else [f"there is no group {self.group}"]),
            *([] if self.where.form in FORMS else [f"there is no form {self.where.form}"]),
            *(f"there is no cause {cause}" for cause in self.removes if cause not in REMOVABLE),
            *([] if len(set(self.removes)) == len(self.removes) else ["a cause is there twice"]),
            *([] if self.risk in range(4) else ["its risk is not 0 to 3"]),
            *([] if self.roles and self.roles <= set(ROLES) else ["its roles are none"]),
            *([] if re.fullmatch(r"[A-Z].*\.", self.why, re.DOTALL) else ["why is no sentence"]),
            *([] if (self.word is None) == (not self.does) else ["does and word come together"]),
            *([] if self.source else ["it has no source"]),
            *([] if not self.disruptive or self.where.settable else ["it disrupts, yet sets not"]),
        ]
        if wrong:
            raise ValueError(f"knob {self.name}: {'; '.join(wrong)}")

    @property
    def settable(self) -> Settable:
        if self.where.settable:
            return "runtime"
        return "no" if self.word is None else "boot"

    def wish(self, purpose: Purpose, tree: Tree) -> Wish:
        """What it should be. Raises `Absent` or `Unreadable` when nobody can say."""
        if purpose.role not in self.roles:
            names = [role for role in ROLES if role in self.roles]
            raise Absent(f"it matters for the role {' or '.join(names)}, not for {purpose.role}")
        wanted = self.want(purpose, tree)
        return Wish(wanted) if isinstance(wanted, str) else wanted

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        """The value at each place. Raises `Absent` or `Unreadable`."""
        try:
            return self.where.read(tree, purpose)
        except Absent:
            if self.absent:
                raise Absent(self.absent) from None
            raise


def known(name: str, where: Where, want: Want, why: str, source: str, **options: Any) -> Knob:
    """A knob of `tailtap.records.knobs`, whose cost and use stand there.

    Raises `ValueError` for a row that can be set at another time than is said there.
    """
    facts = catalogue.KNOBS[name]
    knob = Knob(
        name, where, want, why, source, **options, removes=facts.removes, risk=facts.risk,
        recommended=facts.recommended, disruptive=facts.disruptive,
    )  # fmt: skip
    if knob.settable != facts.settable:
        raise ValueError(f"knob {name}: it can be set: {knob.settable}, not {facts.settable}")
    return knob


def fixed(value: str | Wish) -> Want:
    """The same wish for every purpose and machine."""
    return lambda _purpose, _tree: value


def others(purpose: Purpose, _tree: Tree) -> Wish:
    """No core of the device's."""
    return Wish(purpose.others, "within")


@dataclass(frozen=True)
class Files(Where):
    """Files of /proc and /sys with one value each.

    A `pattern` may hold ``*``. ``{cpu}`` stands for each of the device's cores, ``{housekeeping}``
    for each of the others, ``{interface}`` for each interface of the purpose.
    """

    pattern: str
    form: Form = "text"
    settable: bool = True
    optional: bool = False

    @property
    def place(self) -> str:
        return self.pattern.replace("{", "").replace("}", "")

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        paths = [path for pattern in self.patterns(purpose) for path in tree.glob(pattern)]
        if not paths:
            if folder := tree.closed(self.place):
                raise Unreadable(f"only root may look into {folder}")
            raise Absent(f"there is no {self.place}")
        return {path: tree.text(path) for path in dict.fromkeys(paths)}

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        return written(tree, self.read(tree, purpose), value, self.form, optional=self.optional)

    def patterns(self, purpose: Purpose) -> list[str]:
        """The pattern for each core or interface of the purpose. Raises `Absent` without any."""
        if "{interface}" in self.pattern:
            if not purpose.interfaces:
                raise Absent("there is no network card to look at")
            return [self.pattern.replace("{interface}", name) for name in purpose.interfaces]
        if "{cpu}" in self.pattern:
            _ = purpose.isolated
            return [self.pattern.replace("{cpu}", str(cpu)) for cpu in purpose.cpus]
        if "{housekeeping}" in self.pattern:
            return [
                self.pattern.replace("{housekeeping}", str(cpu)) for cpu in purpose.housekeeping
            ]
        return [self.pattern]


def written(
    tree: Tree, paths: Iterable[str], value: str, form: Form, *, optional: bool = False
) -> Sequence[Resource]:
    """What writes `value` to files of the machine."""
    return [KernelValue(list(paths), value, form, optional=optional, root=str(tree.root))]


@dataclass(frozen=True)
class Place(Where):
    """What a function finds out and another one sets; without that nothing sets it."""

    what: str
    """The place, as documentation shows it."""
    find: Read
    form: Form = "text"
    change: Change | None = None
    optional: bool = False
    held: bool = False

    @property
    def settable(self) -> bool:
        return self.change is not None

    @property
    def place(self) -> str:
        return self.what

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        return self.find(tree, purpose)

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        assert self.change is not None
        return self.change(tree, purpose, value)


def on_the_line(parameter: str, form: Form = "text", *, otherwise: str = "") -> Place:
    """The last value of a parameter of the kernel's command line; `otherwise` when it is not there.

    Use a file that shows the effect where the kernel has one: a word may have been refused.
    """

    def find(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
        values = tree.word(parameter)
        return {f"{parameter} in /proc/cmdline": values[-1] if values else otherwise}

    return Place(f"{parameter} in /proc/cmdline", find, form)

"""What is shown, made once of records: tables and sentences that terminal and page both draw.

A cell has a value and a column its kind: each renderer writes the value in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from tailtap.analysis.runs.text import (
    count_text,
    number_text,
    rate_text,
    share_text,
    time_text,
)
from tailtap.base.units import format_rate, format_share, format_us

DASH = "–"
"""What the page shows where nothing is known."""


class Kind(NamedTuple):
    """How the values of a column are written."""

    plain: Callable[[Any], str]
    """On the terminal and in Markdown."""
    page: Callable[[Any], str]
    right: bool = True
    """Whether cells end at the right edge."""
    unit: str = ""
    """What the terminal's values are in."""


def same(plain: Callable[[Any], str]) -> Kind:
    """The terminal and the page show it alike."""
    return Kind(plain, plain)


def _ends(text: Callable[[int], str], ends: Sequence[int | None]) -> str:
    return " to ".join("open" if end is None else text(end) for end in ends)


TEXT = Kind(str, str, right=False)
COUNT = Kind("{:,}".format, count_text)
TIME = Kind(format_us, time_text, unit="us")
INTERVAL = Kind(partial(_ends, format_us), partial(_ends, time_text), unit="us")
SHARE = Kind(format_share, share_text)
RATE = Kind(format_rate, rate_text)
NUMBER = same(number_text)
P_VALUE = same("{:.2g}".format)
TENTHS = same("{:,.1f}".format)
THOUSANDTHS = same("{:.3f}".format)


class Mark(NamedTuple):
    """The colours by which figures show what a row is of, on white paper and on a dark page."""

    light: str
    dark: str
    source: str = ""
    """Where an imported run comes from."""


@dataclass(frozen=True)
class Cell:
    """A value, a class for its look, and what a pointer resting on it reads.

    None: nothing is known. A text stays as it is, whatever its column holds.
    """

    value: object = None
    look: str = ""
    hint: str = ""

    def plain(self, kind: Kind) -> str:
        """The value for the terminal and for Markdown."""
        if self.value is None:
            return ""
        text = self.value if isinstance(self.value, str) else kind.plain(self.value)
        return f"{text}*" if self.look == "unsupported" else text

    def page(self, kind: Kind) -> str:
        """The value for the page."""
        if self.value is None:
            return DASH
        text = self.value if isinstance(self.value, str) else kind.page(self.value)
        return f"({text})" if self.look == "unsupported" else text


@dataclass(frozen=True)
class Column:
    """What holds for all cells of a column."""

    heading: str = ""
    kind: Kind = TEXT
    hint: str = ""
    """What the heading means."""
    group: str = ""
    """The columns beside it that belong together have the same."""
    right: bool = False
    """Whether texts end at the right edge, too."""
    wrap: int = 0
    """On a terminal words are wrapped, down to so many characters; 0: cells keep their width."""
    spare: int = 0
    """Left out for want of room: on a terminal the highest first, on a narrow page until someone
    wants all columns; 0 never."""
    alarms: bool = False
    """Whether any count but 0 alarms."""

    @property
    def name(self) -> str:
        """What it is called where it stands alone."""
        return f"{self.group} {self.heading}".strip()

    @property
    def left(self) -> bool:
        """Whether cells begin at the left edge."""
        return not (self.right or self.kind.right)

    def look(self, cell: Cell) -> str:
        """The look of a cell: of counts zeros recede, and what should be zero and is not alarms."""
        if cell.look or self.kind is not COUNT or not isinstance(cell.value, int):
            return cell.look
        return "zero" if not cell.value else "alarm" if self.alarms else ""


def words(*headings: str, wrap: int) -> list[Column]:
    """Columns of words, which differ in their headings alone."""
    return [Column(heading, wrap=wrap) for heading in headings]


@dataclass(frozen=True)
class Row:
    """A row: its first cell says what it is of."""

    cells: tuple[Cell, ...]
    look: str = ""
    mark: Mark | None = None


def row(*values: object, look: str = "", mark: Mark | None = None) -> Row:
    """A row of values; what is a `Cell` stays one."""
    cells = tuple(one if isinstance(one, Cell) else Cell(one) for one in values)
    return Row(cells, look, mark)


@dataclass(frozen=True)
class Part:
    """Rows of a table that belong together."""

    rows: Sequence[Row]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table; its first column says what rows are of."""

    title: str
    columns: Sequence[Column]
    parts: Sequence[Part]
    left_out: str = ""
    """The columns that were left out of it, in sentences."""

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [one for part in self.parts for one in part.rows]

    def __bool__(self) -> bool:
        """Whether it has rows."""
        return any(part.rows for part in self.parts)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The groups of columns behind the first one, and how many each has."""
        found = groupby(self.columns[1:], lambda column: column.group)
        return [(name, len(list(columns))) for name, columns in found]

    def without(self, *values: object, keep: int = 1) -> Table:
        """Without columns in which all cells have the same one of `values`; the first `keep` stay.

        Columns of zeros and of what nobody knows are named.
        """
        rows = self.rows
        held = [{one.cells[at].value for one in rows} for at in range(len(self.columns))]
        empty = [at >= keep and any(one == {value} for value in values)
                 for at, one in enumerate(held)]  # fmt: skip
        if not any(empty):
            return self

        def named(what: str, value: object) -> str:
            names = [self.columns[at].name for at, left in enumerate(empty)
                     if left and held[at] == {value}]  # fmt: skip
            return f"{what}: {', '.join(names)}." if names else ""

        parts = [
            replace(part, rows=[replace(one, cells=_kept(one.cells, empty)) for one in part.rows])
            for part in self.parts
        ]
        said = (self.left_out, named("Zero in every run", 0), named("Not known of any run", None))
        return Table(self.title, _kept(self.columns, empty), parts, " ".join(filter(None, said)))


def _kept(things: Sequence[Any], empty: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(one for one, left in zip(things, empty, strict=True) if not left)


def table(title: str, columns: Sequence[Column], rows: Iterable[Row]) -> Table:
    """A table whose rows are not parted; cells at their ends may be missing."""
    nothing = Cell("")
    whole = [
        replace(one, cells=(*one.cells, *[nothing] * (len(columns) - len(one.cells))))
        for one in rows
    ]
    return Table(title, columns, (Part(whole),))


@dataclass(frozen=True)
class Section:
    """What is said of one subject, such as a run."""

    title: str
    sentences: Sequence[str]
    """Before the tables."""
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    """Behind the tables."""
    mark: Mark | None = None


Shown = str | Table | Section
"""What a terminal shows below each other."""

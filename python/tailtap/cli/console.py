"""Tables on the terminal: one way for all commands.

A table is as wide as the terminal at most. What does not fit is wrapped between words, in columns
that are `wrap`; then columns are left out, those with the highest `spare` first, and a line says
which. In a pipe or a file a row is one line, with all columns.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailtap.cli.terminal import printable, say, width_of, words
from tailtap.show import sections
from tailtap.show.sections import Column, Section

__all__ = ["Column", "Table", "columns", "print_section", "print_table"]

GAP = 2
"""Blanks between two columns."""
LEAST = 4
"""Columns that are this narrow are not made narrower."""

Cell = str | tuple[str, str]
"""A text, or a text and how Rich shows it, such as ``green``."""
STYLES = {
    "good": "green", "alarm": "red", "unshown": "yellow", "worst": "bold",
    "invalid": "dim", "present": "dim", "unsupported": "dim",
}  # fmt: skip
"""How Rich shows the looks of cells and rows; others are as the rest."""
FEW = "*: fewer than ten packets above it, not to be relied on"


def columns(headings: Sequence[str], **common: bool | int) -> list[Column]:
    """Columns that differ in their headings alone."""
    return [Column(heading, **common) for heading in headings]  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Row:
    cells: Sequence[str]
    styles: Sequence[str]
    style: str
    section: bool = False


@dataclass
class Table:
    """A table that is filled row by row and printed once."""

    columns: Sequence[Column]
    title: str = ""
    rest: str = "--json has all"
    """Where the columns are that are left out."""
    _rows: list[_Row] = field(default_factory=list)

    def add(self, *cells: Cell, style: str = "") -> None:
        """Add a row; cells at its end may be missing."""
        texts = [printable(cell if isinstance(cell, str) else cell[0]) for cell in cells]
        styles = ["" if isinstance(cell, str) else cell[1] for cell in cells]
        missing = len(self.columns) - len(cells)
        self._rows.append(_Row(texts + [""] * missing, styles + [""] * missing, style))

    def section(self, title: str) -> None:
        """Add a line for the rows that follow, as wide as all columns."""
        self._rows.append(_Row((printable(title),), ("bold",), "", section=True))

    def print(self) -> None:
        """Print it on standard output, coloured only on a terminal."""
        room = width_of(sys.stdout)
        widths, left_out = self._fitted(room)
        if self.title:
            say(self.title)
        if any(self.columns[place].heading for place in widths):
            self._print_row(_Row([one.heading for one in self.columns], (), "bold"), widths, room)
        for row in self._rows:
            self._print_row(row, widths, room)
        if left_out:
            say(f"left out for want of room: {', '.join(left_out)}; {self.rest}")

    def _fitted(self, room: int | None) -> tuple[Mapping[int, int], Sequence[str]]:
        """The places of the columns that are shown, with their widths; the names of others."""
        rows = [row.cells for row in self._rows if not row.section]
        longest = {
            place: max((len(row[place]) for row in rows), default=0)
            for place in range(len(self.columns))
        }
        shown = {
            place: max(length, len(self.columns[place].heading))
            for place, length in longest.items()
            if length or not rows  # a column that nothing is in tells nothing
        }
        if room is None or _whole(shown) <= room:
            return shown, ()
        least = {place: self._least(place, longest[place], shown[place]) for place in shown}
        left_out = []
        while _whole(least) > room:
            spare = max(least, key=lambda place: (self.columns[place].spare, place))
            if not self.columns[spare].spare:
                break
            left_out.append(spare)
            del least[spare]
        while _whole(least) > room and max(least.values()) > LEAST:
            widest = max(least, key=lambda place: least[place])
            least[widest] -= 1
        for at, place in enumerate(sorted(least, key=lambda place: shown[place] - least[place])):
            more = (room - _whole(least)) // (len(least) - at)
            least[place] += max(0, min(shown[place] - least[place], more))
        return least, [self.columns[place].heading for place in sorted(left_out)]

    def _least(self, place: int, longest: int, natural: int) -> int:
        """The width below which a column is rather left out; headings are always wrapped."""
        column = self.columns[place]
        heading = max(map(len, column.heading.split()), default=0)
        return min(natural, max(heading, column.wrap or longest))

    def _print_row(self, row: _Row, widths: Mapping[int, int], room: int | None) -> None:
        if row.section:
            [title], [style] = row.cells, row.styles
            for part in [title] if room is None else words(title, room, break_words=True):
                _put([(part, style)], "", room)
            return
        cells = {place: _wrapped(row.cells[place], width) for place, width in widths.items()}
        for at in range(max(map(len, cells.values()))):
            parts: list[tuple[str, str]] = []
            for place, width in widths.items():
                text = cells[place][at] if at < len(cells[place]) else ""
                text = text.ljust(width) if self.columns[place].left else text.rjust(width)
                gap = [(" " * GAP, "")] if parts else []
                parts += [*gap, (text, row.styles[place] if row.styles else "")]
            _put(parts, row.style, room)


def print_section(found: Section) -> None:
    """Print what is said of a subject: sentences, tables, notes."""
    say(f"{found.title}: {' '.join(found.sentences)}")
    for table in found.tables:
        print_table(table)
    for note in found.notes:
        say(note)


def print_table(found: sections.Table) -> None:
    """Print a table; nothing of one without rows."""
    if not found:
        return
    units = {column.kind.unit for column in found.columns if column.kind.unit}
    what, comma, rest = found.title.partition(",")
    table = Table(found.columns, " in ".join([what, *sorted(units)]) + comma + rest)
    starred = [any(row.cells[at].look == "unsupported" for row in found.rows)
               for at in range(len(found.columns))]  # fmt: skip
    for part in found.parts:
        if part.title:
            table.section(part.title)
        for row in part.rows:
            cells: list[Cell] = []
            for cell, column, room in zip(row.cells, found.columns, starred, strict=True):
                text = cell.plain(column.kind)
                text += " " * (room and cell.look != "unsupported" and bool(text))
                cells.append((text, STYLES.get(cell.look, "")))
            if part.title:
                cells[0] = (f"  {cells[0][0]}", cells[0][1])
            table.add(*cells, style=STYLES.get(row.look, ""))
    table.print()
    if any(starred):
        say(FEW)


def _put(parts: Sequence[tuple[str, str]], style: str, room: int | None) -> None:
    """Print a line of texts, each with its style where there is a terminal."""
    if room is None:  # without Rich, which ends a program whose reader went away with status 1
        print("".join(text for text, _ in parts).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble(*parts, style=style)
    line.rstrip()
    Console(file=sys.stdout, highlight=False).print(line, soft_wrap=True)


def _whole(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a cell."""
    return [text] if len(text) <= width else words(text, width, break_words=True)

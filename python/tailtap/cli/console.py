"""Tables on the terminal: one way for all commands.

A table is as wide as the terminal at most. What does not fit is wrapped between words, in columns
that are `wrap`; then columns are left out, those with the highest `spare` first, and a line says
which. In a pipe or a file a row is one line, with all columns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tailtap.cli.terminal import printable, say, width_of, words
from tailtap.show.sections import Column, Section, Shown, Table

GAP = 2
"""Blanks between two columns."""
LEAST = 4
"""Columns that are this narrow are not made narrower."""
LONGEST = 24
"""Words that are longer may be broken: paths, say."""
STYLES = {
    "good": "green", "alarm": "red", "unshown": "yellow", "worst": "bold", "changed": "bold",
    "invalid": "dim", "present": "dim", "unsupported": "dim",
}  # fmt: skip
"""How Rich shows the looks of cells and rows; others are as the rest."""
FEW = "*: fewer than ten packets above it, not to be relied on"


@dataclass(frozen=True)
class _Row:
    cells: Sequence[str]
    styles: Sequence[str] = ()
    style: str = ""
    title: bool = False
    """Whether its one cell is as wide as all columns: the title of the rows below it."""


def show(parts: Iterable[Shown]) -> None:
    """Print sentences, tables and sections, one after the other."""
    for part in parts:
        if isinstance(part, str):
            say(part)
        elif isinstance(part, Table):
            print_table(part)
        else:
            print_section(part)


def print_section(found: Section) -> None:
    """Print what is said of a subject: sentences, tables, notes."""
    if said := ": ".join(part for part in (found.title, " ".join(found.sentences)) if part):
        say(said)
    for table in found.tables:
        print_table(table)
    for note in found.notes:
        say(note)


def print_table(found: Table, *, piped: int | None = None) -> None:
    """Print a table on standard output, coloured only on a terminal; nothing without rows.

    Where it is `piped` it is so many columns wide at most; None: each row is one line.
    """
    if not found:
        return
    columns, room = found.columns, width_of(sys.stdout) or piped
    rows = list(_rows(found))
    widths, left_out = _fitted(columns, [row.cells for row in rows if not row.title], room)
    units = {column.kind.unit for column in columns if column.kind.unit}
    what, comma, rest = found.title.partition(",")
    if found.title:
        say(" in ".join([what, *sorted(units)]) + comma + rest)
    if any(columns[place].heading for place in widths):
        rows.insert(0, _Row([one.heading for one in columns], style="bold"))
    for row in rows:
        _print_row(row, columns, widths, room)
    if left_out:
        say(f"left out for want of room: {', '.join(left_out)}; --json has all")
    starred = _starred(found)
    if any(starred[place] for place in widths):
        say(FEW)


def _starred(found: Table) -> list[bool]:
    """Whether a column has values that few packets support."""
    every = range(len(found.columns))
    return [any(row.cells[at].look == "unsupported" for row in found.rows) for at in every]


def _rows(found: Table) -> Iterator[_Row]:
    starred = _starred(found)
    for part in found.parts:
        if part.title:
            yield _Row((printable(part.title),), ("bold",), title=True)
        for row in part.rows:
            texts = ["  " if part.title else "", *[""] * (len(row.cells) - 1)]
            for at, (cell, column) in enumerate(zip(row.cells, found.columns, strict=True)):
                texts[at] += printable(cell.plain(column.kind))
                texts[at] += " " * (starred[at] and cell.look != "unsupported" and bool(texts[at]))
            styles = [STYLES.get(cell.look, "") for cell in row.cells]
            yield _Row(texts, styles, STYLES.get(row.look, ""))


def _fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None
) -> tuple[Mapping[int, int], Sequence[str]]:
    """The places of the columns that are shown, with their widths; the names of others."""
    places = range(len(columns))
    longest = {place: max(len(row[place]) for row in rows) for place in places}
    shown = {
        place: max(length, len(columns[place].heading))
        for place, length in longest.items()
        if length  # a column that nothing is in tells nothing
    }
    if room is None or _whole(shown) <= room:
        return shown, ()
    least = {
        place: _least(columns[place], longest[place], shown[place], [row[place] for row in rows])
        for place in shown
    }
    left_out = []
    while _whole(least) > room:
        spare = max(least, key=lambda place: (columns[place].spare, place))
        if not columns[spare].spare:
            break
        left_out.append(spare)
        del least[spare]
    while _whole(least) > room and max(least.values()) > LEAST:
        widest = max(least, key=lambda place: least[place])
        least[widest] -= 1
    for at, place in enumerate(sorted(least, key=lambda place: shown[place] - least[place])):
        more = (room - _whole(least)) // (len(least) - at)
        least[place] += max(0, min(shown[place] - least[place], more))
    return least, [columns[place].heading for place in sorted(left_out)]


def _least(column: Column, longest: int, natural: int, cells: Sequence[str]) -> int:
    """The width below which a column is rather left out; headings are always wrapped.

    It has room for each word of its cells, up to `LONGEST` characters.
    """
    heading = max(map(len, column.heading.split()), default=0)
    if not column.wrap:
        return min(natural, max(heading, longest))
    parts = (part for cell in cells for part in words(cell, 1, break_at_hyphens=True))
    word = max((len(part.strip()) for part in parts), default=0)
    return min(natural, max(heading, column.wrap, min(word, LONGEST)))


def _print_row(
    row: _Row, columns: Sequence[Column], widths: Mapping[int, int], room: int | None
) -> None:
    if row.title:
        [title], [style] = row.cells, row.styles
        for part in [title] if room is None else words(title, room, break_words=True):
            _put([(part, style)], "")
        return
    cells = {place: _wrapped(row.cells[place], width) for place, width in widths.items()}
    for at in range(max(map(len, cells.values()))):
        parts: list[tuple[str, str]] = []
        for place, width in widths.items():
            text = cells[place][at] if at < len(cells[place]) else ""
            text = text.ljust(width) if columns[place].left else text.rjust(width)
            gap = [(" " * GAP, "")] if parts else []
            parts += [*gap, (text, row.styles[place] if row.styles else "")]
        _put(parts, row.style)


def _put(parts: Sequence[tuple[str, str]], style: str) -> None:
    """Print a line of texts, each with its style where there is a terminal."""
    # Without Rich in a pipe: it ends a program whose reader went away with status 1.
    if width_of(sys.stdout) is None:
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

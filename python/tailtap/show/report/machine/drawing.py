"""The map as a drawing: each box, thread, card and crossing with its place, in units of a pixel.

On a small machine each thread has room for words; on a large one letters stand for them, and the
list beside the map explains them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailtap.base.cpulist import ranges
from tailtap.show.report.machine.placement import Crossing, Placement, Port, Work
from tailtap.show.report.machine.tree import Box, Card, Machine

ROOMY = 16
"""With more CPUs than this, letters stand for words."""
WIDTH = 1120
"""As wide as a map gets, unless a single core is wider."""
PAD, GAP, TITLE, LINE, HEAD = 10, 8, 20, 17, 20
LETTER = 7.2
"""How wide a letter of a title is, on average."""
FEW = 4
"""Cores that stand side by side at least."""


@dataclass(frozen=True)
class Frame:
    """A box around others."""

    x: float
    y: float
    width: float
    height: float
    title: str
    core: bool


@dataclass(frozen=True)
class Cell:
    """A thread: its number, and who works there."""

    x: float
    y: float
    width: float
    height: float
    cpu: int
    stripes: tuple[tuple[str, float, float, float, float], ...]
    """Kind of work, left edge, upper edge, width, height. A kind that ends with ``spread`` is of
    those who may be anywhere."""
    words: tuple[str, ...]
    looks: str
    """Classes: ``isolated``, ``tickless``, ``off``."""
    hint: str


@dataclass(frozen=True)
class Chip:
    """A network card."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    used: bool


@dataclass
class Drawing:
    """All parts; `lines` join what is on different NUMA nodes: x and y of both ends."""

    width: float
    height: float
    frames: list[Frame]
    cells: list[Cell]
    chips: list[Chip]
    lines: list[tuple[float, float, float, float]]


def draw(machine: Machine, placement: Placement, crossings: Sequence[Crossing]) -> Drawing:
    """The map of one machine with one placement."""
    drawing = Drawing(0, 0, [], [], [], [])
    layout = _Layout(machine, placement, drawing)
    homeless = [card for card in machine.cards if card.node not in machine.nodes]
    width, height = layout.children(machine.boxes, homeless, 1, 1, WIDTH)
    drawing.width, drawing.height = width + 2, height + 2
    places = {f"cpu {cell.cpu}": _middle(cell) for cell in drawing.cells}
    places |= {f"card {chip.lines[0].split()[0]}": _middle(chip) for chip in drawing.chips}
    for crossing in crossings:
        points = [
            places.get(f"card {stop.card}" if stop.card is not None else f"cpu {min(stop.cpus)}")
            for stop in crossing.ends or ()
        ]
        match points:
            case [(x, y), (right, bottom)]:
                drawing.lines.append((x, y, right, bottom))
    return drawing


def _middle(part: Cell | Chip) -> tuple[float, float]:
    return part.x + part.width / 2, part.y + part.height / 2


def _look(work: Work) -> str:
    return f"{work.kind} spread" if work.spread else work.kind


class _Layout:
    """Places boxes from left to right, and in rows where they do not fit."""

    def __init__(self, machine: Machine, placement: Placement, drawing: Drawing) -> None:
        self._machine, self._placement, self._drawing = machine, placement, drawing
        self._ports = {port.card: port for port in placement.ports}
        self._roomy = len(machine.cpus) <= ROOMY
        most = max((len(placement.at(cpu)) for cpu in machine.cpus), default=0)
        self._cell = (150.0, HEAD + LINE * max(most, 1) + 0.0) if self._roomy else (46.0, 30.0)

    def children(
        self, boxes: Sequence[Box], cards: Sequence[Card], x: float, y: float, room: float
    ) -> tuple[float, float]:
        """Place boxes and, below them, network cards; width and height of all of it."""
        columns = self._columns(boxes, room)
        share = (room - GAP * (columns - 1)) / columns
        left, top, right, bottom = x, y, x, y
        for place, box in enumerate(boxes):
            if place % columns == 0 and place:
                left, top = x, bottom + GAP
            width, height = self.box(box, left, top, share)
            left += width + GAP
            right, bottom = max(right, left - GAP), max(bottom, top + height)
        if cards:
            width, height = self.cards(cards, x, bottom + GAP, max(room, right - x))
            right, bottom = max(right, x + width), bottom + GAP + height
        return right - x, bottom - y

    def box(self, box: Box, x: float, y: float, room: float) -> tuple[float, float]:
        """Place a box and what is in it; its width and height."""
        if box.core:
            return self.core(box, x, y)
        place = len(self._drawing.frames)
        title = " · ".join(box.titles)
        cards = [card for card in self._machine.cards if card.node in box.nodes]
        inner = room - 2 * PAD
        width, height = self.children(box.children, cards, x + PAD, y + TITLE + PAD / 2, inner)
        width = max(width, min(inner, len(title) * LETTER)) + 2 * PAD
        height += TITLE + PAD * 1.5
        # Around what is in it, so that it is drawn first.
        self._drawing.frames.insert(place, Frame(x, y, width, height, title, core=False))
        return width, height

    def core(self, box: Box, x: float, y: float) -> tuple[float, float]:
        """Place the threads of a core, one below the other."""
        width, height = self._cell
        pad = 3 if len(box.cpus) > 1 else 0
        total = width + 2 * pad, height * len(box.cpus) + pad * (len(box.cpus) + 1)
        if pad:
            self._drawing.frames.append(Frame(x, y, *total, "", core=True))
        for row, cpu in enumerate(box.cpus):
            self._drawing.cells.append(self._thread(cpu, x + pad, y + pad + row * (height + pad)))
        return total if pad else self._cell

    def cards(self, cards: Sequence[Card], x: float, y: float, room: float) -> tuple[float, float]:
        """Place network cards."""
        left, top, right, height = x, y, x, 2 * LINE + 8
        for card in cards:
            lines = tuple(_lines(card, self._ports.get(card.name)))
            width = max(map(len, lines)) * LETTER + 2 * PAD
            if left > x and left + width > x + room:
                left, top = x, top + height + GAP
            chip = Chip(left, top, width, height, lines, card.name in self._ports)
            self._drawing.chips.append(chip)
            left += width + GAP
            right = max(right, left - GAP)
        return right - x, top + height - y

    def _thread(self, cpu: int, x: float, y: float) -> Cell:
        machine, (width, height) = self._machine, self._cell
        works = self._placement.at(cpu)
        names = tuple(work.name for work in works)
        if self._roomy:  # one below the other, behind their words
            stripes = tuple(
                (_look(work), x, y + HEAD + LINE * place, width, LINE + 0.0)
                for place, work in enumerate(works)
            )
        else:
            kinds = list(dict.fromkeys(map(_look, works)))
            share = width / max(len(kinds), 1)
            stripes = tuple(
                (kind, x + share * place, y, share, height) for place, kind in enumerate(kinds)
            )
        letters = "".join(dict.fromkeys(work.letter for work in works if not work.spread))
        marks = {
            "isolated": cpu in machine.isolated,
            "tickless": cpu in machine.tickless,
            "off": cpu not in machine.online,
        }
        looks = " ".join(name for name, is_so in marks.items() if is_so)
        said = [*names, *(name for name, is_so in marks.items() if is_so)]
        hint = f"CPU {cpu}" + (f": {', '.join(said)}" if said else "")
        words = names if self._roomy else (letters,) if letters else ()
        return Cell(x, y, width, height, cpu, stripes, words, looks, hint)

    def _columns(self, boxes: Sequence[Box], room: float) -> int:
        """How many boxes stand side by side, rows alike."""
        number = len(boxes)
        if not number:
            return 1
        need = max(self._narrowest(box) for box in boxes)
        most = max(1, min(number, int((room + GAP) // (need + GAP))))
        rows = -(-number // most)
        return -(-number // rows)

    def _narrowest(self, box: Box) -> float:
        """The least width that a box needs, or looks well with."""
        if box.core:
            return self._cell[0] + (6 if len(box.cpus) > 1 else 0)
        inner = max((self._narrowest(child) for child in box.children), default=0.0)
        side = min(FEW, len(box.children)) if all(c.core for c in box.children) else 1
        title = min(len(" · ".join(box.titles)) * LETTER, 40 * LETTER)
        return max(side * (inner + GAP) - GAP, title) + 2 * PAD


def _lines(card: Card, port: Port | None) -> Iterator[str]:
    yield f"{card.name} {card.driver}".strip()
    going = f"interrupts → CPU {ranges(card.interrupts)}" if card.interrupts else "network card"
    yield f"port {port.name} of the lab" if port is not None else going

"""In which groups the partial evaluations of a pair's pieces are merged."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

FAN_IN = 8
"""How many partial evaluations a task merges: few enough to fit into a worker's memory."""


class Place(NamedTuple):
    """Where a partial evaluation stands: pieces in order of time are level 0."""

    level: int
    number: int


class Tree(Generic[T]):
    """Says what can be merged as partial evaluations come in, in any order.

    Those of one merge lie side by side, and a merge stands one level above what it is made of.
    """

    def __init__(self, pieces: int, fan_in: int = FAN_IN) -> None:
        """For `pieces`, at least one."""
        self._fan_in = fan_in
        self._sizes = [pieces]
        while self._sizes[-1] > 1:
            self._sizes.append(-(-self._sizes[-1] // fan_in))
        self._held: dict[Place, T] = {}

    @property
    def root(self) -> Place:
        """Where the evaluation of the whole stands."""
        return Place(len(self._sizes) - 1, 0)

    def add(self, place: Place, value: T) -> tuple[Place, list[T]] | None:
        """Take in the partial evaluation at `place`.

        Returns what can be merged now, in order of time, and the place of the result; a list of
        one, at the root, is the whole. None when others are still missing.
        """
        while place != self.root:
            self._held[place] = value
            group = place.number // self._fan_in
            first = group * self._fan_in
            last = min(first + self._fan_in, self._sizes[place.level])
            members = [Place(place.level, number) for number in range(first, last)]
            if any(member not in self._held for member in members):
                return None
            values = [self._held.pop(member) for member in members]
            place = Place(place.level + 1, group)
            if len(values) > 1:
                return place, values
            value = values[0]  # alone in its group: it moves up as it is
        return place, [value]

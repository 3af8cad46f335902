"""Random choices that one seed fixes, each feature from a stream of its own.

A feature that is left out changes no other choice: so a failing seed is shrunk feature by feature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


class Draw:
    """The choices of one seed; `features` are those that the machine has."""

    def __init__(
        self, seed: int, without: frozenset[str] = frozenset(), scale: float = 1.0
    ) -> None:
        self.seed = seed
        self.without = without
        self.scale = scale
        """What counts are multiplied by."""
        self.features: list[str] = []
        self._streams: dict[str, np.random.Generator] = {}

    def stream(self, name: str) -> np.random.Generator:
        """The stream of this name, which continues where it stands."""
        if name not in self._streams:
            self._streams[name] = np.random.default_rng([self.seed, *name.encode()])
        return self._streams[name]

    def has(self, feature: str, chance: float) -> bool:
        """Whether the machine has a feature, which the shrinker can leave out."""
        drawn = self.stream(feature).random() < chance and feature not in self.without
        if drawn and feature not in self.features:
            self.features.append(feature)
        return drawn

    def between(self, name: str, least: int, most: int) -> int:
        """A number in [least, most]."""
        return int(self.stream(name).integers(least, most, endpoint=True))

    def magnitude(self, name: str, least: int, most: int) -> int:
        """A number in [least, most], each order of magnitude as likely as the others."""
        return round(math.exp(self.stream(name).uniform(math.log(least), math.log(most))))

    def count(self, name: str, least: int, most: int) -> int:
        """How many of something: of any magnitude, and fewer as a failure is shrunk."""
        return max(least, round(self.scale * self.magnitude(name, least, most)))

    def choice(self, name: str, options: Sequence[Item]) -> Item:
        """One of these."""
        return options[int(self.stream(name).integers(len(options)))]

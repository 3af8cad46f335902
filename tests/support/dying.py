"""A process that is killed at a step of its work, played in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import count

import pytest

Step = tuple[object, str]
"""What does a step: an object, and the name of its function."""


class Killed(BaseException):
    """The process has been killed: whatever it does afterwards does not happen."""


@contextlib.contextmanager
def dying(at: int, *steps: Step) -> Iterator[None]:
    """From step `at` on none of `steps` does anything; what is within ends then."""
    taken = count()
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        for owner, name in steps:
            patch.setattr(owner, name, _until(at, taken, getattr(owner, name)))
        yield


def _until(at: int, taken: Iterator[int], go_on: Callable[..., object]) -> Callable[..., object]:
    def step(*arguments: object, **options: object) -> object:
        if next(taken) >= at:
            raise Killed
        return go_on(*arguments, **options)

    return step

"""`evaluate_many`: many pairs of captures, and large ones in pieces, on an executor.

A task is a function of files and of what other tasks gave, so that it can be done again
anywhere: *plan* cuts a pair into pieces, *evaluate* makes a partial evaluation of a piece, *merge*
joins partial evaluations that lie side by side. However a pair is cut and whatever ran where, the
evaluation is bit for bit that of the whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from tailtap import _core
from tailtap.analysis.evaluation.evaluate import Settings, concluded
from tailtap.analysis.evaluation.executors import Executor, Task, stopped
from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.evaluation.sources import Source, source_of
from tailtap.base.errors import MachineError, NotSplittableError, TailtapError

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


CHUNK_BYTES = 1 << 30
"""How large a piece of the capture before the device is unless asked otherwise."""
NEWS_SECONDS = 2.0
"""How long to wait for a task to end before looking whether any can."""

Progress = Callable[[int, int], object]
"""Is told how many pieces are done, of how many that are known so far."""


@dataclass(frozen=True)
class Captures:
    """A pair of captures to evaluate."""

    ingress: Path | Source
    egress: Path | Source
    settings: Settings = field(default_factory=Settings)

    def sides(self, executor: Executor) -> tuple[Path | Source, Path | Source]:
        """Both sides, with their files as tasks of the executor find them."""

        def placed(side: Path | Source) -> Path | Source:
            if isinstance(side, Source):
                return replace(side, files=tuple(map(executor.place, side.files)))
            return executor.place(side)

        return placed(self.ingress), placed(self.egress)

    def files(self, executor: Executor) -> list[Path]:
        """All files of both."""
        sides = self.sides(executor)
        return [
            file for side in sides for file in (side.files if isinstance(side, Source) else (side,))
        ]


def evaluate_many(
    captures: Sequence[Captures],
    executor: Executor,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress | None = None,
) -> Iterator[tuple[int, Evaluation | TailtapError]]:
    """Evaluate pairs of captures; those larger than `chunk_bytes` in pieces, where they can be cut.

    Yields the index of a pair and its evaluation, or the error that it gave, as they come to an
    end, which is in no order. Compressed captures, pcapng, ERF and mscap, and captures whose stamps
    are not in order of time, are evaluated in one piece. Raises `MachineError` when the executor
    cannot go on.
    """
    executor.prepare([path for pair in captures for path in pair.files(executor)])
    work = _Work(executor, progress)
    work.planned.extend(_Attempt(*numbered, chunk_bytes) for numbered in enumerate(captures))
    while work.planned or work.cut or work.under_way:
        work.fill()
        yield from work.next_news()


def plan(
    ingress: Path | Source, egress: Path | Source, settings: Settings, chunk_bytes: int
) -> list[bytes]:
    """The task that cuts a pair into pieces, in order of time."""
    return _core.plan(ingress, egress, settings.matching, chunk_bytes=chunk_bytes)


def evaluate_piece(piece: bytes) -> bytes:
    """The task that makes a partial evaluation."""
    return _core.evaluate_piece(piece, stopped=stopped)


def merge(*partials: bytes) -> bytes:
    """The task that joins partial evaluations that lie side by side, in order."""
    return _core.merge(list(partials))


@dataclass(eq=False)
class _Attempt:
    """A pair on its way: its pieces that nobody has begun, and what has come of the others."""

    index: int
    captures: Captures
    chunk_bytes: int
    pieces: deque[tuple[Place, bytes]] = field(default_factory=deque)
    tree: Tree[Task] = field(default_factory=lambda: Tree(1))


@dataclass(eq=False)
class _Step:
    """A task and what it is for; the place of a plan is None."""

    attempt: _Attempt
    place: Place | None
    task: Task


class _Work:
    """Everything under way. As few tasks at once as keep the executor busy: memory is bounded."""

    def __init__(self, executor: Executor, progress: Progress | None) -> None:
        self.executor = executor
        self.planned: deque[_Attempt] = deque()
        """Pairs to be cut."""
        self.cut: deque[_Attempt] = deque()
        """Pairs with pieces left to begin."""
        self.under_way: set[_Step] = set()
        self._news: SimpleQueue[_Step] = SimpleQueue()
        self._progress = progress
        self._done = self._known = 0

    def fill(self) -> None:
        """Begin what the executor has room for, earlier pairs first."""
        while (self.cut or self.planned) and len(self.under_way) < self.executor.slots():
            if self.cut:
                attempt = self.cut[0]
                place, piece = attempt.pieces.popleft()
                if not attempt.pieces:
                    self.cut.popleft()
                self._begin(attempt, place, evaluate_piece, piece)
            else:
                attempt = self.planned.popleft()
                pair = attempt.captures
                cut = (*pair.sides(self.executor), pair.settings, attempt.chunk_bytes)
                self._begin(attempt, None, plan, *cut)

    def next_news(self) -> Iterator[tuple[int, Evaluation | TailtapError]]:
        """Wait for a task to end and go on from it; yields a pair that has come to its end."""
        try:
            step = self._news.get(timeout=NEWS_SECONDS)
        except Empty:
            self.executor.check()
            return
        if step not in self.under_way:
            return  # of an attempt that was given up
        self.under_way.remove(step)
        attempt = step.attempt
        error = self.executor.error(step.task)
        found = None
        if error is None:
            try:
                found = self._go_on(step)
            except TailtapError as refused:
                error = refused
        if error is not None:
            yield from self._failed(attempt, error)
        elif found is not None:
            yield attempt.index, found

    def _begin(
        self,
        attempt: _Attempt,
        place: Place | None,
        function: Callable[..., object],
        *arguments: object,
    ) -> None:
        step = _Step(attempt, place, self.executor.submit(function, *arguments))
        self.under_way.add(step)
        step.task.add_done_callback(lambda _: self._news.put(step))

    def _go_on(self, step: _Step) -> Evaluation | None:
        """What follows from a task that ended well: the evaluation when it was the last."""
        attempt = step.attempt
        if step.place is None:
            pieces: list[bytes] = self.executor.result(step.task)
            attempt.tree = Tree(len(pieces))
            attempt.pieces.extend((Place(0, i), piece) for i, piece in enumerate(pieces))
            self.cut.append(attempt)
            self._tell(0, len(pieces))
            return None
        if step.place.level == 0:
            self._tell(1, 0)
        ready = attempt.tree.add(step.place, step.task)
        if ready is None:
            return None
        place, tasks = ready
        if len(tasks) > 1:
            self._begin(attempt, place, merge, *tasks)
            return None
        return _conclude(self.executor.result(tasks[0]), attempt.captures)

    def _failed(
        self, attempt: _Attempt, error: BaseException
    ) -> Iterator[tuple[int, TailtapError]]:
        """Give up an attempt: another one follows in one piece, or the error is the result."""
        for step in [step for step in self.under_way if step.attempt is attempt]:
            self.under_way.remove(step)
            step.task.cancel()
        if attempt in self.cut:
            self.cut.remove(attempt)
        pair = attempt.captures
        if isinstance(error, NotSplittableError) and attempt.chunk_bytes:
            self.planned.appendleft(_Attempt(attempt.index, pair, 0))
        elif isinstance(error, TailtapError):
            yield attempt.index, error
        else:
            yield (
                attempt.index,
                MachineError(self.executor.explain(error)).at(source_of(pair.ingress).name),
            )

    def _tell(self, done: int, known: int) -> None:
        self._done += done
        self._known += known
        if self._progress is not None:
            self._progress(self._done, self._known)


def _conclude(partial: bytes, pair: Captures) -> Evaluation:
    found = concluded(*_core.conclude(partial, bucket_ns=pair.settings.bucket_ns), pair.settings)
    for side, given in zip(found.inputs.both, (pair.ingress, pair.egress), strict=True):
        side.path = source_of(given).name
    return found

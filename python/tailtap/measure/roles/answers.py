"""What roles answer: a far station may say anything, and is not asked again when it says nonsense.

Each answer is checked where it comes in, so that whoever asked can rely on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tailtap.records.errors import MachineError
from tailtap.records.generator import GeneratorRecord
from tailtap.records.machine import Station, Tuning
from tailtap.records.record import (
    Anything,
    Count,
    InnerFile,
    Notice,
    Number,
    Open,
    Record,
    Texts,
    parsed,
)
from tailtap.records.run import (
    Facts,
    Placement,
    PlatformFacts,
    StampedPoint,
)
from tailtap.records.taps import Tapped
from tailtap.remote.session import ANSWER_SECONDS, Session

R = TypeVar("R", bound=Record)


class Prepared(Record, kw_only=True):
    """A DuT that is prepared."""

    platform: Open[PlatformFacts]
    tuning: Tuning | None
    boot_id: str | None
    placement: Placement | None
    warnings: list[Notice]
    own_kernel: bool
    patience: Number
    ready_seconds: Number | None
    holds_ns: Count


class Why(Record, kw_only=True):
    """Why no packet comes through."""

    reason: str


class Brought(Record, kw_only=True):
    """What an instrument brought."""

    facts: Texts
    files: list[InnerFile]


class Observed(Record, kw_only=True):
    """What instruments found out."""

    facts: Facts
    warnings: list[Notice]
    brought: dict[str, Brought]
    cpu_ns: dict[str, Count] | None


class Forwarded(Record, kw_only=True):
    """What forwarders say of themselves."""

    forwarder: Anything


class Described(Record, kw_only=True):
    """A machine besides the DuT's."""

    station: Station | None


class Results(Record, kw_only=True):
    """That of all flows."""

    flows: dict[str, Open[GeneratorRecord]]


class Passed(Record, kw_only=True):
    """How many packets came to the taps of a flow."""

    ingress: Count
    egress: Count


class Counted(Record, kw_only=True):
    """That of all flows."""

    flows: dict[str, Passed]


class OfFlow(Record, kw_only=True, forbid_unknown_fields=True):
    """What the taps of a flow leave."""

    taps: dict[str, Open[Tapped]]
    warnings: list[Notice]
    files: list[InnerFile]
    points: list[StampedPoint]


class Stamped(Record, kw_only=True):
    """That of all flows."""

    cpus: str | None
    flows: dict[str, OfFlow]


class Done(Record, kw_only=True):
    """That it was done, and no more."""


@dataclass(frozen=True)
class Question(Generic[R]):
    """What a role is asked, and what it answers."""

    name: str
    answer: type[R]


PREPARE = Question("prepare", Prepared)
CHECK = Question("check", Done)
WHY = Question("why", Why)
OBSERVE = Question("observe", Done)
READ = Question("read", Observed)
END = Question("stop", Forwarded)
"""The DuT's."""
DESCRIBE = Question("describe", Described)
START = Question("start", Done)
"""The generator's and the timestamper's."""
PROBE = Question("probe", Done)
SCHEDULE = Question("schedule", Done)
"""The DuT's: so long after now (`after_ns`) the first packet passes that counts, and events are due
from then on."""
INTERRUPT = Question("interrupt", Done)
RESULT = Question("result", Results)
"""The generator's."""
RESTART = Question("restart", Done)
COUNT = Question("count", Counted)
STOP = Question("stop", Stamped)
"""The timestamper's."""


class CheckedSession:
    """A session of a role whose answers are what they should be."""

    def __init__(self, session: Session, role: str, flows: Iterable[str]) -> None:
        """`session` is one of this `role`, which was told of these `flows`."""
        self._session, self._flows = session, {*flows}
        self._name = f"the {role} answers what makes no sense"
        self.fileno, self.events = session.fileno, session.events
        self.fetch, self.close = session.fetch, session.close

    def ask(
        self, question: Question[R], /, *, seconds: float = ANSWER_SECONDS, **content: object
    ) -> R:
        """The role's answer. Raises `TailtapError`, and `MachineError` where it is none."""
        said = self._session.ask(question.name, seconds=seconds, **content)
        answer = parsed(self._name, said, question.answer, MachineError)
        if not self._flows <= {*getattr(answer, "flows", self._flows)}:
            raise MachineError(f"{self._name}: it leaves out flows")
        return answer

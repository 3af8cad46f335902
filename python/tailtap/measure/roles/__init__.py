"""The seam of a role: questions in, answers and events out.

Both are checked where they come in: a role relies on what it is asked, and whoever asks on the
answer. A far station may say anything, and is not asked again when it says nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, overload

from tailtap.base.errors import MachineError
from tailtap.experiment.model import Experiment
from tailtap.lab.instruments.observing import Counters
from tailtap.lab.topology.graph import TASKS, Task
from tailtap.lab.topology.lab import Lab
from tailtap.records.datapath import GeneratorRecord, Tapped
from tailtap.records.machine import Station as StationRecord
from tailtap.records.machine import Tuning
from tailtap.records.record import (
    Anything,
    Count,
    InnerFile,
    Notice,
    Number,
    Open,
    Record,
    Texts,
    Width,
    as_json,
    parsed,
)
from tailtap.records.run import (
    Facts,
    Placement,
    PlatformFacts,
    StampedPoint,
)
from tailtap.remote.local import Process
from tailtap.remote.session import Json, RoleEvent, RolePlan, Session, Station

R = TypeVar("R", bound=Record)
A = TypeVar("A", bound=Record)


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

    station: StationRecord | None


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


class Asked(Record, kw_only=True, forbid_unknown_fields=True):
    """What a question comes with: by itself, nothing."""


class AskedToCheck(Asked, kw_only=True):
    """Look whether the forwarders are at work."""

    links: bool = False
    """And whether the links of the lab are up."""


class AskedToDescribe(Asked, kw_only=True):
    """Tell of the machine, unless it is the DuT's."""

    boot_id: str | None
    """What tells the boot of the DuT's machine from those of others."""


class AskedToProbe(Asked, kw_only=True):
    """Send a few packets that do not count."""

    flows: Texts


class AskedToSchedule(Asked, kw_only=True):
    """Let events be due."""

    after_ns: Count
    """So long after now the first packet passes that counts."""


class AskedToBeSilent(Asked, kw_only=True):
    """Have `dut.silent` down, from a moment after the answer on."""

    for_seconds: Width


Request: TypeAlias = Callable[[Json], Record]
"""Answers a question with the content that it came with. Raises `InputError` for another one."""


@dataclass(frozen=True)
class Question(Generic[A, R]):
    """What a role is asked, what comes with the question, and what it answers."""

    name: str
    asked: type[A]
    answer: type[R]

    def by(self, answer: Callable[[A], R]) -> tuple[str, Request]:
        """Its name, and the role's method that answers it."""
        return self.name, lambda said: answer(parsed(f"asked to {self.name}", said, self.asked))


PREPARE = Question("prepare", Asked, Prepared)
CHECK = Question("check", AskedToCheck, Done)
WHY = Question("why", Asked, Why)
OBSERVE = Question("observe", Asked, Done)
SCHEDULE = Question("schedule", AskedToSchedule, Done)
READ = Question("read", Asked, Observed)
END = Question("stop", Asked, Forwarded)
SILENCE = Question("silence", AskedToBeSilent, Done)
"""The DuT's."""
DESCRIBE = Question("describe", AskedToDescribe, Described)
START = Question("start", Asked, Done)
"""The generator's and the timestamper's."""
PROBE = Question("probe", AskedToProbe, Done)
INTERRUPT = Question("interrupt", Asked, Done)
RESULT = Question("result", Asked, Results)
"""The generator's."""
RESTART = Question("restart", Asked, Done)
COUNT = Question("count", Asked, Counted)
STOP = Question("stop", Asked, Stamped)
"""The timestamper's."""


class CheckedSession:
    """A session of a role whose answers are what they should be."""

    def __init__(self, session: Session, role: str, flows: Iterable[str]) -> None:
        """`session` is one of this `role`, which was told of these `flows`."""
        self._session, self._flows = session, {*flows}
        self._name = f"the {role} answers what makes no sense"
        self.fileno, self.events = session.fileno, session.events
        self.fetch, self.close = session.fetch, session.close

    @overload
    def ask(self, question: Question[Asked, R], /) -> R: ...

    @overload
    def ask(self, question: Question[A, R], asked: A, /) -> R: ...

    def ask(self, question: Question[Any, R], asked: Record | None = None, /) -> R:
        """The role's answer. Raises `TailtapError`, and `MachineError` where it is none."""
        said = self._session.ask(question.name, as_json(asked or Asked()))
        answer = parsed(self._name, said, question.answer, MachineError)
        if not self._flows <= {*getattr(answer, "flows", self._flows)}:
            raise MachineError("it leaves out flows").at(self._name)
        return answer


PLACE = Path("/var/tmp")
"""Where roles leave their files until these are fetched: stamps are too large for memory."""


@dataclass(frozen=True)
class Workbench:
    """What the roles of one site share: what stands there, and the experiment that it is for."""

    lab: Lab
    experiment: Experiment
    counting: Counters | None


class Role(Protocol):
    """A role at work."""

    def requests(self) -> Mapping[str, Request]:
        """What it can be asked."""
        ...

    def sources(self) -> Sequence[Process]:
        """What is readable when `look` may find something."""
        ...

    def look(self) -> Sequence[RoleEvent]:
        """The events since the last look, without waiting. Not more than one that says an end."""
        ...

    def close(self) -> None:
        """End everything that it started. May be called again."""
        ...


Begin: TypeAlias = Callable[[Workbench, RolePlan], Role]

Stations: TypeAlias = Mapping[str, Station]


def tasks_of(stations: Stations) -> list[tuple[Station, Sequence[Task]]]:
    """Each station once, with the roles that are on it."""
    return [
        (station, [role for role in TASKS if stations[role] is station])
        for station in {id(one): one for one in stations.values()}.values()
    ]

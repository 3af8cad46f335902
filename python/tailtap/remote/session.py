"""Roles at work on a station, as the measuring process sees them.

A station is a machine on which roles run: this one, or another one at the end of a stream. A
measurement opens a site on it, which holds everything that is made there for this measurement,
and begins roles in it. A role is asked, and answers; what happens to it in between it tells as
events. Plans, questions, answers and events are JSON.

Whoever opened a site closes it. A site whose measuring process is gone closes itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_type_hints

import msgspec

from tailtap.base.errors import Bug, Findings, InputError, MachineError, TailtapError, restored
from tailtap.records.machine import Environment, Timekeeping
from tailtap.records.record import Anything, Record, parsed
from tailtap.records.run import Window

Json: TypeAlias = dict[str, Any]

NOTHING: Mapping[str, object] = MappingProxyType({})
"""What a question comes with that says all."""
ANSWER_SECONDS = 120.0
"""How long a role may take to answer: a virtual machine boots, a debian root is unpacked."""

FINISHED: Final = "finished"
FAILED: Final = "failed"


class Setup(Record, kw_only=True, omit_defaults=True):
    """What a site is made for."""

    experiment: Anything
    """As its model writes it; who opens the site has the same kinds, or says which it lacks."""
    cables: list[dict[str, list[str] | None]] = []
    """Those of a testbed, two by two, by the role that the network cards belong to."""
    tasks: list[Literal["generator", "timestamper", "dut"]] = []
    """The tasks of the nodes that are on the station."""


class Foreseen(Record, kw_only=True):
    """What a machine says beforehand of its part of a measurement."""

    machine: Findings
    """What concerns all that is measured there."""
    run: Findings


class RolePlan(Record, kw_only=True, omit_defaults=True):
    """What a role is to do."""

    folder: str | None = None
    """What it writes belongs there, in a folder of the machine that measures; a far station gives
    it one of its own."""
    flows: dict[str, str] = {}
    """The names of its flows, each with the folder below that of the plan."""
    flush: str | None = None
    """How often taps write; None: when they must."""


class RoleEvent(Record, kw_only=True, omit_defaults=True):
    """What happened to a role: it has done what it was started for, or cannot go on."""

    event: Literal["finished", "failed"]
    reason: str | None = None
    link: bool = False
    """Whether that is a link of the lab which is gone."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a failure without a reason."""
        if self.event == FAILED and self.reason is None:
            raise ValueError("a role that cannot go on says why")


class Closed(Record, kw_only=True):
    """What was observed over the whole life of a site."""

    counters: dict[str, Window] = {}
    """What processors counted, by the window of time."""


class Session(Protocol):
    """One role at work."""

    def ask(
        self,
        request: str,
        content: Mapping[str, object] = NOTHING,
        /,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Json:
        """Ask the role with some content, and wait for its answer, at most `seconds`.

        Raises the `TailtapError` that kept the role from it, and `MachineError` when there is no
        answer, or nobody who could give one.
        """

    def fileno(self) -> int:
        """A descriptor that is readable when there may be events."""

    def events(self) -> list[RoleEvent]:
        """What has happened since the last call, without waiting."""

    def fetch(self) -> None:
        """Have the files that the role wrote in the `folder` of its plan, on this machine.

        They are whole, or an error is raised: `MachineError`, and `OSError` when there is no room.
        """

    def close(self) -> None:
        """End the role and let go of what it holds. May be called again."""


class Site(Protocol):
    """What stands on a station for one measurement."""

    def begin(self, role: str, plan: RolePlan) -> Session:
        """Begin a role. Raises `TailtapError` when its plan does not fit or cannot be done.

        What the role writes belongs into the `folder` of its plan, which is one of this machine.
        It may be on the station only until `Session.fetch`.
        """

    def keep(self, seconds: float) -> None:
        """Stay for so long though nobody may say a word; `close` ends it all the same.

        Whoever hears nothing for longer closes the site. Raises `TailtapError`.
        """

    def clock(self) -> int:
        """What the machine's monotonic clock shows in ns, some time between question and answer.

        Raises `TailtapError`.
        """

    def timekeeping(self) -> Timekeeping:
        """How its clock is kept, for ``run.json``. Raises `TailtapError`."""

    def close(self) -> Closed:
        """End all roles, newest first, and put the machine back as it was.

        What was observed over the whole life of the site. May be called
        again, and answers the same then. Raises `MachineError` when something could not be undone.
        """


class Station(Protocol):
    """A machine on which roles run."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def environment(self) -> Environment:
        """What a reader needs to know of the machine, for ``run.json``. Raises `TailtapError`."""

    def foresee(self, setup: Setup) -> Foreseen:
        """What keeps the machine from what the setup asks of it; nothing is made.

        Raises `TailtapError` where it cannot be asked.
        """

    def open(self, setup: Setup) -> Site:
        """Make what a measurement needs whatever its roles do. Raises `TailtapError`."""

    def clean(self) -> None:
        """Undo what is left of measurements that failed. Raises `TailtapError`."""


class Told(Record, kw_only=True):
    """An error, as the other end tells it."""

    kind: str
    status: int
    fields: Anything


def told(error: TailtapError) -> Json:
    """What the other end is told of an error."""
    kind = type(error)
    known = {name: vars(error)[name] for name in get_type_hints(kind) if name in vars(error)}
    fields = msgspec.to_builtins(known, str_keys=True)
    return {"kind": kind.__name__, "status": kind.exit_status, "fields": fields}


def error_of(said: Json, name: str) -> TailtapError:
    """The error that the other end, called `name` in messages, tells."""
    try:
        error = parsed(name, said, Told, MachineError)
        known = {kind.__name__: kind for kind in _kinds(TailtapError)}
        kind = known.get(error.kind) or by_status(error.status)
        fields = parsed(name, error.fields, _fields_of(kind), MachineError)
    except MachineError as nonsense:
        return nonsense
    return restored(kind, msgspec.structs.asdict(fields)).at(name)


def by_status(status: object) -> type[TailtapError]:
    """The class of an error of which little but its exit status is known."""
    if status == Bug.exit_status:
        return Bug
    return InputError if status == InputError.exit_status else MachineError


def _fields_of(kind: type[TailtapError]) -> type[Record]:
    """The fields of an error; JSON has lists for tuples."""
    hints = [(name, hint) for name, hint in get_type_hints(kind).items() if name != "exit_status"]
    made = msgspec.defstruct(kind.__name__, hints, bases=(Record,), kw_only=True)
    return cast("type[Record]", made)


def _kinds(kind: type[TailtapError]) -> Iterator[type[TailtapError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)

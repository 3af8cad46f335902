"""A station at the other end of a stream, such as standard input and output of a command there.

The stream has channels (`mux.py`). Those of the kinds ``environment``, ``foresee``, ``site`` and
``role`` carry messages, which are lines of JSON:

- ``environment``: its first message is the answer;
- ``foresee``, opened with ``{"setup"}``: so it is here, and nothing is made;
- ``site``, opened with ``{"setup"}``, is answered when the site is open; ``{"id", "close": true}``
  closes it, and ``{"id", "keep": SECONDS}`` says for how long nothing may be asked.
  ``{"id", "clock": true}`` asks what its clock shows, and ``{"id", "timekeeping": true}`` how that
  is kept. There is one at a time;
- ``role``, opened with ``{"role", "plan"}``, is answered when the role has begun. Then
  ``{"id", "ask": REQUEST, "content"}`` asks it, ``{"id", "files": true}`` asks for the files in its
  folder, and ``{"id", "end": true}`` ends it.

Answers are ``{"id", "answer"}`` or ``{"id", "failed", "status"}``, the first one's id is 0. A role
says ``{"event"}`` whenever something happens. Files are fetched by channels of their own, before
the site is closed: what a role writes is in a folder of the station's.

The station closes its site when the stream ends: a measuring process that dies leaves nothing. One
whose cable was cut does not end the stream; the station waits for it no longer than for its lease.
`serving.py` is its end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec.structs import replace

from tailtap.base.errors import MachineError, TailtapError, shown
from tailtap.base.files import make_folder
from tailtap.records.machine import Environment, Timekeeping
from tailtap.records.record import Record, Texts, Whole, as_json, parsed
from tailtap.remote.connection import Awaited, Connection
from tailtap.remote.local import Process
from tailtap.remote.mux import Channel, ProtocolError, parse
from tailtap.remote.session import (
    ANSWER_SECONDS,
    FAILED,
    NOTHING,
    Closed,
    Foreseen,
    Json,
    RoleEvent,
    RolePlan,
    Setup,
    error_of,
)

CLOSE_SECONDS = 60.0
"""How long a station may take to put its machine back."""
FIRST = 0
"""The id of the answer to what opened a channel."""


class Shown(Record, kw_only=True):
    """What a clock shows."""

    ns: Whole


class Left(Record, kw_only=True):
    """The files that a role left."""

    folder: str
    files: Texts


class StreamStation:
    """A machine that is reached by a command, as ``ssh HOST python3 -m tailtap.measure.roles``."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        """`command` serves roles on its standard input and output; `name` is for messages."""
        self.name = name
        self._command = list(command)
        self._reached: StreamSite | None = None

    def environment(self) -> Environment:
        """What a reader needs to know of the machine there. Raises `TailtapError`.

        The stream is kept for the next site.
        """
        return parsed(self.name, self._asked("environment"), Environment, MachineError)

    def foresee(self, setup: Setup) -> Foreseen:
        return parsed(
            self.name, self._asked("foresee", setup=as_json(setup)), Foreseen, MachineError
        )

    def _asked(self, kind: str, **content: object) -> Json:
        """What it answers where there is no site; the stream is kept."""
        with self._stream() as site:
            _, answer = site.begin_talk(kind, **content)
            self._reached = site
        return answer

    def open(self, setup: Setup) -> StreamSite:
        with self._stream() as site:
            site.open(setup)
        return site

    def clean(self) -> None:
        site, self._reached = self._reached, None
        if site is not None:
            site.close()

    @contextlib.contextmanager
    def _stream(self) -> Iterator[StreamSite]:
        """A stream without a site, which nobody else has. It is closed where something fails."""
        site, self._reached = self._reached, None
        if site is None or site.process.ended:
            site = StreamSite(self._begin())
        try:
            yield site
        except BaseException:
            with contextlib.suppress(TailtapError):
                site.close()
            raise

    def _begin(self) -> Process:
        return Process(self._command, self.name, with_input=True)


class StreamSite:
    """A site at the other end."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.connection = Connection(
            process.fileno(), process.input_fileno(), process.title, process.failure
        )
        self._ids = itertools.count(FIRST + 1)
        self._talk: Talk | None = None
        self._observed = Closed()
        self._silent: str | None = None
        self._closed = False

    def open(self, setup: Setup) -> None:
        self._talk = self.begin_talk("site", setup=as_json(setup))[0]

    def begin(self, role: str, plan: RolePlan) -> StreamSession:
        talk, _ = self.begin_talk("role", role=role, plan=as_json(plan))
        return StreamSession(self, talk, None if plan.folder is None else Path(plan.folder))

    def keep(self, seconds: float) -> None:
        self._ask("keep", seconds)

    def clock(self) -> int:
        return parsed(self.process.title, self._ask("clock"), Shown, MachineError).ns

    def timekeeping(self) -> Timekeeping:
        return parsed(self.process.title, self._ask("timekeeping"), Timekeeping, MachineError)

    def close(self) -> Closed:
        talk, self._talk = self._talk, None
        try:
            if talk is not None and not self.process.ended and self._silent is None:
                said = self.call(talk, CLOSE_SECONDS, close=True)
                self._observed = parsed(self.process.title, said, Closed, MachineError)
        finally:
            if not self._closed:
                self._closed = True
                # It closes its site at the end of its input, whatever it was doing.
                self.connection.close()
                self.process.end_input()
                self.process.wait(CLOSE_SECONDS)
                self.process.close()
        return self._observed

    def _ask(self, what: str, value: float = True) -> Json:
        assert self._talk is not None  # it is open
        return self.call(self._talk, ANSWER_SECONDS, **{what: value})

    def begin_talk(self, kind: str, **content: object) -> tuple[Talk, Json]:
        """Open a channel of messages, and its first answer. Raises `TailtapError`."""
        talk = Talk()
        talk.channel = self.connection.open(kind, talk, **content)
        return talk, self._answer(talk, FIRST, ANSWER_SECONDS)

    def call(self, talk: Talk, seconds: float, **request: object) -> Json:
        """Send a request and wait for its answer, at most `seconds`.

        Raises the `TailtapError` that it failed by, and `MachineError` when no answer comes. Who
        has not answered in time is not asked again.
        """
        number = next(self._ids)
        talk.channel.send(json.dumps({"id": number, **request}).encode() + b"\n")
        return self._answer(talk, number, seconds)

    def events(self, talk: Talk) -> list[RoleEvent]:
        """What has happened to a role since the last call; the end of the stream is a failure."""
        if not self._closed:
            self.connection.look()
        found, talk.events = talk.events, []
        if not found and self.connection.mux.over is not None:
            return [RoleEvent(event=FAILED, reason=self.connection.ending())]
        return [
            event
            if event.reason is None
            else replace(event, reason=f"{self.process.title}: {event.reason}")
            for event in found
        ]

    def _answer(self, talk: Talk, number: int, seconds: float) -> Json:
        if self._silent is not None:
            raise MachineError(self._silent)
        try:
            self.connection.wait(
                lambda: number in talk.answers or talk.result is not None,
                time.monotonic() + seconds,
            )
        except TimeoutError as error:
            self._silent = f"{self.process.title} does not answer within {seconds:g} s"
            raise MachineError(self._silent) from error
        if number not in talk.answers:
            self.connection.answer(talk.result)
            raise MachineError(f"{self.process.title} has closed what it was asked")
        message = talk.answers.pop(number)
        if "failed" in message:
            raise error_of(message["failed"], self.process.title)
        answer: Json = message["answer"]
        return answer


class StreamSession:
    """A role at the other end."""

    def __init__(self, site: StreamSite, talk: Talk, folder: Path | None) -> None:
        """The role that `talk` is with; what it leaves is for `folder`."""
        self._site, self._talk, self._folder = site, talk, folder
        self._closed = False

    def ask(
        self,
        request: str,
        content: Mapping[str, object] = NOTHING,
        /,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Json:
        return self._site.call(self._talk, seconds, ask=request, content=dict(content))

    def fileno(self) -> int:
        return self._site.process.fileno()

    def events(self) -> list[RoleEvent]:
        return self._site.events(self._talk)

    def fetch(self) -> None:
        if self._folder is None:
            return
        said = self._site.call(self._talk, ANSWER_SECONDS, files=True)
        there = parsed(self._site.process.title, said, Left, MachineError)
        for name in there.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise MachineError(f"{self._site.process.title} has a file {name!r} for nobody")
            target = self._folder / path
            make_folder(target.parent, below=self._folder)
            self._site.connection.get(Path(there.folder) / path, target)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if not self._site.process.ended:
                self._site.call(self._talk, CLOSE_SECONDS, end=True)


class Talk(Awaited):
    """A channel of messages, as the measuring process has it."""

    channel: Channel

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[int, Json] = {}
        """By the id of the request; those that nobody has taken yet."""
        self.events: list[RoleEvent] = []
        self._lines = Lines()

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        for message in self._lines.feed(data):
            match message:
                case {"event": dict(event)}:
                    self.events.append(_event(event))
                case {"id": int(number), "answer": dict()} | {
                    "id": int(number),
                    "failed": dict(),
                }:
                    self.answers[number] = message
                case _:
                    raise ProtocolError(f"says what is no message: {shown(message)}")
        channel.grant(len(data), stream)


def _event(content: Json) -> RoleEvent:
    try:
        return msgspec.convert(content, RoleEvent)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"says what is no event: {shown(content)}") from error


class Lines:
    """Finds the messages in bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._received = b""

    def feed(self, data: bytes) -> list[Json]:
        """The messages that are whole now. Raises `ProtocolError` for what is none."""
        *lines, self._received = (self._received + data).split(b"\n")
        return [parse(line) for line in lines]

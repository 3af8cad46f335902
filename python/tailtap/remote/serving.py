"""The far end of a stream to a station: does there what `stream.py` says that can be asked.

Roles are asked one after the other, whatever channels their questions came by: they work on the
same machine. A file is sent between two answers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from tailtap.base.bugs import foreseen
from tailtap.base.errors import InputError, MachineError
from tailtap.records.record import as_json, parsed
from tailtap.remote import agent
from tailtap.remote.loop import Link, Loop
from tailtap.remote.mux import Channel, Handler, Mux
from tailtap.remote.session import Closed, Json, RolePlan, Session, Setup, Site, Station, told
from tailtap.remote.stream import FIRST, Lines

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Folders = Callable[[], AbstractContextManager[Path]]
"""Makes a folder for what the roles of a site write, and removes it."""


LEASE_SECONDS = 180.0
"""How long this end stays without a word from who asks, unless it was asked to `keep`: longer than
any answer takes. A controller whose cable was cut says nothing, and its end is never seen."""


def serve(
    station: Station,
    requests: int,
    answers: int,
    folders: Folders,
    lease_seconds: float = LEASE_SECONDS,
) -> None:
    """Do on `station` what is asked by the descriptor `requests`, until it ends.

    Then close what is open; signals by which this process is ended close it as well, and so does
    the end of the requests while a role works, and of the lease. Afterwards such signals are
    ignored. Raises `MachineError` when what comes is no request.
    """
    loop = Loop()
    stops = _Stops()
    lease = _Lease(requests, lease_seconds)
    serving = _Serving(station, loop, folders, stops, lease)
    mux = Mux(
        {
            "environment": serving.environment,
            "foresee": serving.foresee,
            "site": serving.open,
            "role": serving.begin,
            "get": agent.get,
        }
    )
    Link(loop, mux, requests, answers)
    with contextlib.ExitStack() as stack:
        stack.callback(serving.close_site)
        stack.enter_context(stops)
        lease.watch()
        while mux.over is None:
            loop.step()
    if mux.over:
        raise MachineError(f"who asks {mux.over}")


class _Serving:
    """The site that is open at this end, and the roles in it."""

    def __init__(
        self, station: Station, loop: Loop, folders: Folders, stops: _Stops, lease: _Lease
    ) -> None:
        self._station, self._loop, self._folders, self._stops = station, loop, folders, stops
        self.lease = lease
        self._stack = contextlib.ExitStack()
        self._folder: Path | None = None
        self._numbers = itertools.count()
        self.site: Site | None = None
        self._roles: list[_RoleTalk] = []

    def environment(self, channel: Channel, content: Json) -> Handler:
        _answering(channel, FIRST, lambda: as_json(self._station.environment()))
        return _closed(channel)

    def foresee(self, channel: Channel, content: Json) -> Handler:
        def foreseeing() -> Json:
            return as_json(self._station.foresee(parsed("the setup", content["setup"], Setup)))

        _answering(channel, FIRST, foreseeing)
        return _closed(channel)

    def open(self, channel: Channel, content: Json) -> Handler:
        def opening() -> Json:
            if self.site is not None:
                raise InputError("a station cannot be asked for a second site now")
            self.site = self._station.open(parsed("the setup", content["setup"], Setup))
            return {}

        return _SiteTalk(self) if _answering(channel, FIRST, opening) else _closed(channel)

    def begin(self, channel: Channel, content: Json) -> Handler:
        def beginning() -> Json:
            if self.site is None:
                raise InputError("a station cannot be asked for a role before a site")
            if self._folder is None:
                self._folder = self._stack.enter_context(self._folders())
            folder = self._folder / str(next(self._numbers))
            folder.mkdir()
            plan = parsed("the plan", content["plan"], RolePlan)
            plan.folder = str(folder)
            session = self.site.begin(content["role"], plan)
            self._roles.append(_RoleTalk(self.lease, self._loop, channel, session, folder))
            return {}

        return self._roles[-1] if _answering(channel, FIRST, beginning) else _closed(channel)

    def close_site(self) -> Closed:
        """Close the site and remove its folder; what was observed."""
        site, self.site = self.site, None
        for role in self._roles:
            role.let_go()
        self._roles.clear()
        with self._stops.wait(), self._stack.pop_all():  # with its folder
            self._folder = None
            return Closed() if site is None else site.close()


class _Talk(Handler):
    """A channel of messages: each is answered, and renews the lease."""

    def __init__(self, lease: _Lease) -> None:
        self.lease = lease
        self._lines = Lines()

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        self.lease.renew()
        channel.grant(len(data), stream)
        for message in self._lines.feed(data):
            _answering(channel, message["id"], partial(self.do, message))

    def do(self, message: Json) -> Json:
        """Do what a message asks for. Raises `TailtapError`."""
        raise NotImplementedError


class _SiteTalk(_Talk):
    def __init__(self, serving: _Serving) -> None:
        super().__init__(serving.lease)
        self._serving = serving

    def do(self, message: Json) -> Json:
        match message:
            case {"close": True}:
                return as_json(self._serving.close_site())
            case {"keep": int(seconds) | float(seconds)}:
                self.lease.keep(seconds)
                return {}
            case {"clock": True} if self._serving.site is not None:
                return {"ns": self._serving.site.clock()}
            case {"timekeeping": True} if self._serving.site is not None:
                return as_json(self._serving.site.timekeeping())
        raise _unknown(message)


class _RoleTalk(_Talk):
    def __init__(
        self, lease: _Lease, loop: Loop, channel: Channel, session: Session, folder: Path
    ) -> None:
        super().__init__(lease)
        self._loop, self._channel, self._session, self._folder = loop, channel, session, folder
        self._at_work = True
        loop.watch(session.fileno(), reading=self._tell)

    def do(self, message: Json) -> Json:
        match message:
            case {"ask": str(asked), "content": dict(content)} if self._at_work:
                return self._session.ask(asked, content)
            case {"files": True}:
                found = (path for path in sorted(self._folder.rglob("*")) if path.is_file())
                names = [str(path.relative_to(self._folder)) for path in found]
                return {"folder": str(self._folder), "files": names}
            case {"end": True}:
                self.let_go()
                self._session.close()
                return {}
        raise _unknown(message)

    def let_go(self) -> None:
        """Tell no more events: the role is about to end."""
        if self._at_work:
            self._at_work = False
            self._loop.watch(self._session.fileno())

    def _tell(self) -> None:
        for event in self._session.events():
            _say(self._channel, event=as_json(event))


def _answering(channel: Channel, number: int, answer: Callable[[], Json]) -> bool:
    """Send the answer to request `number`, or why there is none; whether there was one."""
    try:
        content = answer()
    except OSError as error:
        said = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        _say(channel, id=number, failed=told(MachineError(said)))
    except Exception as error:
        # A bug costs one measurement: who asks goes on with the next one.
        _say(channel, id=number, failed=told(foreseen(error)))
    else:
        _say(channel, id=number, answer=content)
        return True
    return False


def _closed(channel: Channel) -> Handler:
    channel.close()
    return Handler()


def _say(channel: Channel, **message: object) -> None:
    channel.send(json.dumps(message).encode() + b"\n")


def _unknown(message: Json) -> InputError:
    return InputError(f"a station cannot be asked for {sorted(message)} now")


class _Stops:
    """The first signal that ends a process raises `SystemExit`; more cannot stop the cleaning.

    Use it as a context: after it these signals are ignored.
    """

    def __init__(self) -> None:
        self._busy = False
        self._waiting: int | None = None

    def __enter__(self) -> None:
        for stop in STOPS:
            signal.signal(stop, self._end)

    def __exit__(self, *_: object) -> None:
        _ignore()

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Let signals wait: half a cleaning would leave the other half."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            if self._waiting is not None:
                self._end(self._waiting, None)

    def _end(self, number: int, frame: object) -> None:
        if self._busy:
            self._waiting = number
            return
        _ignore()
        raise SystemExit(128 + number)


def _ignore() -> None:
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)


class _Lease:
    """Ends this process, as a signal does, when the requests end or nothing is said for too long.

    A role may work for long, so a thread waits. It sleeps until there is something to do; `keep`
    alone wakes it up, and that is asked before packets are measured.
    """

    def __init__(self, requests: int, seconds: float) -> None:
        self._requests, self._seconds = requests, seconds
        self._until = time.monotonic() + seconds
        self._woken, self._waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def renew(self) -> None:
        self._until = max(self._until, time.monotonic() + self._seconds)

    def keep(self, seconds: float) -> None:
        """Stay for so long without a word, and no longer than that."""
        self._until = time.monotonic() + seconds
        os.write(self._waking, b".")

    def watch(self) -> None:
        main = threading.main_thread().ident
        assert main is not None  # it runs
        threading.Thread(
            target=self._wait, args=(main,), name="who asks is gone", daemon=True
        ).start()

    def _wait(self, main: int) -> None:
        ending = select.poll()
        ending.register(self._requests, select.POLLRDHUP)
        ending.register(self._woken, select.POLLIN)
        while (left := self._until - time.monotonic()) > 0:
            found = dict(ending.poll(left * 1000))
            if self._requests in found:
                break
            if self._woken in found:
                os.read(self._woken, 64)
        with contextlib.suppress(ProcessLookupError):
            signal.pthread_kill(main, signal.SIGTERM)

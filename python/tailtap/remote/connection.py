"""The opening end of a stream: asks for channels, and waits for what comes by them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.base.errors import InputError, MachineError
from tailtap.remote import CommandFailed, Completed, NoAnswer
from tailtap.remote.agent import ERR, IN, MISSING, OUT, Incoming, checksum
from tailtap.remote.local import missing
from tailtap.remote.loop import Link, Loop
from tailtap.remote.mux import PIECE, Channel, Handler, Json, Mux, ProtocolError
from tailtap.remote.session import by_status

if TYPE_CHECKING:
    from io import BufferedReader

SILENCE_SECONDS = 60.0
"""How long a file may take without any progress."""


class Connection:
    """A stream to somebody who serves channels. Nothing happens on it but within its methods."""

    def __init__(
        self, reading: int, writing: int, name: str, why: Callable[[], str] | None = None
    ) -> None:
        """The other end, called `name` in messages, is read and written by these descriptors.

        They are not closed here. `why` tells as a sentence why the stream ended without a word.
        """
        self.name = name
        self.loop = Loop()
        self.mux = Mux()
        self._why = why
        self._link = Link(self.loop, self.mux, reading, writing)

    def open(self, kind: str, handler: Handler, /, **content: object) -> Channel:
        """Ask for a channel; its handler is told of what comes while somebody waits."""
        try:
            return self.mux.open(kind, handler, **content)
        except ValueError as error:
            raise InputError(f"{self.name} cannot be asked for that much: {error}") from error

    def wait(self, done: Callable[[], bool], deadline: float) -> None:
        """Return when it is `done`; look at what comes until then.

        Raises `TimeoutError` at `deadline` of the monotonic clock, and `MachineError` when nothing
        more can come.
        """
        while not done():
            self.require()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.loop.step(left)

    def look(self) -> None:
        self.loop.step(0)

    def hello(self, deadline: float) -> None:
        """Wait until the other end is there. Raises as `wait` does."""
        self.wait(lambda: self.mux.greeted, deadline)

    def require(self) -> None:
        """Raises `MachineError` when nothing more can come."""
        if self.mux.over is not None:
            raise MachineError(self.ending())

    def ending(self) -> str:
        """Why nothing more can come, as a sentence."""
        if self.mux.over or self._why is None:
            return f"{self.name} {self.mux.over or 'has ended'}"
        return self._why()

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], stdin: bytes, deadline: float
    ) -> Ran:
        """Run a command there to its end: its status, negative for a signal, and what it said.

        Raises as `wait` does; the command is ended then.
        """
        ran = Ran()
        channel = self.open("command", ran, command=list(command), environment=dict(environment))
        channel.send(stdin, IN)
        channel.end(IN)
        with self._abandoning(channel):
            self.wait(lambda: ran.result is not None, deadline)
        if not isinstance(self.answer(ran.result).get("exit"), int):
            raise MachineError(f"{self.name} does not say how a command ended")
        return ran

    def completed(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stdin: str,
        seconds: float,
        *,
        check: bool,
    ) -> Completed:
        """Run a command as `Host.run` does, for at most `seconds`. Raises as that does."""
        deadline = time.monotonic() + seconds
        try:
            ran = self.run(command, environment, stdin.encode(), deadline)
        except TimeoutError as error:
            raise NoAnswer(command, seconds) from error
        out, err = (bytes(said).decode(errors="replace") for said in (ran.out, ran.err))
        if ran.status == MISSING and not out:
            raise missing(command[0])
        if check and ran.status != 0:
            raise CommandFailed(command, err or f"status {ran.status}")
        return Completed(out, err, ran.status)

    def get(self, source: Path, target: Path) -> None:
        """Copy a file from there to `target`, which is whole or not there.

        Raises `MachineError`, also when nothing comes for `SILENCE_SECONDS`, and `OSError` when it
        cannot be written here.
        """
        file = Incoming(str(target))
        try:
            getting = _Getting(file)
            channel = self.open("get", getting, path=str(source))
            with self._abandoning(channel):
                self._wait_for_progress(getting)
            try:
                file.finish(str(self.answer(getting.result).get("sha256")))
            except OSError as error:
                raise MachineError(f"{source} of {self.name}: {error.strerror}") from error
        finally:
            file.drop()

    def put(self, source: Path, target: Path) -> None:
        """Copy a file of this machine to `target` there, which is whole or not there.

        Raises as `get` does.
        """
        sha256 = checksum(str(source))
        with source.open("rb") as file:
            putting = _Putting(file)
            channel = self.open("put", putting, path=str(target), sha256=sha256)
            putting.roomy(channel, 0)
            with self._abandoning(channel):
                self._wait_for_progress(putting)
        self.answer(putting.result)

    def answer(self, result: Json | None) -> Json:
        """What a channel was closed with. Raises the `TailtapError` that it says."""
        assert result is not None  # it is closed
        if result.get("lost"):
            raise MachineError(self.ending())
        if "error" in result:
            raise by_status(result.get("status"))(str(result["error"]))
        return result

    def close(self) -> None:
        self._link.close()
        self.loop.close()

    @contextlib.contextmanager
    def _abandoning(self, channel: Channel) -> Iterator[None]:
        try:
            yield
        except BaseException:
            channel.abandon()
            self._link.flush()  # nobody may wait here again
            raise

    def _wait_for_progress(self, copying: _Copying) -> None:
        while copying.result is None:
            before = copying.count
            try:
                self.wait(partial(copying.is_beyond, before), time.monotonic() + SILENCE_SECONDS)
            except TimeoutError as error:
                raise MachineError(
                    f"{self.name} says nothing more within {SILENCE_SECONDS:g} s in the middle of "
                    "a file"
                ) from error


class Awaited(Handler):
    """A channel whose end somebody waits for."""

    def __init__(self) -> None:
        self.result: Json | None = None

    def closed(self, channel: Channel, result: Json) -> None:
        self.result = result


class Ran(Awaited):
    """A command that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.err = bytearray(), bytearray()

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        if stream not in (OUT, ERR):
            raise ProtocolError(f"speaks on stream {stream} of a command")
        (self.out if stream == OUT else self.err).extend(data)
        channel.grant(len(data), stream)

    @property
    def status(self) -> int:
        """Its exit status, negative for a signal."""
        assert self.result is not None  # it has ended
        return int(self.result["exit"])


class _Copying(Awaited):
    count = 0

    def is_beyond(self, count: int) -> bool:
        return self.result is not None or self.count != count


class _Getting(_Copying):
    def __init__(self, file: Incoming) -> None:
        super().__init__()
        self._file = file

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        self._file.write(data)
        self.count += len(data)
        channel.grant(len(data), stream)


class _Putting(_Copying):
    def __init__(self, file: BufferedReader) -> None:
        super().__init__()
        self._file = file
        self._over = False

    def roomy(self, channel: Channel, stream: int) -> None:
        while not self._over and (room := channel.room()):
            data = self._file.read(min(room, PIECE))
            self.count += len(data)
            channel.send(data)
            if not data:
                self._over = True
                channel.end()

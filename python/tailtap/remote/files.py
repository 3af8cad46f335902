"""Files for channels, whole or not at all: each is compared with its checksum.

A channel of kind ``get``, opened with ``{"path"}``, sends the bytes of the file on stream 0, and is
closed with ``{"sha256"}`` of what it sent. One of kind ``put``, opened with ``{"path", "sha256"}``,
takes them, and is closed when the file is there under its name. What cannot be done is
``{"error"}``.

`Incoming` writes a file, at both ends.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.remote.mux import PIECE, STATUS, Channel, Handler, Json

if TYPE_CHECKING:
    from hashlib import _Hash

DRAFT = ".tt-part-"
"""What the name of a file begins with that has not come as a whole."""


NO_FILE = "this is no file"


class Incoming:
    """A file that comes in pieces. It has its name when it is whole."""

    def __init__(self, path: str) -> None:
        """Raises `OSError` when it cannot be written."""
        self._target = Path(path)
        if self._target.exists() and not self._target.is_file():
            # It would be replaced: a device is no place for a file.
            raise OSError(0, NO_FILE)
        self._draft = self._target.with_name(DRAFT + os.urandom(8).hex())
        self._hash = _sha256()
        self._descriptor = os.open(
            self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )

    def write(self, data: bytes) -> None:
        """Write the next piece. Raises `OSError`."""
        self._hash.update(data)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def finish(self, sha256: str) -> None:
        """Give it its name. Raises `OSError`, also when it is not what was sent."""
        if self._hash.hexdigest() != sha256:
            raise OSError(0, "its checksum is wrong: it changed meanwhile, or on the way")
        self._draft.rename(self._target)
        os.close(self._descriptor)
        self._descriptor = -1

    def drop(self) -> None:
        """Remove it unless it is finished. May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._draft.unlink()


def checksum(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal digits. Raises `OSError`."""
    found = _sha256()
    descriptor = _open(path)
    try:
        while data := os.read(descriptor, PIECE):
            found.update(data)
    finally:
        os.close(descriptor)
    return found.hexdigest()


def get(channel: Channel, content: Json) -> Handler:
    """Begin to send a file."""
    try:
        return Outgoing(channel, str(content["path"]))
    except OSError as error:
        return _refuse(channel, content, error)


def put(channel: Channel, content: Json) -> Handler:
    """Begin to take a file."""
    try:
        return _Put(str(content["path"]), str(content["sha256"]))
    except OSError as error:
        return _refuse(channel, content, error)


class Outgoing(Handler):
    """A file that is sent as fast as it is taken."""

    def __init__(self, channel: Channel, path: str) -> None:
        """Raises `OSError` when it cannot be read."""
        self._path = path
        self._hash = _sha256()
        self._descriptor = _open(path)
        self.roomy(channel, 0)

    def roomy(self, channel: Channel, stream: int) -> None:
        while self._descriptor >= 0 and (room := channel.room()):
            try:
                data = os.read(self._descriptor, min(room, PIECE))
            except OSError as error:
                self.closed(channel, {})
                channel.close(error=f"{self._path}: {error.strerror}", status=STATUS)
                return
            self._hash.update(data)
            channel.send(data)
            if not data:
                self.closed(channel, {})
                channel.close(sha256=self._hash.hexdigest())

    def closed(self, channel: Channel, result: Json) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Put(Handler):
    def __init__(self, path: str, sha256: str) -> None:
        self._path, self._sha256 = path, sha256
        self._file = Incoming(path)

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            self._fail(channel, error)
        channel.grant(len(data))

    def ended(self, channel: Channel, stream: int) -> None:
        try:
            self._file.finish(self._sha256)
        except OSError as error:
            self._fail(channel, error)
        else:
            channel.close()

    def closed(self, channel: Channel, result: Json) -> None:
        self._file.drop()

    def _fail(self, channel: Channel, error: OSError) -> None:
        self._file.drop()
        channel.close(error=f"{self._path}: {error.strerror}", status=STATUS)


def _refuse(channel: Channel, content: Json, error: OSError) -> Handler:
    channel.close(error=f"{content['path']}: {error.strerror}", status=STATUS)
    return Handler()


def _open(path: str) -> int:
    # A pipe or a device would keep everybody waiting.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, NO_FILE)
    return descriptor


def _sha256() -> _Hash:
    # Here, as an agent is ready sooner without it.
    from hashlib import sha256

    return sha256()

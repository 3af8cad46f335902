"""A site of a web server, fetched file by file with its checksums, and captures beside it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from tailtap.base.errors import InputError
from tailtap.base.files import drafted, make_folder
from tailtap.base.foreign import METADATA_BYTES
from tailtap.records.site import SUMS
from tailtap.show.reproduce.steps import parse_sums

MOST_BYTES = 4_000_000_000
"""Of a whole site; hosts of static pages take 1 GB."""
MOST_FILES = 20_000
"""Of a whole site: a few thousand runs."""
TIMEOUT_S = 30
FIRST_SECONDS, FILE_SECONDS, LEAST_RATE = 60.0, 0.2, 50_000
"""How long a site may take: at first, for each file, and the bytes that come in a second."""
_PIECE = 1 << 20


@contextmanager
def at(place: str, progress: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
    """The folder that a path, a ``file://`` URL, or the URL of a site on a web server names.

    What a web server has is in a folder of its own until the block ends. A file whose checksum is
    wrong is kept as it came: who checks it will say so. Raises `InputError`.
    """
    parts = urlsplit(place)
    if parts.scheme == "file":
        yield _folder(Path(unquote(parts.path)), place)
    elif parts.scheme in ("http", "https"):
        with TemporaryDirectory(prefix="tailtap-site-") as name:
            fetch(place, Path(name), progress)
            yield Path(name)
    else:
        yield _folder(Path(place), place)


def fetch(url: str, folder: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    """Fetch all files that the checksums of a site name into `folder`.

    Raises `InputError` when there is no site, or it is larger than `MOST_BYTES`.
    """
    base = url.removesuffix("index.html").rstrip("/")
    pace = _Pace()
    sums = _get(f"{base}/{SUMS}", METADATA_BYTES, pace)
    try:
        names = parse_sums(sums.decode())
    except ValueError as error:
        raise InputError(f"{base}/{SUMS}: {error}") from error
    if len(names) > MOST_FILES:
        raise InputError(f"the site has {len(names):,} files; {MOST_FILES:,} are the most").at(url)
    with drafted(folder / SUMS, below=folder) as file:
        file.write(sums)
    left = MOST_BYTES
    for number, name in enumerate(names, 1):
        progress(f"fetching {number} of {len(names)}: {name}")
        try:
            left -= _fetch(f"{base}/{quote(name)}", folder / name, folder, left, pace)
        except _Missing:
            continue  # the checksums will tell
        except _Larger as error:
            raise InputError(f"the site has more than {MOST_BYTES / 1e9:g} GB").at(error) from error


def fetch_file(url: str, path: Path, below: Path, size: int) -> None:
    """Fetch what an ``http`` or ``https`` address has, into `path` in the folder `below`.

    A site names it: a file of this machine is not meant. Who calls it holds its checksum against
    what was published. Raises `InputError` when there is none, or it is larger than `size` bytes.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError("only http and https addresses are fetched: give --captures DIR").at(url)
    try:
        _fetch(url, path, below, size, _Pace())
    except _Missing as error:
        raise InputError("there is none").at(url) from error
    except _Larger as error:
        raise InputError("it is larger than what was published").at(url) from error
    except (OSError, ValueError) as error:
        raise InputError(str(error)).at(url) from error


class _Missing(Exception):
    """The server does not have it."""


class _Larger(Exception):
    """It has more bytes than there may be; the text is its address."""


class _Pace:
    """How long it may still take, by what has come so far."""

    def __init__(self) -> None:
        self._began, self.files, self.bytes = time.monotonic(), 0, 0

    @property
    def left(self) -> float:
        """Seconds."""
        allowed = FIRST_SECONDS + self.files * FILE_SECONDS + self.bytes / LEAST_RATE
        return allowed - (time.monotonic() - self._began)


def _fetch(url: str, path: Path, below: Path, most: int, pace: _Pace) -> int:
    make_folder(path.parent, below=below)
    size = 0
    with _opened(url, pace) as answer, drafted(path, below=below) as file:
        while piece := answer.read1(_PIECE):
            size += len(piece)
            pace.bytes += len(piece)
            if size > most:
                raise _Larger(url)
            file.write(piece)
    return size


def _get(url: str, most: int, pace: _Pace) -> bytes:
    try:
        with _opened(url, pace) as answer:
            content: bytes = answer.read(most + 1)
    except _Missing as error:
        raise InputError("there is none: give the address of a site").at(url) from error
    if len(content) > most:
        raise InputError(f"it holds more than {most / 1e6:g} MB").at(url)
    return content


class _SameHost(HTTPRedirectHandler):
    """Goes where a server leads to only if that is the server itself."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        """The request to the new address. Raises `HTTPError`."""
        one, other = urlsplit(req.full_url), urlsplit(newurl)
        secured = (one.scheme, one.port, other.scheme, other.port) == ("http", None, "https", None)
        if one.hostname != other.hostname or (one[:2] != other[:2] and not secured):
            raise HTTPError(newurl, code, f"it leads to another server, {newurl}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _opened(url: str, pace: _Pace) -> Iterator[http.client.HTTPResponse]:
    """The answer of a server, which is hung up on when it is too slow: its head may be, too."""
    held: list[socket.socket] = []
    done, late = Event(), Event()

    class Held:
        def do_open(self, http_class: Any, req: Request, **more: Any) -> Any:
            def made(host: str, **how: Any) -> Any:
                connection = http_class(host, **how)
                create = connection._create_connection

                def created(*args: Any) -> socket.socket:
                    made: socket.socket = create(*args)
                    held.append(made.dup())
                    return made

                connection._create_connection = created
                return connection

            return super().do_open(made, req, **more)  # type: ignore[misc]

    class Http(Held, HTTPHandler): ...

    class Https(Held, HTTPSHandler): ...

    def watch() -> None:
        while not done.wait(max(pace.left, 0.01)):
            if pace.left <= 0:
                late.set()
                for one in held:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    pace.files += 1
    Thread(target=watch, name="tt-pace", daemon=True).start()
    try:
        opener = build_opener(_SameHost, Http, Https)
        asked = Request(url, headers={"User-Agent": "tailtap"})
        with opener.open(asked, timeout=TIMEOUT_S) as answer:
            yield answer
        if late.is_set():
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:
        if getattr(error, "code", None) in (404, 410):
            raise _Missing from error
        slow = "the server is too slow: fetch the site by other means" if late.is_set() else ""
        told = error.reason if isinstance(error, URLError) else error
        raise InputError(slow or str(told) or type(error).__name__).at(url) from error
    finally:
        done.set()
        for one in held:
            one.close()


def _folder(path: Path, place: str) -> Path:
    if not path.is_dir():
        raise InputError("no such folder; give a site, a crate, or result files").at(place)
    return path

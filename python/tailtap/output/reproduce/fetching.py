"""A site of a web server, fetched file by file with its checksums, and captures beside it."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from tailtap.output.reproduce.checksums import SUMS, parse_sums
from tailtap.records.errors import InputError
from tailtap.records.files import drafted, make_folder
from tailtap.records.foreign import METADATA_BYTES, open_file

MOST_BYTES = 4_000_000_000
"""Of a whole site; hosts of static pages take 1 GB."""
TIMEOUT_S = 30
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
    sums = _get(f"{base}/{SUMS}", METADATA_BYTES)
    try:
        names = parse_sums(sums.decode())
    except ValueError as error:
        raise InputError(f"{base}/{SUMS}: {error}") from error
    _keep(folder / SUMS, sums, folder)
    left = MOST_BYTES
    for number, name in enumerate(names, 1):
        progress(f"fetching {number} of {len(names)}: {name}")
        try:
            left -= _fetch(f"{base}/{quote(name)}", folder / name, folder, left)
        except _Missing:
            continue  # the checksums will tell
        except _Larger as error:
            raise InputError(f"the site has more than {MOST_BYTES / 1e9:g} GB").at(error) from error


def fetch_file(url: str, path: Path, below: Path, size: int) -> None:
    """Fetch what an ``http``, ``https`` or ``file`` address has, into `path` in the folder `below`.

    Who calls it holds its checksum against what was published. Raises `InputError` when there is
    none, or it is larger than `size` bytes.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            there = Path(unquote(parts.path))
            with open_file(there, there.parent) as source:
                _copy(source, url, path, below, size)
        elif parts.scheme in ("http", "https"):
            _fetch(url, path, below, size)
        else:
            raise InputError("only http, https and file addresses are fetched").at(url)
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


def _fetch(url: str, path: Path, below: Path, most: int) -> int:
    with _opened(url) as answer:
        return _copy(answer, url, path, below, most)


def _copy(source: IO[bytes], url: str, path: Path, below: Path, most: int) -> int:
    make_folder(path.parent, below=below)
    size = 0
    with drafted(path, below=below) as file:
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > most:
                raise _Larger(url)
            file.write(piece)
    return size


def _get(url: str, most: int) -> bytes:
    try:
        with _opened(url) as answer:
            content: bytes = answer.read(most + 1)
    except _Missing as error:
        raise InputError("there is none: give the address of a site").at(url) from error
    if len(content) > most:
        raise InputError(f"it holds more than {most / 1e6:g} MB").at(url)
    return content


@contextmanager
def _opened(url: str) -> Iterator[http.client.HTTPResponse]:
    try:
        with urlopen(Request(url, headers={"User-Agent": "tailtap"}), timeout=TIMEOUT_S) as answer:
            yield answer
    except URLError as error:
        if getattr(error, "code", None) in (404, 410):
            raise _Missing from error
        raise InputError(str(error.reason)).at(url) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(str(error) or type(error).__name__).at(url) from error


def _keep(path: Path, content: bytes, below: Path) -> None:
    with drafted(path, below=below) as file:
        file.write(content)


def _folder(path: Path, place: str) -> Path:
    if not path.is_dir():
        raise InputError("no such folder; give a site, a crate, or result files").at(place)
    return path

"""A site of a web server, fetched file by file with their checksums."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from tailtap.output.reproduce.checksums import SUMS, parse_sums
from tailtap.records.errors import InputError
from tailtap.records.files import drafted, make_folder
from tailtap.records.foreign import METADATA_BYTES

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


class _Missing(Exception):
    """The server does not have it."""


def _fetch(url: str, path: Path, below: Path, most: int) -> int:
    make_folder(path.parent, below=below)
    size = 0
    with _opened(url) as answer, drafted(path, below=below) as file:
        while piece := answer.read(_PIECE):
            size += len(piece)
            if size > most:
                raise InputError(f"{url}: the site has more than {MOST_BYTES / 1e9:g} GB")
            file.write(piece)
    return size


def _get(url: str, most: int) -> bytes:
    try:
        with _opened(url) as answer:
            content: bytes = answer.read(most + 1)
    except _Missing as error:
        raise InputError(f"{url}: there is none: give the address of a site") from error
    if len(content) > most:
        raise InputError(f"{url}: it holds more than {most / 1e6:g} MB")
    return content


@contextmanager
def _opened(url: str) -> Iterator[http.client.HTTPResponse]:
    try:
        with urlopen(Request(url, headers={"User-Agent": "tailtap"}), timeout=TIMEOUT_S) as answer:
            yield answer
    except URLError as error:
        if getattr(error, "code", None) in (404, 410):
            raise _Missing from error
        raise InputError(f"{url}: {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{url}: {error or type(error).__name__}") from error


def _keep(path: Path, content: bytes, below: Path) -> None:
    with drafted(path, below=below) as file:
        file.write(content)


def _folder(path: Path, place: str) -> Path:
    if not path.is_dir():
        raise InputError(f"{place}: no such folder; give a site, a crate, or result files")
    return path

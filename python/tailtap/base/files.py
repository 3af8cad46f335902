"""Files of ours: they appear whole or not at all and go through no link, and are on the disk.

A folder of results may be from a stranger, or others may write to it. The folder that the user
names is trusted, links included; what is below it is not. No other module creates files.

What is written is in memory first, and a power cut takes it away. A file is on the disk when it was
synchronised, and so is its name when its folder was; fsync(2).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

from tailtap.base.errors import InputError, NotRead, Occupied, OfAnotherKind, ThroughLink
from tailtap.base.foreign import RECORD_BYTES, open_file, parse_json, read_bytes

DRAFT = ".tailtap-"
"""What the names of files begin with that are being written."""
MOST_BYTES = 255
"""NAME_MAX of Linux: bytes of a file's name."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_SURROGATE = "\\ud"
"""How the escape of half a character begins."""


class Folder:
    """A folder that was opened once: what is done in it happens there, whatever its path becomes.

    Files appear under names that nobody could foresee, and get their own by renaming: a link of
    that name is replaced, and what it leads to stays as it is.
    """

    def __init__(self, descriptor: int) -> None:
        """The folder behind an open descriptor; `opened` makes these."""
        self.descriptor = descriptor

    def draft(self, mode: int = 0o666) -> tuple[str, BinaryIO]:
        """A new file to be written, and its name. Raises `OSError`."""
        while True:
            name = f"{DRAFT}{secrets.token_hex(8)}"
            with contextlib.suppress(FileExistsError):
                return name, os.fdopen(os.open(name, _NEW, mode, dir_fd=self.descriptor), "wb")

    def rename(self, name: str, other: str) -> None:
        """Rename a file, in place of one that has the other name. Raises `OSError`."""
        os.replace(name, other, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file or a link, if it is there. Raises `OSError`."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def write_all(self, contents: Mapping[str, Callable[[BinaryIO], object]]) -> None:
        """Write files by their names, all of them or, after an error, none; on the disk then.

        No file takes the place of an older one before all are on the disk. Raises `OSError`.
        """
        drafts: dict[str, str] = {}

        def write(file: BinaryIO, content: Callable[[BinaryIO], object]) -> None:
            with file:
                content(file)
                file.flush()
                _sync(file.fileno())

        try:
            # Side by side: the disk takes about as long for all files as for one.
            with ThreadPoolExecutor() as pool:
                written = []
                for name, content in contents.items():
                    draft, file = self.draft()
                    drafts[draft] = name
                    written.append(pool.submit(write, file, content))
            for outcome in written:
                outcome.result()
            self._replace_all(drafts)
            self.sync()
        finally:
            for draft in drafts:
                with contextlib.suppress(OSError):
                    self.remove(draft)

    def _replace_all(self, drafts: Mapping[str, str]) -> None:
        """Give each draft its name, in this order: all of them or, after an error, none."""
        earlier: dict[str, str] = {}
        done: list[str] = []
        try:
            for name in drafts.values():
                with contextlib.suppress(FileNotFoundError):
                    earlier[name] = self._kept(name)
            try:
                for draft, name in drafts.items():
                    self.rename(draft, name)
                    done.append(name)
            except OSError:
                for name in done:
                    if name in earlier:
                        self.rename(earlier[name], name)
                    else:
                        self.remove(name)
                raise
        finally:
            for kept in earlier.values():
                with contextlib.suppress(OSError):
                    self.remove(kept)

    def sync(self) -> None:
        """Return when the names in the folder are on the disk."""
        _sync(self.descriptor)

    def _kept(self, name: str) -> str:
        """Another name of a file; where its file system has no such thing, that of a copy."""
        other = f"{DRAFT}{secrets.token_hex(8)}"
        here = self.descriptor
        try:
            os.link(name, other, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
            with os.fdopen(source, "rb") as content:
                other, copy = self.draft()
                with copy:
                    shutil.copyfileobj(content, copy)
        return other


@contextlib.contextmanager
def opened(folder: Path, *, below: Path | None = None) -> Iterator[Folder]:
    """A folder to write into. No folder `below` one that the user named may be a link.

    Without `below` the folder itself is the one that was named. Raises `InputError` for a link,
    and `OSError`.
    """
    descriptor = _open_folder(folder, below)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)


def _open_folder(folder: Path, below: Path | None, *, make: bool = False) -> int:
    top = folder if below is None else below
    there = os.open(top, _FOLDER)
    here = top
    try:
        for part in folder.relative_to(top).parts:
            here /= part
            if part == "..":
                raise InputError(f"this leads out of {top}: use another folder").at(here)
            if make:
                _make_one(part, there)
            there, above = _open_part(part, here, there), there
            os.close(above)
    except BaseException:
        os.close(there)
        raise
    return there


def _make_one(name: str, above: int) -> None:
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        return
    _sync(above)


def _open_part(name: str, path: Path, above: int) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except OSError as error:
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                raise ThroughLink().at(path) from error
        raise type(error)(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, content: object, *, below: Path | None = None) -> None:
    """Write `content` to `path`, whole or not at all, and on the disk when this returns."""
    write_text(path, json.dumps(content, indent=2) + "\n", below=below)


def write_text(path: Path, text: str, *, below: Path | None = None, mode: int = 0o666) -> None:
    """Write `text` to `path`, whole or not at all, and on the disk when this returns.

    `below` is that of `opened`; `mode` says who may use the file, less what umask(2) takes. Raises
    `OSError`, and `InputError` for a folder that is a link.
    """
    with opened(path.parent, below=below) as folder:
        with _drafted(folder, path, mode) as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        folder.sync()


@contextlib.contextmanager
def drafted(path: Path, *, below: Path | None = None) -> Iterator[BinaryIO]:
    """A draft of the file `path`, which replaces it when the block ends without an error.

    It can be lost in a power cut. `below` and errors are those of `write_text`.
    """
    with opened(path.parent, below=below) as folder, _drafted(folder, path) as file:
        yield file


@contextlib.contextmanager
def _drafted(folder: Folder, path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    name, file = folder.draft(mode)
    try:
        with file:
            yield file
        try:
            folder.rename(name, path.name)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            folder.remove(name)


@contextlib.contextmanager
def named(path: Path) -> Iterator[BinaryIO]:
    """A file that the user named, to be written: a device or a pipe, or else a draft of a file."""
    if _takes_all(path):
        with path.open("wb") as file:
            yield file
    else:
        with drafted(path) as file:
            yield file


def _takes_all(path: Path) -> bool:
    """Whether what is written goes there as it comes: a device, a pipe, or `/dev/stdout`."""
    if path.is_char_device() or path.is_fifo():
        return True
    return path.parent in (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def copy(
    source: Path,
    target: Path,
    *,
    root: Path | None = None,
    below: Path | None = None,
    link: bool = False,
) -> None:
    """Copy the content of a file that the user named, or that is in the folder `root` or below.

    With `link` the new file is another name of it, where the file system has such. Raises
    `OSError`, and `InputError` for what is no regular file, and as `write_text` does.
    """
    try:
        content = open_file(source, root)
    except ValueError as error:
        raise InputError(str(error)).at(source) from error
    with content:
        if link:
            with contextlib.suppress(OSError), opened(target.parent, below=below) as folder:
                os.link(
                    f"/proc/self/fd/{content.fileno()}", target.name, dst_dir_fd=folder.descriptor
                )
                return
        with drafted(target, below=below) as file:
            shutil.copyfileobj(content, file)


def set_value(path: Path, text: str) -> None:
    """Write a value into a file that is there: of the kernel's (/sys, /proc, control groups).

    Raises `OSError`.
    """
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(file, text.encode("ascii"))
    finally:
        os.close(file)


def drafts_in(folder: Path) -> list[Path]:
    """What a process that was killed while it wrote left in a folder."""
    return sorted(folder.glob(f"{DRAFT}*"))


def remove(path: Path, *, below: Path) -> None:
    """Remove a file or a link, if it is there; `below` and errors are those of `opened`."""
    with opened(path.parent, below=below) as folder:
        folder.remove(path.name)


def remove_tree(path: Path, *, below: Path) -> None:
    """Remove a folder with all in it, or a link; `below` and errors are those of `opened`."""
    with opened(path.parent, below=below) as folder:
        if path.is_symlink():
            folder.remove(path.name)
        elif path.exists():
            shutil.rmtree(path.name, dir_fd=folder.descriptor)


def move(path: Path, target: Path, *, below: Path) -> None:
    """Rename what is at `path`, and into another folder; `below` is that of both."""
    with (
        opened(path.parent, below=below) as source,
        opened(target.parent, below=below) as folder,
    ):
        os.rename(
            path.name, target.name, src_dir_fd=source.descriptor, dst_dir_fd=folder.descriptor
        )
        folder.sync()


def name_again(path: Path, target: Path, *, below: Path) -> None:
    """Give the file at `path` a second name, in another folder; `below` is that of both."""
    with (
        opened(path.parent, below=below) as source,
        opened(target.parent, below=below) as folder,
    ):
        os.link(
            path.name, target.name, follow_symlinks=False,
            src_dir_fd=source.descriptor, dst_dir_fd=folder.descriptor,
        )  # fmt: skip


def make_link(path: Path, target: Path, *, below: Path) -> None:
    """Make a link to `target`; `below` and errors are those of `opened`."""
    with opened(path.parent, below=below) as folder:
        os.symlink(target, path.name, dir_fd=folder.descriptor)


def file_name(text: object, source: str) -> str:
    """What a file says, as the name of a file of ours; `source` names that file and its field.

    Raises `InputError` for what would be somewhere else, hidden, or no name at all.
    """
    if not isinstance(text, str):
        wrong = "this is no text"
    elif not text or "/" in text:
        wrong = "a name has letters, and no slash"
    elif text.startswith("."):
        wrong = "a name does not begin with a dot"
    elif not text.isprintable():
        wrong = "a name has no control characters"
    elif len(text.encode()) > MOST_BYTES:
        wrong = f"a name has {MOST_BYTES} bytes at most"
    else:
        return text
    raise InputError(f"{ascii(text)[:60]} cannot be the name of a file: {wrong}: mend it").at(
        source
    )


def path_within(text: object, source: str) -> Path:
    """What a file says, as a path within the folder that it is about; the rest is `file_name`'s."""
    if not isinstance(text, str) or not text:
        return Path(file_name(text, source))
    return Path(*(file_name(part, source) for part in text.split("/")))


def require_new(paths: Iterable[Path]) -> None:
    """Raise `Occupied` when one of these files of a measurement is there and holds something.

    Devices and pipes are no files.
    """
    for path in paths:
        if path.is_file() and path.stat().st_size:
            what = "this is there, and may be nowhere else"
            raise Occupied(what, place=str(path), remedy="remove it")


def make_folder(path: Path, *, below: Path | None = None) -> None:
    """Make a folder and those around it where they are missing, on the disk when this returns.

    `below` and errors are those of `opened`.
    """
    if below is not None:
        make_folder(below)
        os.close(_open_folder(path, below, make=True))
    elif not path.is_dir():
        make_folder(path.absolute().parent)
        path.mkdir(exist_ok=True)
        sync(path.absolute().parent)


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, or take that right from all others.

    Raises `OSError`; `PermissionError` for one that is somebody else's, or a link.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        if folder.is_symlink():
            raise PermissionError(errno.EPERM, "it is a link, not a folder") from error
        raise
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user")
        os.fchmod(opened, 0o700)
    finally:
        os.close(opened)


def sync(path: Path) -> None:
    """Return when the file or the names in the folder `path` are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        _sync(file)
    finally:
        os.close(file)


def _sync(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system has nothing to synchronise
            raise


def sync_tree(folder: Path) -> None:
    """Return when `folder` is on the disk with all files and folders in it, and its own name."""
    for top, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(top, name)
            if path.is_file() and not path.is_symlink():  # a socket cannot be opened
                sync(path)
        sync(Path(top))
    sync(folder.absolute().parent)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of ours. Raises `InputError` naming the file."""
    try:
        text = read_bytes(path, path.parent.resolve(), RECORD_BYTES).decode()
        content = parse_json(text)
        if _SURROGATE in text.lower():  # half a character, which no file can have
            json.dumps(content, ensure_ascii=False).encode()
    except OSError as error:
        raise NotRead(error).at(path) from error
    except (ValueError, RecursionError) as error:
        raise OfAnotherKind("JSON file", error).at(path) from error
    if not isinstance(content, dict):
        raise OfAnotherKind("file of tailtap", "it holds no JSON object").at(path)
    return cast("dict[str, Any]", content)


def slugify(text: str) -> str:
    """`text` as part of a file's name: only ``a-z0-9.-``; ``10 kpkt/s`` becomes ``10kpkt-s``."""
    joined = re.sub(r"(?<=\d)\s+(?=[a-z])", "", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", joined).strip("-.")


def read_text(path: Path) -> str | None:
    """The content of a small file without the newline; None when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None

"""An experiment as a folder that others can read, check and run again.

`contents.py` says which files are published and lets `redaction.py` replace what identifies people
and machines. Everything else of the site is made of what was written then: the report, figures and
their numbers (`figures.py`), tables, pages (`pages.py`), and the crate (`crate.py`). So nothing
that was replaced can come back by another way.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tailtap.analysis.runs.folder import locked
from tailtap.base.errors import InputError, Occupied, PackageMissing, WrongValue
from tailtap.base.files import DRAFT, drafts_in, make_folder, move, remove_tree
from tailtap.base.writing import writing
from tailtap.records.record import read
from tailtap.records.site import SITE, PublishRecord, RedactedKind, SiteRecord
from tailtap.show.publish.contents import Contents
from tailtap.show.publish.crate import Author, parse_author, parse_licence, require_library
from tailtap.show.publish.site import Building, build

__all__ = ["Author", "Options", "parse_author", "parse_licence", "publish", "where_captures_are"]


@dataclass(frozen=True)
class Options:
    """What a user decides."""

    allowed: Sequence[RedactedKind] = ()
    anonymous: bool = False
    hidden: Sequence[str] = ()
    """Texts that identify somebody, besides what is found."""
    embed: bool = False
    """Whether the files of measurements are in the site."""
    url: str | None = None
    """Where they are, if somebody published them: the address of the folder that they are in."""
    licence: str | None = None
    authors: Sequence[Author] = field(default=())


def where_captures_are(text: str) -> tuple[bool, str | None]:
    """Whether captures are in the site (``embed``), and else their address (``refer=URL``), if any.

    Raises `InputError`.
    """
    word, equals, url = text.partition("=")
    if text == "embed":
        return True, None
    if word != "refer" or (equals and not url.startswith(("https://", "http://"))):
        raise WrongValue(
            "--captures",
            text,
            "write embed, refer, or refer=URL with an address "
            "such as https://zenodo.org/records/1/files",
        )
    return False, url or None


def publish(
    folder: Path,
    out: Path | None = None,
    options: Options | None = None,
    *,
    check: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> PublishRecord:
    """Make the site of the experiment in `folder` at `out` (default: `folder`/site).

    It appears whole or not at all, in place of an earlier site. With `check` nothing is left on the
    disk, and only what would be copied is looked at: the rest is made of that. Raises `InputError`
    for what is no experiment or has no result, `Occupied` where there is something else than a
    site, `PackageMissing` before anything is read, `MachineError` where it cannot be written.
    """
    chosen = options or Options()
    if chosen.anonymous and chosen.authors:
        raise InputError("--anonymous leaves authors out: leave out --author")
    if (folder / "run.json").is_file():
        raise InputError("this is a run: give the folder of its experiment").at(folder)
    target = out or folder / "site"
    try:
        require_library()
    except PackageMissing as missing:
        if not check:
            raise
        progress(f"nothing can be published yet: {missing}")
    if not check:
        _refuse_others(target)
    with _draft(target, check=check) as site:
        building = Building(Contents(folder), site, chosen, progress)
        record = build(building, whole=not check)
        files = sorted(path for path in site.rglob("*") if path.is_file())
        names = [path.relative_to(site).as_posix() for path in files]
        size = sum(path.stat().st_size for path in files)
        if not check:
            _place(site, target)
    return PublishRecord(
        folder=None if check else str(target), bytes=size, files=names, site=record
    )


def _refuse_others(target: Path) -> None:
    """Raise `Occupied` for a folder with something in it that is no site of ours."""
    if not target.is_symlink() and not target.exists():
        return
    if target.is_symlink() or not target.is_dir():
        raise Occupied("this is there, and no folder", place=str(target))
    if not any(target.iterdir()):
        return
    try:
        read(target / SITE, SiteRecord)
    except InputError as error:
        raise Occupied(
            "this folder has something in it, and is no site", place=str(target)
        ) from error


@contextmanager
def _draft(target: Path, *, check: bool) -> Iterator[Path]:
    """A folder to build the site in: beside its place, so that it can be renamed."""
    if check:
        with TemporaryDirectory() as folder:
            yield Path(folder)
        return
    parent = target.absolute().parent
    draft = parent / f"{DRAFT}{secrets.token_hex(8)}"
    with writing(target, doing="write the site"):
        _sweep(parent)
        make_folder(draft)
        try:
            with locked(draft):
                yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what was built by a process that was killed: nobody has it locked."""
    for draft in drafts_in(parent):
        if draft.is_dir() and not draft.is_symlink() and draft.stat().st_uid == os.geteuid():
            with contextlib.suppress(InputError), locked(draft):
                remove_tree(draft, below=parent)


def _place(site: Path, target: Path) -> None:
    """Give the finished site its place; an earlier one is removed when it has it."""
    parent = target.absolute().parent
    place = parent / target.name
    if not place.exists():
        move(site, place, below=parent)
        return
    earlier = parent / f"{DRAFT}{secrets.token_hex(8)}"
    move(place, earlier, below=parent)
    try:
        move(site, place, below=parent)
    except OSError:
        move(earlier, place, below=parent)
        raise
    remove_tree(earlier, below=parent)

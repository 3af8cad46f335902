"""Who typed a command under sudo: what only reads and computes runs as that user, and results are
that user's.

sudo(8) says who it was in SUDO_UID and SUDO_GID. It is root that sets them: whoever is root already
gains nothing by setting them to something else.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Caller:
    """A user and its group."""

    uid: int
    gid: int

    def may(self, path: Path) -> bool:
        """Whether the caller can use a path: read a file; read and change what is in a folder."""
        mode = os.R_OK | (os.W_OK | os.X_OK if path.is_dir() else 0)
        with self._acting():
            return os.access(path, mode, effective_ids=True)

    def become(self) -> None:
        """From now on this process is the caller's, for good."""
        self._groups()
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        with contextlib.suppress(KeyError):
            # Libraries keep caches there.
            os.environ["HOME"] = pwd.getpwuid(self.uid).pw_dir

    def _groups(self) -> None:
        try:
            name = pwd.getpwuid(self.uid).pw_name
        except KeyError:  # no user of this machine
            os.setgroups([self.gid])
        else:
            os.setgroups(os.getgrouplist(name, self.gid))

    @contextlib.contextmanager
    def _acting(self) -> Iterator[None]:
        groups, gid = os.getgroups(), os.getegid()
        self._groups()
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(gid)
            os.setgroups(groups)


def caller() -> Caller | None:
    """Who typed a command that sudo made root's; None for root itself, and for anybody else."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (uid.isdecimal() and gid.isdecimal()) or int(uid) == 0:
        return None
    return Caller(int(uid), int(gid))


def become_caller(paths: Iterable[Path]) -> None:
    """Run as whoever typed the command from now on, unless it is about files of root alone."""
    who = caller()
    if who is None:
        return
    for path in paths:
        there = _nearest(path)
        if not who.may(there) and there.stat().st_uid == 0:
            return
    who.become()


@contextlib.contextmanager
def results_of_caller(folder: Path) -> Iterator[None]:
    """What the block leaves in `folder` is the caller's, if the caller could have made it.

    That is a folder of the caller's own, or in a folder in which the caller may make one. Links are
    not followed, and files that have another name elsewhere are left alone.
    """
    who = caller()
    folder = folder.absolute()
    if who is None or not who.may(_nearest(folder if folder.exists() else folder.parent)):
        yield
        return
    made = [folder, *folder.parents]
    made = made[: sum(not path.exists() for path in made)]
    try:
        yield
    finally:
        for path in made:
            if path.is_dir() and not path.is_symlink():
                os.chown(path, who.uid, who.gid, follow_symlinks=False)
        give(folder, who)


def give(folder: Path, who: Caller) -> None:
    """Make a folder of root, and what root left below it, the user's."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for _, folders, files, opened in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                if status.st_uid == 0 and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
                    os.chown(name, who.uid, who.gid, dir_fd=opened, follow_symlinks=False)
        os.fchown(opened, who.uid, who.gid)


def _nearest(path: Path) -> Path:
    """The path, or what is there of it."""
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.exists())

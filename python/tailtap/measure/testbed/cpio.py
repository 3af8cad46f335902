"""Initial RAM disks from tar files: the format "newc" of cpio(5), which Linux unpacks as its root.

The same tar file gives the same archive: numbers of inodes count, and the times are the tar file's.
"""

from __future__ import annotations

import stat
import tarfile
from typing import BinaryIO, Protocol

_TYPES = {
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.REGTYPE: stat.S_IFREG,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
}
PIECE = 1 << 20


class Sink(Protocol):
    """Takes bytes in their order."""

    def write(self, data: bytes, /) -> object:
        """Take them."""
        ...


def write_cpio(source: BinaryIO, target: Sink) -> None:
    """Write all entries of the tar file `source` to `target`.

    A hard link becomes a copy of the file. Raises `tarfile.TarError` for what is no tar file.
    """
    with tarfile.open(fileobj=source, mode="r:") as content:
        for inode, entry in enumerate(content, 1):
            file = content.extractfile(entry) if entry.isreg() or entry.islnk() else None
            size = 0
            data = b""
            if file is not None:
                size = content._find_link_target(entry).size if entry.islnk() else entry.size  # type: ignore[attr-defined]
            elif entry.issym():
                data = entry.linkname.encode()
                size = len(data)
            kind = stat.S_IFREG if entry.islnk() else _TYPES[entry.type]
            _head(target, entry, inode, kind | entry.mode, size)
            if file is not None:
                while piece := file.read(PIECE):
                    target.write(piece)
            else:
                target.write(data)
            target.write(bytes(-size % 4))
        _trailer(target)


def _head(target: Sink, entry: tarfile.TarInfo, inode: int, mode: int, size: int) -> None:
    name = (entry.name.removeprefix("./") or ".").encode() + b"\0"
    links = 2 if entry.isdir() else 1
    major, minor = (entry.devmajor, entry.devminor) if entry.isdev() else (0, 0)
    numbers = (inode, mode, entry.uid, entry.gid, links, int(entry.mtime), size, 0, 0,
               major, minor, len(name), 0)  # fmt: skip
    _named(target, numbers, name)


def _trailer(target: Sink) -> None:
    name = b"TRAILER!!!\0"
    _named(target, (0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, len(name), 0), name)


def _named(target: Sink, numbers: tuple[int, ...], name: bytes) -> None:
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
    target.write(head + bytes(-len(head) % 4))

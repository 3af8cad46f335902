"""Writes that fail: `tailtap` on a disk that gives an error at the n-th thing written to a folder.

`failing/failing.c` is compiled here and preloaded into a process that has loaded the program. Each
command is a fork of it, which takes a tenth of the time that the program takes to start.

Run as a program, this file is that process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zygote import load

SOURCE = Path(__file__).parent / "failing" / "failing.c"
REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk fails: see dmesg",
}
"""What a message says that helps against an error."""
STAYING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors that all later writes give, too."""


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    error: str
    writes: int
    """How often it wrote to the folder, those that failed included."""


class Server:
    """The process that has loaded the program."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process, self._scratch = process, scratch

    def run(self, folder: Path, *command: str | Path, at: int = 0, error: int = 0) -> Ended:
        """Run `tailtap` with a command; write `at` to `folder` gives the error, 0 for none."""
        asked = {
            "folder": str(folder.resolve()),
            "command": [str(word) for word in command],
            "at": at,
            "error": error,
            "stays": error in STAYING,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        told = json.loads(self._process.stdout.readline())
        texts = [(self._scratch / name).read_text() for name in ("out", "error")]
        return Ended(told["status"], texts[0], texts[1], told["writes"])


@contextlib.contextmanager
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        library = scratch / "failing.so"
        command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o",
                   str(library), "-ldl"]  # fmt: skip
        subprocess.run(command, check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1",
                       "COLUMNS": "200"}  # fmt: skip
        with subprocess.Popen(
            [sys.executable, __file__, str(library), str(scratch)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        ) as process:  # fmt: skip
            try:
                yield Server(process, scratch)
            finally:
                assert process.stdin is not None
                process.stdin.close()


def _serve(library: str, scratch: Path) -> None:
    failing = ctypes.CDLL(library)
    failing.failing_count.restype = ctypes.c_long
    load()
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(asked, failing, scratch)
        _, status = os.waitpid(child, 0)
        writes = int((scratch / "writes").read_text() or 0)
        told = {"status": os.waitstatus_to_exitcode(status), "writes": writes}
        print(json.dumps(told), flush=True)


def _run(asked: dict[str, Any], failing: Any, scratch: Path) -> None:
    import traceback

    from tailtap.cli import main

    for descriptor, name in ((1, "out"), (2, "error")):
        os.dup2(os.open(scratch / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    (scratch / "writes").write_text("")
    sys.argv = ["tailtap", *asked["command"]]
    status = 70
    failing.failing_arm(
        asked["folder"].encode(), ctypes.c_long(asked["at"]), asked["error"], asked["stays"]
    )
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        count = failing.failing_count()
        failing.failing_arm(b"", ctypes.c_long(0), 0, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        (scratch / "writes").write_text(str(count))
        os._exit(status)


def chosen(writes: int, most: int) -> Sequence[int]:
    """At most so many of all writes, from the first to the last, evenly spread."""
    if writes <= most:
        return range(1, writes + 1)
    return sorted({1 + place * (writes - 1) // (most - 1) for place in range(most)})


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))

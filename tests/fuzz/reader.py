"""A reader of files that strangers made, the commands that a person types, and what must hold.

Whatever the files hold: no bug of ours, an answer within `SECONDS` of CPU time, hardly more memory
than the program has before it, and no file but where it was asked for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

from program import TAILTAP
from zygote import Ended, Program, zygote

from tailtap.base.errors import Bug
from tests.fuzz.mutations import mutated

SECONDS = 5
"""Of CPU time, which a busy machine does not take from a command."""
PATIENCE_SECONDS = 60
"""How long one may wait for something."""
MORE_BYTES = 512 << 20
"""What a command may have resident beyond what it starts with."""
MORE_ADDRESSES = 3 << 30
"""Where it is stopped: libraries reserve addresses for threads that they do not use."""
STAYS = 500
"""How many cases a process tries, as what each leaves behind adds up."""
NO_MEMORY = "this machine has no memory left"
CHECK_PLACES = True
"""Whether a file elsewhere than in the given folders is a failure."""
CHECK_ESCAPES = True
"""Whether an escape character in what is printed is a failure."""
INPUT, OUT, HERE, TEMPORARY = "input", "out", "here", "tmp"


@dataclass(frozen=True)
class Reader:
    """What reads files of strangers, by its commands."""

    name: str
    build: Callable[[Path], object]
    """Writes into a folder what is read, undamaged."""
    files: Sequence[str]
    """Which files in there are damaged, as `Path.glob` has them; each pattern as often."""
    commands: Sequence[Sequence[str]]
    """What is typed, with ``{input}`` and ``{out}`` for folders."""
    beside: Callable[[], str] = str
    """What ``{beside}`` stands for: the address of a program that a command speaks to.

    Raises `MachineError` where there is none.
    """


@dataclass(frozen=True)
class Case:
    """A case of a reader; the same number is always the same case."""

    reader: Reader
    number: int

    def lay(self, base: Path, place: Path) -> list[str]:
        """Write the damaged files to `place`; the command."""
        random = Random(f"{self.reader.name} {self.number}")
        shutil.copytree(base, place / INPUT)
        for name in (OUT, HERE, TEMPORARY):
            (place / name).mkdir()
        patterns = [found for pattern in self.reader.files
                    if (found := sorted((place / INPUT).glob(pattern)))]  # fmt: skip
        for _ in range(random.choice((1, 1, 1, 2))):
            path = random.choice(random.choice(patterns))
            path.write_bytes(
                mutated((base / path.relative_to(place / INPUT)).read_bytes(), path.name, random)
            )
        words = random.choice(self.reader.commands)
        given = {"input": place / INPUT, "out": place / OUT, "beside": self.reader.beside()}
        return [word.format(**given) for word in words]

    def tried(self, base: Path, program: Program | None = None) -> tuple[str, str]:
        """How it ended, and what must not have been; empty where all held.

        By a process of its own, if by no other.
        """
        with tempfile.TemporaryDirectory(prefix="tt-fuzz-") as name:
            place = Path(name)
            return _tried(self.lay(base, place), place, program or zygote())


class Many:
    """Cases that are tried one after the other in one process, which takes less time than a process
    for each. A case that fails there is tried again alone.
    """

    def __init__(self) -> None:
        self._program: Program | None = None
        self._left = 0

    def tried(self, case: Case, base: Path) -> tuple[str, str]:
        """As `Case.tried`."""
        if self._program is None or self._left == 0:
            self._renew()
        self._left -= 1
        outcome, failure = case.tried(base, self._program)
        if failure:
            self._renew()
            outcome, alone = case.tried(base)
            failure = alone or f"only behind other cases: {failure}"
        return outcome, failure

    def _renew(self) -> None:
        if self._program is not None:
            self._program.close()
        self._program, self._left = zygote().staying(), STAYS


def _tried(words: Sequence[str], place: Path, program: Program) -> tuple[str, str]:
    command = " ".join(words).replace(str(place), "")
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as error,
        mock.patch.dict(os.environ, TMPDIR=str(place / TEMPORARY)),
    ):
        try:
            status, more = program.measured(
                [str(TAILTAP), *words], out.fileno(), error.fileno(), PATIENCE_SECONDS,
                folder=place / HERE, more_bytes=MORE_ADDRESSES, cpu_seconds=SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "hung", f"{command}: no answer within {PATIENCE_SECONDS} s"
        except Ended:
            return "failed", f"{command}: it ended the process"
        out.seek(0)
        error.seek(0)
        printed, said = out.read(), error.read().decode(errors="replace")
    outcome = {0: "accepted", 1: "accepted"}.get(status, "refused")
    if status == Bug.exit_status or status < 0 or "Traceback" in said:
        told = [path.read_text() for path in (place / TEMPORARY).glob("tailtap-bug-*")]
        told += [path.read_text() for path in place.rglob("bug.txt")]
        return "failed", f"{command}: status {status}: {said}\n{'; '.join(told)}"
    if more > MORE_BYTES or NO_MEMORY in said:
        return "failed", f"{command}: {more >> 20} MiB more resident: {said}"
    if CHECK_PLACES and (astray := _astray(place)):
        return "failed", f"{command}: wrote {', '.join(astray)}"
    if CHECK_ESCAPES and ("\x1b" in said or b"\x1b" in printed):
        return "failed", f"{command}: an escape character is printed: {said!r}"
    return outcome, ""


def _astray(place: Path) -> list[str]:
    """What was written elsewhere than into the two folders that were given."""
    found = [path for path in place.iterdir() if path.name not in (INPUT, OUT, HERE, TEMPORARY)]
    for name in (HERE, TEMPORARY):
        found += [path for path in (place / name).rglob("*") if path.is_file()]
    return [str(path.relative_to(place)) for path in found]

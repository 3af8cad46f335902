"""Where the work of a command is done: on this machine's cores or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtap.cli.terminal import width_of

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.executors import Executor
    from tailtap.analysis.evaluation.many import Progress


@dataclass(frozen=True)
class Where:
    """What the options say: --scheduler, --chunk, --jobs and --quiet."""

    scheduler: str | None
    chunk: str | None
    jobs: int | None
    quiet: bool

    @property
    def default(self) -> bool:
        """Whether no option says where."""
        return self.scheduler is None and self.chunk is None and self.jobs is None

    def executor(self) -> Executor:
        """What does the work. Raises `InputError` and `MachineError`."""
        from tailtap.base.errors import InputError

        if self.scheduler is None:
            from tailtap.analysis.evaluation.executors import Threads

            return Threads(self.jobs)
        if self.jobs is not None:
            raise InputError("--jobs is for this machine: the workers of --scheduler say their own")
        from tailtap.analysis.evaluation.cluster import Cluster

        return Cluster(self.scheduler)

    def chunk_bytes(self) -> int:
        """How large a piece is. Raises `InputError`."""
        from tailtap.analysis.evaluation.many import CHUNK_BYTES
        from tailtap.base.errors import InputError
        from tailtap.base.units import parse_size

        size = CHUNK_BYTES if self.chunk is None else parse_size(self.chunk)
        if size == 0:
            raise InputError(f"--chunk '{self.chunk}': a piece must hold something")
        return size

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """A bar of the pieces done, on a terminal."""
        import sys

        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = ("pieces", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True, width=width_of(sys.stderr))
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, known: bar.update(task, completed=done, total=known)

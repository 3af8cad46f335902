"""A real Dask scheduler and workers on loopback, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATIENCE_SECONDS = 60.0
"""How long a process may take to come up on a busy machine."""


def wait_until(true: Callable[[], object], what: str) -> None:
    """Return once `true()` is; fail after `PATIENCE_SECONDS`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


@contextmanager
def process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone when the block ends; what it says goes to `log`."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            command,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


class DaskCluster:
    """A scheduler at `address`, without workers to begin with."""

    def __init__(self, folder: Path, address: str, scheduler: subprocess.Popen[bytes]) -> None:
        self.address = address
        self.scheduler = scheduler
        self._folder = folder
        self._started = 0

    @contextmanager
    def worker(
        self, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of one thread that has joined; without a nanny, which would start it again.

        `prefix` is the command that runs Python, by default ours.
        """
        with self._starting(prefix, environment) as (running, log):
            self._wait(running, log)
            yield running

    @contextmanager
    def workers(self, count: int) -> Iterator[None]:
        with ExitStack() as stack:
            all_starting = [stack.enter_context(self._starting((), None)) for _ in range(count)]
            for starting in all_starting:
                self._wait(*starting)
            yield

    @contextmanager
    def _starting(
        self, prefix: Sequence[str], environment: Mapping[str, str] | None
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        self._started += 1
        name = f"worker-{self._started}"
        command = [
            *(prefix or [sys.executable]), "-m", "distributed.cli.dask_worker", self.address,
            "--no-nanny", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0",
            "--host", "127.0.0.1", "--name", name, "--local-directory", str(self._folder / name),
        ]  # fmt: skip
        (self._folder / name).mkdir()
        (self._folder / name).chmod(0o777)  # it may be another user's
        log = self._folder / f"{name}.log"
        with process(command, log, environment) as running:
            yield running, log

    @staticmethod
    def _wait(running: subprocess.Popen[bytes], log: Path) -> None:
        wait_until(
            lambda: "Registered to:" in log.read_text() or running.poll() is not None,
            f"a worker: {log.read_text()}",
        )
        assert running.poll() is None, log.read_text()


@contextmanager
def dask_cluster(workers: int) -> Iterator[DaskCluster]:
    """A scheduler with `workers` workers, all gone when the block ends.

    Bound to loopback, at ports that the system chooses.
    """
    command = [
        sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1",
        "--port", "0", "--no-dashboard",
    ]  # fmt: skip
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-dask-")))
        folder.chmod(0o755)  # a worker may be another user's
        log = folder / "scheduler.log"
        scheduler = stack.enter_context(process(command, log))
        line = "Scheduler at:"
        wait_until(lambda: line in log.read_text(), "the scheduler")
        cluster = DaskCluster(folder, log.read_text().partition(line)[2].split()[0], scheduler)
        stack.enter_context(cluster.workers(workers))
        yield cluster

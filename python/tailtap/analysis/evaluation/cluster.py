"""A Dask cluster as an executor; needs the extra `tailtap[cluster]`."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from tailtap.analysis.evaluation.executors import Task, explain
from tailtap.base.errors import MachineError, PackageMissing, WrongValue

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 10.0
"""How long a scheduler and its first worker may take to answer."""
LOOK_SECONDS = 2.0
"""How often to look how many workers there are: they come and go."""
PATIENCE_SECONDS = 60.0
"""How long there may be no worker at all: a queueing system may be starting others."""
RETRIES = 2
"""Further attempts at a task that raised, such as when shared storage fails for a moment. A worker
that dies is another matter: Dask gives its tasks to others, and does again what it had finished."""
TASKS_A_THREAD = 2
"""One under way and one to follow, so that no worker waits for the client."""

T = TypeVar("T")


class SchedulerLate(MachineError):
    """A question to the scheduler took too long; the next one may be answered."""


class Cluster:
    """Workers behind a Dask scheduler; they need tailtap, and the files under the same paths."""

    def __init__(self, address: str) -> None:
        """Connect to the scheduler at `address`, such as ``tcp://10.0.0.1:8786``.

        Raises `MachineError` when none answers or Dask is not installed, `InputError` when this
        is no address.
        """
        self._address = address
        self._client = _connect(address)
        self._threads = 0
        self._looked = self._seen = float("-inf")

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the cluster, which forgets our tasks."""
        self._client.close()

    def prepare(self, paths: Sequence[Path]) -> None:
        """Raise `MachineError` unless every worker has this tailtap and can read `paths`.

        What cannot be read here either is not a matter of workers, and left out.
        """
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            raise self._without_workers() from None
        told: Any = self._ask(lambda: self._client.get_versions(packages=["tailtap"]))
        _check_versions({worker: seen["packages"] for worker, seen in told["workers"].items()})
        wanted = [str(path) for path in paths if os.access(path, os.R_OK)]
        _check_paths(self._ask(lambda: self._client.run(unreadable, wanted, on_error="return")))

    def place(self, path: Path) -> Path:
        """The absolute one: workers have folders of their own to work in."""
        return path.absolute()

    def slots(self) -> int:
        """Enough tasks for all threads of all workers."""
        self._look()
        return TASKS_A_THREAD * max(1, self._threads)

    def submit(self, function: Callable[..., object], *arguments: object) -> Task:
        """Run `function` on a worker."""
        task = self._ask(
            lambda: self._client.submit(function, *arguments, pure=False, retries=RETRIES)
        )
        return cast("Task", task)

    def error(self, task: Task) -> BaseException | None:
        """What an ended task raised. Raises `MachineError` when the scheduler was lost."""
        # Nobody else cancels a task of ours that we still wait for.
        if task.cancelled():
            raise self._lost()
        return self._wait(lambda: task.exception(LOOK_SECONDS))

    def result(self, task: Task) -> Any:
        """What an ended task returned. Raises `MachineError` when the scheduler was lost."""
        return self._wait(lambda: task.result(PATIENCE_SECONDS))

    def check(self) -> None:
        """Raise `MachineError` when the scheduler is lost, or no worker was seen for long."""
        if self._client.status != "running":
            raise self._lost()
        self._look()
        if time.monotonic() - self._seen > PATIENCE_SECONDS:
            raise self._without_workers()

    def explain(self, error: BaseException) -> str:
        """What went wrong on a worker, in one line."""
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            return (
                f"{error.allowed_failures + 1} workers died while they worked on a piece of it: "
                "give them more memory, or make pieces of captures smaller with --chunk"
            )
        return f"a worker of {self._address} failed: {explain(error)}"

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._threads = sum(self._ask(self._client.nthreads).values())
            self._looked = now
            if self._threads or self._seen < 0:
                self._seen = now

    def _wait(self, question: Callable[[], T]) -> T:
        """The answer to a question that times out, asked again for as long as `check` is content.

        A task that ended is not ended any more when the worker that holds its result dies.
        """
        while True:
            try:
                return self._ask(question)
            except SchedulerLate:
                self.check()

    def _ask(self, question: Callable[[], T]) -> T:
        """The answer of the scheduler. Raises `MachineError` when it is lost or late."""
        from distributed.client import ClosedClientError

        try:
            return question()
        except TimeoutError as error:
            raise SchedulerLate(self._connection_lost) from error
        except (OSError, ClosedClientError, CancelledError) as error:
            raise self._lost() from error

    def _lost(self) -> MachineError:
        return MachineError(self._connection_lost)

    @property
    def _connection_lost(self) -> str:
        return (
            f"--scheduler {self._address}: the connection is lost; start the scheduler "
            "and run the command again"
        )

    def _without_workers(self) -> MachineError:
        return MachineError(
            f"it has no workers; start some with `dask worker {self._address}` where tailtap is "
            "installed"
        ).at(f"--scheduler {self._address}")


def _connect(address: str) -> Client:
    try:
        import distributed
    except ImportError as error:
        there = "distributed, here and where the workers run"
        raise PackageMissing("a cluster needs", "distributed", there) from error
    # What goes wrong becomes an error of ours; Dask's own account of it has many lines.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        _look_for_scheduler(address)
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except OSError as error:  # a TimeoutError is one
        raise MachineError(
            f"no Dask scheduler answers there ({explain(error)}): start one with `dask scheduler`, "
            "which says its address"
        ).at(f"--scheduler {address}") from error
    except (ValueError, OverflowError, ImportError) as error:
        raise WrongValue(
            "--scheduler",
            address,
            f"this is no address ({explain(error)}): write "
            "tcp://HOST:PORT, as the scheduler says when it starts",
        ) from error


def _look_for_scheduler(address: str) -> None:
    """Raise `OSError` unless a scheduler is at `address`, `ValueError` when that is no address.

    A client would wait for ever for the answer of another service, such as Dask's own dashboard,
    and does not go away quietly when it was given something that is no address.
    """
    from distributed.comm.addressing import get_address_host_port, parse_address

    where = get_address_host_port(address)
    if parse_address(address)[0] == "tcp":
        with socket.create_connection(where, timeout=CONNECT_SECONDS) as line:
            # A scheduler speaks first.
            if not line.recv(1):
                raise ConnectionError("it hangs up")


def unreadable(paths: Sequence[str]) -> list[str]:
    """Those of `paths` that this process cannot read; runs on workers."""
    return [path for path in paths if not os.access(path, os.R_OK)]


def _check_versions(workers: Mapping[str, Mapping[str, str | None]]) -> None:
    ours = version("tailtap")
    for worker, packages in sorted(workers.items()):
        theirs = packages.get("tailtap")
        if theirs != ours:
            has = "has no tailtap" if theirs is None else f"has tailtap {theirs}"
            raise MachineError(
                f"the worker {worker} {has}, and here it is {ours}: install the same version "
                "where the workers run"
            )


def _check_paths(workers: Mapping[str, Any]) -> None:
    for worker, missing in sorted(workers.items()):
        if isinstance(missing, BaseException):
            raise MachineError(f"the worker {worker} cannot work: {explain(missing)}")
        if missing:
            more = f" nor {len(missing) - 1} other files" if len(missing) > 1 else ""
            raise MachineError(
                f"the worker {worker} cannot read {missing[0]}{more}: put the files on storage "
                "that all workers see under the same path"
            )

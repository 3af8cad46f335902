"""Samples of /proc/interrupts and /proc/softirqs while packets are sent: `interrupts: counters`.

Reading these files interrupts no CPU. But it takes the lock of each interrupt for a moment
(show_interrupts() of the kernel), and somebody has to do it: the recorder of "How Low Can You Go?",
section 6.2.1, made a late packet a second. So one thread samples, on a CPU that neither the DuT nor
the generator works on where there is one, and tells how long each sample took and whether it was
late. It keeps what it read in memory: the file is written when the traffic is over.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, field_validator

from tailtap.base.schema import Strict, Time, Written
from tailtap.base.units import format_time
from tailtap.base.writing import refused
from tailtap.host.cpu.cpus import away_from
from tailtap.lab.instruments.observing import Quiet, Reading, Scope
from tailtap.records import run as records
from tailtap.records.interrupts import (
    FILE,
    Listing,
    parse_interrupts,
    parse_softirqs,
    write_samples,
)
from tailtap.records.record import Notice
from tailtap.records.run import Facts, SampleTimes

PROC = Path("/proc")
SOURCES = {"interrupts": parse_interrupts, "softirqs": parse_softirqs}
LEAST_PERIOD_NS = 1_000_000
PRIORITY = 1
"""Of a real-time thread, where the machine allows one: beside a generator, which never sleeps and
has a session of its own, any other would come too late. It works for a moment only."""
LATE_SHARE = 0.01
"""A share of late samples above which a run has a warning."""


class Sampling(Strict):
    """How the counters are sampled."""

    period: Time = Field(
        default=100_000_000,
        description="How long from one sample to the next, at least 1 ms.",
        examples=["10 ms"],
    )

    @field_validator("period")
    @classmethod
    def _period_is_kept(cls, period: int) -> int:
        if period < LEAST_PERIOD_NS:
            raise ValueError(
                f"a sample takes too long for {format_time(period)}: write 1 ms or more"
            )
        return period


class Counted(Strict):
    """The counters, with a period."""

    counters: Sampling = Field(
        description="How the counters of interrupts and softirqs are sampled.",
        examples=[{"period": "10 ms"}],
    )


Interrupts: TypeAlias = Annotated[
    Annotated[Literal["none", "counters"], Tag("word")] | Annotated[Counted, Tag("mapping")],
    Discriminator(lambda value: "mapping" if isinstance(value, Mapping | Counted) else "word"),
    Written("`none`, `counters`, or `{counters: …}`"),
]


def sampling_ns(interrupts: str | Counted) -> int | None:
    """The period that a value of `interrupts` asks for; None for none."""
    if isinstance(interrupts, Counted):
        return interrupts.counters.period
    return Sampling().period if interrupts == "counters" else None


def sample_interrupts(scope: Scope) -> Sampler | None:
    """The counters of interrupts and softirqs of this kernel, sampled."""
    if scope.sampling_ns is None or scope.folder is None:
        return None
    return Sampler(scope, scope.sampling_ns, scope.folder)


class Sampler(Quiet):
    """A thread that samples once a period."""

    def __init__(self, scope: Scope, period_ns: int, folder: Path, proc: Path = PROC) -> None:
        """Begin now. `proc` stands in for the kernel's folder in tests. Raises `MachineError`."""
        self._period, self._folder, self._proc = period_ns, folder, proc
        self._cpu = housekeeping(scope)
        self._shared = self._cpu in {*scope.generator_cpus, *scope.dut_cpus}
        self._times: list[int] = []
        self._took: list[int] = []
        self._late = self._missed = 0
        self._listings: list[list[Listing]] = []
        self._error: OSError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> Reading:
        self.close()
        path = self._folder / FILE
        try:
            if self._error is not None:
                raise self._error
            write_samples(path, self._times, self._took, self._listings)
        except OSError as error:
            place = f"interrupts: {error.filename or path}"
            raise refused(place, error).or_elsewhere("set interrupts: none") from error
        return Reading(Facts(interrupts=self._facts()), tuple(self._warnings()), (FILE,))

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                os.sched_setaffinity(0, {self._cpu})  # of this thread
                with contextlib.suppress(PermissionError):
                    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
                files = [
                    (stack.enter_context((self._proc / name).open("rb", buffering=0)), parse)
                    for name, parse in SOURCES.items()
                ]
                due = time.monotonic_ns()
                while True:
                    over = self._over.wait(max(0, due - time.monotonic_ns()) / 1e9)
                    began = time.monotonic_ns()
                    texts = []
                    for file, _ in files:
                        file.seek(0)
                        texts.append(file.readall())
                    ended = time.monotonic_ns()
                    self._times.append(began)
                    self._took.append(ended - began)
                    # Nobody waits for what follows.
                    self._listings.append(
                        [
                            parse(text.decode("ascii", "backslashreplace"))
                            for (_, parse), text in zip(files, texts, strict=True)
                        ]
                    )
                    if over:
                        return
                    self._late += 2 * (began - due) > self._period
                    due += self._period
                    behind = max(0, time.monotonic_ns() - due) // self._period
                    self._missed += behind
                    due += behind * self._period
        except OSError as error:
            self._error = error

    def _facts(self) -> records.Sampling:
        return records.Sampling(
            period_ns=self._period,
            cpu=self._cpu,
            shares_cpu=self._shared,
            samples=len(self._times),
            late=self._late,
            missed=self._missed,
            took_ns=SampleTimes(
                median=round(statistics.median(self._took)),
                max=max(self._took),
                sum=sum(self._took),
            ),
        )

    def _warnings(self) -> Iterator[Notice]:
        wanted = len(self._times) + self._missed
        late = self._late + self._missed
        if late > LATE_SHARE * wanted:
            yield Notice(
                "interrupts-late",
                f"{late} of {wanted} samples of the interrupt counters came half a "
                f"period of {format_time(self._period)} late or not at all "
                f"(limit {100 * LATE_SHARE:g} %)",
            )


def housekeeping(scope: Scope) -> int:
    """A CPU of this process that neither DuT nor generator works on, as far as there is one."""
    return max(away_from(scope.generator_cpus, scope.dut_cpus))

"""Runs that are disturbed on purpose and explained: what the injectors' logs say is the truth."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from injectors import Injection, Injector
from namespaces import TAILTAP
from program import tailtap

DUT, OTHER = 1, 0
"""The core that serves, and that of generator and taps."""
PATIENCE_SECONDS = 60
NEAR_NS = 3_000_000
"""Packets that came so much around an injection belong neither to it nor to the others."""
EXPERIMENT = """
name: explained
dut: {dut}
traffic: {{rate: {rate}, size: 64 B, duration: 3 s, warm_up: 200 ms, cpu: 0, slip_limit: 50 ms}}
trace: {trace}
"""
LINE = "{{line: [a, b], nodes: {{a: {{forwarder: tc-mirred}}, b: {{forwarder: {forwarder}}}}}, "
"""Two nodes that are served by different things, and what comes behind."""
Columns = dict[str, npt.NDArray[Any]]
Injecting = Callable[["subprocess.Popen[str]"], AbstractContextManager[Injector]]
"""Disturbs the machine while a run lasts; it is given the run's process."""


def is_called(detail: str, name: str | None) -> bool:
    """Whether a cause has a detail, or a task a name, whatever its policy and group are."""
    return name is None or detail == name or detail.startswith(f"{name}, ")


@dataclass(frozen=True)
class Explanation:
    """What `tailtap explain` says of a run that was disturbed, and what the injectors say."""

    run: Path
    causes: dict[str, Any]
    late: Columns
    injections: Sequence[Sequence[Injection]]
    """What each injector did."""

    def blamed(self, cause: str, detail: str | None = None) -> npt.NDArray[np.bool_]:
        """Whether each late packet, or its stall, has this cause."""
        found: npt.NDArray[np.bool_] = self.late["blamed"] == cause
        called = [is_called(str(one), detail) for one in self.late["detail"]]
        return np.logical_and(found, called)

    def blames(
        self,
        cause: str,
        detail: str | None = None,
        *,
        least: int = 200,
        chosen: npt.NDArray[np.bool_] | None = None,
        its: Sequence[Injection] | None = None,
    ) -> None:
        """Fails unless 95 in 100 of the packets that came during the injections have this cause,
        and hardly any of those that came near none.

        More than `least` of them came then: during `its`, where not all injections are asked for.
        Those that have the cause are also in `chosen`.
        """
        every = self.injections[0]
        mine, _ = held(self.late, every if its is None else its)
        _, others = held(self.late, every)
        blamed = self.blamed(cause, detail)
        assert mine.sum() > least
        assert (blamed if chosen is None else blamed & chosen)[mine].mean() >= 0.95
        assert blamed[others].sum() <= 0.01 * others.sum()

    def claimed(self, cause: str, detail: str | None = None) -> dict[str, Any]:
        """The only row of this cause, which is claimed to be one."""
        [row] = [row for row in self.rows(cause) if is_called(row["detail"], detail)]
        assert row["claim"] == "cause"
        return row

    def rows(self, cause: str) -> list[dict[str, Any]]:
        """The rows of the table that have this cause."""
        return [row for row in self.causes["causes"] if row["cause"] == cause]


def explained(
    folder: Path,
    forwarder: str,
    injecting: Sequence[Injecting],
    late: str,
    *,
    trace: str = "thin",
    rate: str = "20 kpkt/s",
    napi: str = "softirq",
    dut: str = "{{platform: bare-metal, forwarder: {forwarder}, cpus: [1], napi: {napi}}}",
) -> Explanation:
    """Measure while injectors are at work, and explain the packets above `late`."""
    device = dut.format(forwarder=forwarder, napi=napi)
    text = EXPERIMENT.format(dut=device, trace=trace, rate=rate)
    (folder / "experiment.yaml").write_text(text)
    command = [TAILTAP, "run", "experiment.yaml", "--out", "out", "--quiet"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    injectors: list[Injector] = []
    try:
        said = _disturbed(process, list(injecting), injectors)
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0, said
    [run] = (folder / "out/runs").iterdir()
    causes = explain(run, late)
    table = pq.read_table(run / "causes-late.parquet")
    columns = {
        name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names
    }
    return Explanation(run, causes, columns, [injector.injections for injector in injectors])


def explain(run: Path, late: str) -> dict[str, Any]:
    """What `tailtap explain` says of a run folder."""
    told = tailtap("explain", run, "--late", late, "--json", "--quiet")
    assert told.returncode == 0, told.stderr
    causes: dict[str, Any] = json.loads(told.stdout)
    return causes


def _disturbed(
    process: subprocess.Popen[str], injecting: list[Injecting], injectors: list[Injector]
) -> str:
    """What a run says on standard error, once it has ended; the injectors are added."""
    if not injecting:
        return process.communicate(timeout=PATIENCE_SECONDS)[1]
    with injecting[0](process) as injector:
        injectors.append(injector)
        return _disturbed(process, injecting[1:], injectors)


def forwarder_of(run: subprocess.Popen[str]) -> int:
    """The process of a run that forwards, as soon as it is there."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and run.poll() is None:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if b"forward" in words and run.pid in _ancestors(int(folder.name)):
                    return int(folder.name)
        time.sleep(0.01)
    raise AssertionError("the run has no forwarder")


def _ancestors(pid: int) -> Iterator[int]:
    """A process, its parent and so on, proc_pid_stat(5)."""
    while pid:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def undisturbed(injections: Sequence[Injection]) -> list[Injection]:
    """Those that took at most twice as long as most: of others the hypervisor took a part."""
    usual = np.median([one.end_ns - one.start_ns for one in injections])
    return [one for one in injections if one.end_ns - one.start_ns <= 2 * usual]


def held(
    late: Columns, injections: Iterable[Injection]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which late packets came during an injection, and which came near none.

    What is blamed on steal is neither: the hypervisor takes a part of an injection as well.
    """
    mine = np.zeros(late["ingress_ns"].size, bool)
    near = late["blamed"] == "steal"
    for injection in injections:
        start, end = injection.start_ns, injection.end_ns
        # Most of what it waited is time of the injection.
        waited = np.minimum(late["egress_ns"], end) - np.maximum(late["ingress_ns"], start)
        mine |= 2 * waited >= late["excess_ns"]
        until = queued_until(late, start, end + NEAR_NS)
        near |= (late["egress_ns"] > start - NEAR_NS) & (late["ingress_ns"] < until)
    return mine & (late["blamed"] != "steal"), ~near


def queued_until(late: Columns, start: int, end: int) -> int:
    """When the queue was gone that late packets made from `start` to `end`."""
    for ingress, egress in zip(late["ingress_ns"], late["egress_ns"], strict=True):
        if start < egress and ingress < end:
            end = max(end, int(egress))
    return end

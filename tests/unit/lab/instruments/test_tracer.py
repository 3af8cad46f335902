"""What a trace lacks is said; what of a guest's trace does not work costs no run."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child
from guests import write_guest_run
from traced import arrivals, simulate

from tailtap.base.errors import Findings
from tailtap.lab.instruments.observing import Guest, Scope, Tracing
from tailtap.lab.instruments.tracer import (
    FULL,
    LEAST,
    RECORD_BYTES,
    SHARE,
    SPARE,
    STEERED,
    THIN,
    USED,
    Room,
    foresee,
    room_of,
    spare_cpu,
    warnings_of,
    written,
)
from tailtap.lab.instruments.tracer.guest import FOLDER, Untraced, trace_guest
from tailtap.lab.served import SOFTIRQ, Served, Server, in_guest
from tailtap.measure.clocks import guest_clock_of
from tailtap.records.trace import Taken
from tailtap.remote.local import LocalHost


def trace(**changes: Any) -> Taken:
    """What is said of a trace that lacks nothing."""
    whole: dict[str, Any] = {"lost": {"1": 0, "2": 0}, "kinds": {}, "hooks": {}}
    times = {"started_ns": 1, "ended_ns": 2}
    return Taken(**whole | times | {"cpus": [1, 2], "served": None} | changes)


def test_a_whole_trace_has_no_warnings() -> None:
    """None at all."""
    assert list(warnings_of(trace())) == []


def test_lost_records_are_told_by_cpu() -> None:
    """Those that lost none are not named."""
    [warning] = warnings_of(trace(lost={"1": 7, "2": 0}))
    assert warning.code == "trace-lost"
    assert "7 of CPU 1:" in warning.message
    assert "CPU 2" not in warning.message


def test_what_a_kernel_does_not_tell_is_named_with_its_substitute() -> None:
    """Both, in one sentence."""
    lacking = trace(missing=["nmi_handler: gone"], substitutes=["a: by b"])
    [warning] = warnings_of(lacking)
    assert warning.code == "trace-incomplete"
    assert "lacks nmi_handler: gone; instead: a: by b" in warning.message


def test_a_trace_that_was_written_where_packets_are_sent_says_so() -> None:
    """Not one that was held in memory, nor one that another CPU wrote."""
    nowhere, somewhere = Room(1 << 16, False, None), Room(1 << 16, False, 3)
    [warning] = written(trace(writes=2), nowhere)
    assert warning.code == "trace-written"
    assert "written 2 times while packets were sent: more than 32,768 records" in warning.message
    assert list(written(trace(writes=0), nowhere)) == []
    assert list(written(trace(writes=2), somewhere)) == []


@pytest.mark.parametrize(
    ("lacks", "notes"),
    [(([], []), []), ((["x: none"], []), ["trace: it lacks x: none"])],
)
def test_a_check_notes_what_a_trace_would_lack(
    monkeypatch: pytest.MonkeyPatch, lacks: tuple[list[str], list[str]], notes: list[str]
) -> None:
    """A note, as the rest is recorded."""
    monkeypatch.setattr("tailtap._core.trace_lacks", lambda mode: lacks)
    findings = Findings()
    room = Room(1 << 16, whole=True, cpu=None)
    foresee("thin", room, 1, findings)
    assert findings.notes == [room.sentence(1), *notes]
    assert not findings.problems


GIB = 1 << 30


def test_a_run_is_held_whole_below_the_part_that_is_written() -> None:
    """Half of the room is more than all that the packets make, whatever the mode."""
    modes = [("thin", True, STEERED), ("thin", False, THIN), ("full", True, FULL)]
    for (mode, steered, each), packets in itertools.product(modes, (1, 10_000, 3_000_000)):
        room = room_of(packets, mode, steered=steered, cpus=1, spare=None, memory=64 * GIB)
        assert room.whole
        assert USED * (packets * each + SPARE) <= room.records
        assert room.records < 2 * USED * (packets * each + SPARE)
        assert room.records & (room.records - 1) == 0


def test_rings_take_a_part_of_the_memory_at_most() -> None:
    """All CPUs' together; what does not fit is said."""
    for cpus in (1, 2, 3, 7):
        room = room_of(10**9, "full", steered=False, cpus=cpus, spare=3, memory=8 * GIB)
        assert not room.whole
        assert room.bytes(cpus) <= 8 * GIB // SHARE < 4 * room.bytes(cpus)
    assert room_of(10**9, "thin", steered=True, cpus=1, spare=None, memory=1).records == LEAST


def test_a_check_says_where_the_trace_is_kept() -> None:
    """Whole, written beside the measurement, or in its way."""
    assert "nothing is written before the last packet" in Room(LEAST, True, None).sentence(1)
    assert "meanwhile on CPU 5" in Room(LEAST, False, 5).sentence(2)
    in_the_way = Room(LEAST, False, None).sentence(2)
    assert "on a CPU that sends or serves" in in_the_way
    assert f"{LEAST * RECORD_BYTES * 2 >> 20} MiB" in in_the_way


def test_a_spare_cpu_neither_sends_nor_serves() -> None:
    """None where there is none."""
    assert spare_cpu(range(4), (0, 3)) == 2
    assert spare_cpu((0, 1), (0, 1)) is None


WHOLE = {
    "cpus": [1], "started_ns": 1, "ended_ns": 2, "served": None, "kinds": {"task": 7}, "hooks": {},
    "lost": {"1": 3}, "records": 7,
}  # fmt: skip
LINKS = {
    "guest-ingress": {"seen": 5, "stored": 5, "lost": 0, "file": "x", "warnings": []},
    "guest-egress": {"seen": 4, "stored": 4, "lost": 0, "file": "y", "warnings": []},
}


class Elsewhere(LocalHost):
    """A machine where `tailtap` is this script; its files are in a folder here."""

    def __init__(self, script: str, files: Path) -> None:
        self._script, self._files = script, files

    @property
    def program(self) -> tuple[str, ...]:
        """The script has the words of the command as its arguments."""
        return ("sh", "-c", self._script, "tailtap")

    def get(self, source: Path, target: Path) -> None:
        """Copy a file from there."""
        self.run(["cp", str(self._files / source.relative_to(FOLDER)), str(target)])


def script(trace: str) -> str:
    """Programs that are ready and wait to be interrupted; the tracer does `trace` in the end."""
    done = json.dumps({"event": "done", "links": LINKS})
    return f"""
    trap 'if [ "$1" = tap ]; then echo '"'"'{done}'"'"'; else {trace}; fi; exit' INT
    echo '{{"event": "ready"}}'
    while :; do sleep 0.02; done
    """


def tells() -> str:
    """A tracer that comes to its end."""
    done = json.dumps({"event": "done", "trace": WHOLE})
    return f"echo '\"'\"'{done}'\"'\"'"


@pytest.fixture
def here(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of the run, and that of the files on the other machine."""
    run, there = tmp_path / "run", tmp_path / "there"
    run.mkdir()
    there.mkdir()
    return run, there


def scope(host: LocalHost, folder: Path) -> Scope:
    """A run with a trace of a guest."""
    guest = Guest(host, (1,), ("tt-in", "tt-out"), "moonsniff", SOFTIRQ, 1 << 29, 1.0)
    tracing = Tracing("thin", folder, 1000, [Server(SOFTIRQ)])
    return Scope((1,), (0,), links=None, tracing=tracing, guest=guest)  # type: ignore[arg-type]


def test_a_guest_that_cannot_be_traced_is_one_warning(here: tuple[Path, Path]) -> None:
    """Such as a kernel without types of its own."""
    run, there = here
    fails = "echo 'tailtap: this kernel has no types of its own' >&2; exit 3"
    observing = trace_guest(scope(Elsewhere(fails, there), run))
    assert isinstance(observing, Untraced)
    reading = observing.stop()
    [warning] = reading.warnings
    assert warning.code == "guest-untraced"
    assert "this kernel has no types of its own" in warning.message
    assert (reading.files, reading.found) == ((), {})


def test_a_trace_that_was_cut_off_is_one_warning(here: tuple[Path, Path]) -> None:
    """What there is of it is fetched."""
    run, there = here
    (there / "trace.events").write_text("cut")
    fails = "echo no room >&2; exit 3"
    observing = trace_guest(scope(Elsewhere(script(fails), there), run))
    assert observing is not None
    reading = observing.stop()
    [warning] = reading.warnings
    assert warning.code == "guest-untraced"
    assert "no room" in warning.message
    assert (tuple(reading.files), reading.found) == (("trace-guest.events",), {})


def test_files_that_do_not_come_are_named(here: tuple[Path, Path]) -> None:
    run, there = here
    observing = trace_guest(scope(Elsewhere(script(tells()), there), run))
    assert observing is not None
    assert [one.code for one in observing.stop().warnings] == ["trace-lost", "guest-untraced"]


def test_the_clock_is_a_fact_of_the_run_or_a_warning(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    found = simulate(arrivals(2_000, 1.0, random), [], random)
    folder = write_guest_run(tmp_path / "run", found)
    told, warnings = guest_clock_of(folder, {"records": 7}, {})
    assert told is not None and told["records"] == 7
    assert told["alignment"]["packets"] == {"there": 2000, "back": 2000}
    assert warnings == []
    (folder / "guest-ingress.stamps").write_bytes(b"")
    told, [warning] = guest_clock_of(folder, {"records": 7}, {})
    assert warning.code == "guest-clock"
    assert "guest-ingress.stamps: this is no stamp file" in warning.message
    assert told == {"records": 7}
    assert guest_clock_of(folder, None, {}) == (None, [])


@pytest.fixture
def sleeping() -> Iterator[int]:
    """A process that sleeps."""
    with child(["sleep", "60"]) as process:
        yield process.pid


def test_threads_in_a_guest_are_all_but_the_agents_and_the_kernels(sleeping: int) -> None:
    """Asked on this machine, where there are more of them."""
    host = LocalHost()
    found = in_guest(Served("task", [5]), host)
    assert found.by == "task"
    assert sleeping in found.pids
    assert 1 not in found.pids
    # The kernel's own have no program. A process that has ended has none either.
    assert not any(is_kernels(pid) for pid in found.pids)
    assert sleeping not in in_guest(Served("poll", [5]), host).pids
    assert in_guest(SOFTIRQ, host) is SOFTIRQ


def is_kernels(pid: int) -> bool:
    """Whether a thread is the kernel's: PF_KTHREAD, proc_pid_stat(5)."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return bool(int(fields[6]) & 0x200000)
    return False

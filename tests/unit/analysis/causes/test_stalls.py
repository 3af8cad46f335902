"""Stalls in sentences: what had the core, in which order, and who waited."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from program import TAILTAP
from traced import (
    HOG,
    IPI_FUNCTION,
    OTHER,
    START,
    WORK,
    Block,
    Record,
    arrivals,
    flush,
    hog,
    kworker,
    simulate,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.events import Sender
from tailtap.analysis.causes.joined import BEHIND
from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.stalls import worst_stalls

SECONDS = 0.5
HOG_NS, WORKER_NS, FLUSH_NS = 600_000, 1_790_000, 4_000
KNOBS = (
    Knob("isolated-cpus", ("task",), 1, "boot"),
    Knob("stat-interval", ("kernel-thread",), 1, "runtime"),
)


def asked_for(record: Record) -> Record:
    """The same, asked for by the hog on the other core."""
    return record._replace(id=OTHER | HOG << 10) if record.kind == IPI_FUNCTION else record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with hogs, and with kworkers that begin when the core has flushed its TLB."""
    random = np.random.default_rng(7)
    at = [START + 20_000_000 * number for number in range(1, 22)]
    blocks = [Block(start, WORKER_NS, kworker) for start in at[::2]]
    blocks += [Block(start, HOG_NS, hog) for start in at[1::2]]
    simulated = simulate(arrivals(20_000, SECONDS, random), blocks, random)
    # The worker begins its work when the interrupt is over.
    for place, one in enumerate(simulated.records):
        if one.kind == WORK:
            later = one._replace(start=one.start + FLUSH_NS, dur=one.dur - FLUSH_NS)
            simulated.records[place] = later
    simulated.records += [asked_for(r) for start in at[::2] for r in flush(start, FLUSH_NS)]
    return write_run(tmp_path_factory.mktemp("runs") / "001-stalls", simulated)


@pytest.fixture(scope="module")
def found(folder: Path) -> Explained:
    return explain_runs([folder], late="20 us", knobs=KNOBS)[0]


def test_each_of_the_worst_stalls_has_one_line(found: Explained) -> None:
    lines = worst_stalls(found, 100)
    stalls = found.joined.stall_cpu.size
    assert stalls == 21
    assert len(lines) == stalls
    assert len({line.key for line in lines}) == stalls
    assert worst_stalls(found, 10) == lines[:10]
    late = [float(re.match(r"([\d.]+) (?:ms|us) late", line.words)[1]) for line in lines]  # type: ignore[index]
    assert late[:11] == sorted(late[:11], reverse=True)


def test_a_line_has_the_course_of_its_stall(found: Explained) -> None:
    """In the order of time; with the packets that waited, as the tables count them."""
    joined = found.joined
    for line in worst_stalls(found, 11):
        told = re.fullmatch(
            r"1\.7\d+ ms late: tlb-flush \(flush_tlb_func\) from hog for 3\.\d+ us, then "
            r"kernel-thread \(kworker: vmstat_update\) for 1\.7\d+ ms; (\d+) more packets waited "
            r"for its end; (\d+) packets? behind this stall; candidates: stat-interval",
            line.words,
        )
        assert told, line.words
        packet = int(np.argmin(np.abs(joined.late.packets.ingress_ns - _ingress(found, line.key))))
        mine = joined.stall == joined.stall[packet]
        behind = joined.state == BEHIND
        assert int(told[1]) == (mine & ~behind).sum() - 1
        assert int(told[2]) == (mine & behind).sum()


def test_a_sender_is_a_thread_or_else_a_core() -> None:
    """Where the core idled or nobody told, only the core is known, and in the end not even that."""
    names = {HOG: "hog"}
    told = [Sender.of(word) for word in (OTHER | HOG << 10, 5 | 77 << 10, 5, 0xFFFFFFFF)]
    assert [one and one.words(names) for one in told] == ["hog", "CPU 5", "CPU 5", None]


def _ingress(found: Explained, key: str) -> int:
    """The ingress stamp of the packet of a line."""
    known = {key: ingress for (ingress, _), key in found.keys.items()}
    return known[key] if key in known else int(key)


def test_the_program_prints_the_lines(folder: Path, found: Explained) -> None:
    command = [str(TAILTAP), "explain", str(folder), "--late", "20 us", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = [line.strip() for line in done.stdout.splitlines() if " late: " in line]
    expected = [f"{line.key}: {line.words}" for line in worst_stalls(found, 10)]
    # The program knows more knobs.
    assert [one.partition("; candidates")[0] for one in shown] == [
        one.partition("; candidates")[0] for one in expected
    ]


def test_packets_of_one_queue_without_a_stall_share_a_line(tmp_path: Path) -> None:
    """A burst makes a queue that no stall made: it is no ten lines."""
    random = np.random.default_rng(3)
    steady = arrivals(10_000, SECONDS, random)
    burst = steady[steady.size // 2] + np.arange(100) * 10
    simulated = simulate(np.sort(np.concatenate([steady, burst])), [], random)
    [found] = explain_runs([write_run(tmp_path / "001-burst", simulated)], late="20 us")
    assert found.joined.state.size > 50
    [line] = worst_stalls(found, 10)
    assert line.words.endswith("late: a queue that no stall made")

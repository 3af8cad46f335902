"""The join against a slow one that looks at each nanosecond."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import slow_join
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from slow_join import Stay
from stamps import write_stamps
from traced import Record, as_rows

from tailtap import _core
from tailtap._core import TRACE_KINDS
from tests.simulation.records import packed

UNTIL = 160
ENDED = 150
SOME = st.sampled_from((1, 10))
"""Times are mostly different, or mostly the same."""
TIMES = st.tuples(st.integers(0, 120), SOME).map(lambda one: one[0] // one[1] * one[1])
KINDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)


@st.composite
def nested(draw: st.DrawFn, cpu: int) -> list[Record]:
    """Tasks side by side, softirqs in them, interrupts in these, as a tracer writes them."""
    found: list[Record] = []

    def fill(start: int, end: int, kinds: Sequence[Sequence[int]]) -> None:
        at = start
        while at < end and len(found) < 40:
            begin = draw(st.integers(at, end))
            stop = draw(st.integers(begin, end))
            kind = draw(st.sampled_from(kinds[0]))
            if len(kinds) > 1 and draw(st.booleans()):
                fill(begin, stop, kinds[1:])
            # Of a task that could run, whether it was throttled; of a softirq, how long it waited.
            waits = {
                slow_join.RUNNABLE: st.integers(0, 1),
                slow_join.SOFTIRQ: st.sampled_from((0, 1900, 2020)),
            }
            aux = draw(waits.get(kind, st.just(0)))
            found.append(Record(begin, stop - begin, kind, draw(st.integers(0, 3)), aux, cpu,
                                steal=draw(st.sampled_from((0, 0, 0, 2, 30)))))  # fmt: skip
            at = stop + draw(st.integers(0, 5))
            if draw(st.booleans()):
                return

    fill(0, 120, ((6, 9), (5, 8, 7, 19), (1, 2), (3, 10, 12)))
    return found


@st.composite
def untidy(draw: st.DrawFn, cpu: int) -> list[Record]:
    """Any records in the order in which they ended, several short ones and lost ones among them."""
    found = []
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(KINDS))
        dur = draw(st.integers(0, 40))
        accumulated = draw(st.integers(0, 5)) == 0
        aux = draw(st.integers(0, 3)) | draw(st.sampled_from((0, 1 << 40, 1 << 48)))
        if accumulated:
            aux = draw(st.integers(0, 60)) << 32 | draw(st.integers(0, 6))
        if draw(st.integers(0, 19)) == 0:
            kind, accumulated = slow_join.LOST, False
        if kind == slow_join.SOFTIRQ:
            aux = draw(st.sampled_from((aux, 2010)))
        found.append(Record(draw(TIMES), dur, kind, draw(st.integers(0, 3)), aux, cpu,
                            draw(st.sampled_from((0, 0, 3, 50))), int(accumulated)))  # fmt: skip
    return sorted(found, key=slow_join.end_of)


def read(
    folder: Path,
    records: Sequence[Record],
    cpus: Sequence[int],
    serving: int | None = None,
) -> tuple[_core.Cores, Any]:
    (folder / "trace.events").write_bytes(packed(as_rows(records)))
    write_stamps(folder / "egress.stamps", np.array([1_000_000]), [0])
    leaving = [folder / "egress.stamps"]
    softirqs = None if serving is None else (serving, cpus, (), leaving)
    return _core.Cores.read(folder / "trace.events", list(cpus), ENDED, serving=softirqs)


def by_nanosecond(cores: _core.Cores, cpu: int) -> list[int]:
    return [owner for start, end, owner in cores.between(cpu, 0, UNTIL) for _ in range(start, end)]


CORES = st.lists(st.sampled_from((nested, untidy)), min_size=1, max_size=3).flatmap(
    lambda kinds: st.tuples(*(kind(cpu) for cpu, kind in enumerate(kinds)))
)


@cases(300)
@given(cores=CORES, serving=st.sampled_from((None, 1, 2)))
def test_each_nanosecond_has_the_owner_of_the_reference(
    tmp_path_factory: Any, cores: tuple[list[Record], ...], serving: int | None
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    found, _ = read(folder, [r for core in cores for r in core], range(len(cores)), serving)
    for cpu, records in enumerate(cores):
        names = [found.owners[owner] for owner in by_nanosecond(found, cpu)]
        assert names == slow_join.owners(records, ENDED, UNTIL, serving)


PACKETS = st.lists(st.tuples(TIMES, st.integers(1, 40), st.integers(-1, 3), st.integers(0, 6)),
                   max_size=12).map(
    lambda rows: sorted((Stay(start, start + length, cpu, left)
                         for start, length, cpu, left in rows), key=lambda stay: stay.egress)
)  # fmt: skip


@cases(300)
@given(cores=CORES, usual=PACKETS, late=PACKETS, median=st.integers(0, 20), data=st.data())
def test_parts_states_and_stalls_are_those_of_the_reference(
    tmp_path_factory: Any,
    cores: tuple[list[Record], ...],
    usual: list[Stay],
    late: list[Stay],
    median: int,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    found, _ = read(folder, [r for core in cores for r in core], range(len(cores)))
    row = [0, *(data.draw(st.integers(0, 4)) for _ in found.owners[1:])]
    rows = {cpu: [row[owner] for owner in by_nanosecond(found, cpu)] for cpu in range(len(cores))}
    causes = data.draw(st.lists(st.integers(0, 3), min_size=5, max_size=5))
    joined: Any = found.join(row, causes, columns(usual), columns(late), median)
    expected = slow_join.join(rows, causes, usual, late, median)
    assert {r: ns for r, ns in enumerate(joined["usual_ns"]) if ns} == {
        r: ns for r, ns in expected.usual.items() if ns
    }
    values = {name: np.frombuffer(raw, np.int64).tolist() for name, raw in joined.items()
              if isinstance(raw, bytes)}  # fmt: skip
    parts = list(zip(values["part_row"], values["part_ns"], strict=True))
    offset = values["offset"]
    assert [dict(parts[a:b]) for a, b in pairwise(offset)] == expected.parts
    assert values["state"] == expected.states
    assert values["stall"] == expected.stalls_of
    stalls = zip(*(values[f"stall_{name}"] for name in ("cpu", "start", "end", "row")), strict=True)
    assert [list(stall) for stall in stalls] == expected.stalls
    assert values["stall_worst"] == expected.worst


def columns(packets: Sequence[Stay]) -> Any:
    return tuple(np.array([packet[at] for packet in packets], np.int64) for at in range(4))


ROOT = Path(__file__).parents[4]


def test_the_page_of_files_tells_every_kind() -> None:
    [page] = (ROOT / "docs").rglob("files.md")
    _, _, table = page.read_text(encoding="utf-8").partition("| kind | what | `id` | `aux` |\n")
    rows = re.findall(r"^\| ([0-9]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert [*map(int, rows)] == sorted(TRACE_KINDS.values())


def test_no_number_has_two_names() -> None:
    text = (ROOT / "bpf/trace_kinds.h").read_text(encoding="utf-8")
    rows = re.findall(r'^KIND\(\w+, ([0-9]+), "([a-z-]+)"\)', text, re.MULTILINE)
    listed = {name: int(number) for number, name in rows}
    assert listed == TRACE_KINDS
    assert len(set(listed.values())) == len(listed)

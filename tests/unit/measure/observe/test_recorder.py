"""The flight recorder on pieces that are made, as taps and tracer write them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from growing import START, taps, write_trace

from tailtap.analysis.evaluation.evaluate import evaluate
from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder
from tailtap.base.errors import InputError
from tailtap.base.files import make_folder, write_json
from tailtap.measure.observe import ObservedRun, incidents, recorder
from tailtap.measure.observe.incidents import Maker
from tailtap.measure.observe.prepared import SLUGS
from tailtap.measure.observe.recorder import Recorder
from tailtap.measure.observe.recording import Recording, parse_rate
from tailtap.records.datapath import LinkSoFar, TapsSoFar
from tailtap.records.live import RecordingRecord
from tailtap.records.record import as_json, opened, read
from tailtap.records.run import Parameters, RunRecord
from tailtap.records.trace import TraceRecord
from tests.simulation.growing import SECOND

SECONDS = 14
HELD = {1500: 50_000_000, 1510: 40_000_000, 9_200: 30_000_000}
"""Two late packets near to each other, and a third one eight seconds later."""


class Run(ObservedRun):
    """One of which no machine is asked."""

    @classmethod
    def of(cls, prepared: object, number: int, way: object, folder: RunFolder) -> ObservedRun:
        asked = opened("what was asked for", {"evaluation": {"key": "moonsniff"}}, Parameters)
        record = RunRecord(
            number=number, slug=folder.path.name, repeat=1, variables={}, parameters=asked,
            name="observed", status="running", warnings=[],
        )  # fmt: skip
        return cls(folder, record)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other program is run, and nobody's place is changed."""
    monkeypatch.setattr(recorder, "ObservedRun", Run)
    monkeypatch.setattr(incidents, "settle", lambda cpus: None)
    monkeypatch.setattr(Maker, "_program", lambda self, *words: None)


class Bench:
    """A recorder, and the memory that it looks at."""

    def __init__(self, folder: Path, recording: Recording, *, traced: bool = False) -> None:
        self.out, self.memory = folder / "out", folder / "memory"
        self.aside = self.out / "aside"
        make_folder(self.aside)
        make_folder(self.memory / SLUGS[0])
        looked = SimpleNamespace(key="moonsniff")
        prepared: Any = SimpleNamespace(looked=looked, ways=[("in", "out")], traced=traced)
        out = ExperimentFolder(self.out)
        make_folder(out.runs, below=self.out)
        self.maker = Maker(out, then=recording.then, cpus=(0,))
        self.recorder = Recorder(prepared, recording, out, self.memory, self.aside, self.maker)

    def watch(
        self,
        late: Mapping[int, int],
        lost: Collection[int] = (),
        each: Callable[[int], object] = lambda second: None,
    ) -> RecordingRecord:
        """What is told of 14 s of packets, some of which are late or lost."""
        both = taps(self.memory / SLUGS[0], SECONDS, late=late, lost=lost, every_ns=SECOND)
        for second in range(1, SECONDS + 1):
            now = START + second * SECOND
            for tap in both:
                tap.write(now)
            each(second)
            link = LinkSoFar(
                seen=0, stored=0, lost=second, other=0, sample=1, rate=0, ns=None, share=0
            )
            self.recorder.look(now, TapsSoFar(time_ns=now, links={"x/ingress": link}, share=0))
        self.recorder.look(START + SECONDS * SECOND, complete=True)
        self.maker.finish()
        return self.recorder.store(finished=True)

    @property
    def incidents(self) -> list[Path]:
        return sorted((self.out / "runs").iterdir())


@pytest.fixture
def threads() -> Iterator[None]:
    yield
    assert "tt-incidents" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.usefixtures("threads")
def test_what_was_late_is_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, Recording(above=["20 ms"], then=f"echo $TAILTAP_PACKETS >> {tmp_path}/then")
    )
    most = 0

    def look(second: int) -> None:
        nonlocal most
        most = max(most, len(list((bench.memory / SLUGS[0]).iterdir())))

    told = bench.watch(HELD, (3000,), look)
    assert told == read(bench.out / "recording.json", RecordingRecord)
    [flow] = told.numbers.flows
    assert (flow.ingress, flow.lost, flow.tap_lost) == (14_000, 1, 14)
    kept = told.numbers.incidents
    assert kept is not None and (kept.kept, kept.dropped, kept.late) == (2, 0, 3)
    assert (tmp_path / "then").read_text().split() == ["2", "1"]
    assert most <= 14  # files of two sides: seconds that nobody needs are gone
    first, second = bench.incidents
    assert kept.last == second.name
    for folder, late, latency in ((first, 2, 50_000_000), (second, 1, 30_000_000)):
        found = evaluate(folder / "ingress.stamps", folder / "egress.stamps")
        assert 1000 < found.counts.ingress < 6000 and found.max > latency
        assert sum(packet.latency > 20_000_000 for packet in found.worst()) == late
        assert read(folder / "run.json", RunRecord).status == "done"
    assert list((bench.aside / "runs").iterdir()) == []


def test_an_incident_waits_for_its_trace(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Recording(above=["20 ms"]), traced=True)

    def trace(second: int) -> None:
        begin = START + (second - 1) * SECOND
        write_trace(bench.memory / SLUGS[0], second, [(begin, 5, 6, 1, 0, second)])
        told = TraceRecord(cpus=[1], started_ns=begin, ended_ns=begin + SECOND, served=None,
                           records=1, lost={"1": 1})  # fmt: skip
        write_json(bench.memory / SLUGS[0] / f"trace-{second:05}.json", as_json(told))

    told = bench.watch(HELD, each=trace)
    assert told.numbers.trace_lost == 14
    for folder, until in zip(bench.incidents, (1.5, 9.2), strict=True):
        trace_of = read(folder / "trace.json", TraceRecord)
        assert trace_of.started_ns <= START + (until - 1) * SECOND
        assert trace_of.ended_ns >= START + until * SECOND
        assert (folder / "trace.events").stat().st_size == 8 + 32 * (trace_of.records or 0)


@pytest.mark.parametrize(
    ("recording", "dropped"),
    [
        (Recording(above=["20 ms"], incidents=1), "dropped_limit"),
        (Recording(above=["20 ms"], rate=(1, 60 * SECOND)), "dropped_rate"),
    ],
)
def test_what_a_limit_leaves_out_is_counted(
    tmp_path: Path, recording: Recording, dropped: str
) -> None:
    bench = Bench(tmp_path, recording)
    told = bench.watch(HELD)
    assert len(bench.incidents) == getattr(told, dropped) == 1
    assert told.numbers.incidents is not None and told.numbers.incidents.dropped == 1


def test_losses_and_percentiles_make_incidents_as_well(tmp_path: Path) -> None:
    late = dict.fromkeys(range(9_000, 9_100), 3_000_000)
    bench = Bench(tmp_path, Recording(above=["loss", "p95 > 1 ms over 1 s"]))
    told = bench.watch(late, (2500, 2501))
    assert told.numbers.incidents is not None and told.numbers.incidents.kept == 2


def test_a_full_disk_ends_the_keeping_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*paths: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder, "join_captures", full)
    bench = Bench(tmp_path, Recording(above=["20 ms"]))
    told = bench.watch(HELD)
    assert bench.incidents == [] and told.numbers.flows[0].ingress == 14_000
    assert told.dropped_disk == 2
    assert told.ended is not None and "No space left" in told.ended


def test_an_incident_that_cannot_be_made_costs_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: ObservedRun) -> None:
        if run.record.number == 1:
            raise InputError("this one is damaged")
        evaluate_run(run)

    evaluate_run = Run.evaluate
    monkeypatch.setattr(Run, "evaluate", fail)
    bench = Bench(tmp_path, Recording(above=["20 ms"]))
    told = bench.watch(HELD)
    assert [path.name[:3] for path in bench.incidents] == ["002"]
    assert any("this one is damaged" in note for note in told.numbers.notes)


def test_memory_is_bounded_and_what_was_dropped_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Recording(above=["20 ms"], keep_ns=SECOND, memory=60_000))
    told = bench.watch(HELD)
    assert any("dropped" in note for note in told.numbers.notes)
    assert told.peak_bytes > 0


@pytest.mark.parametrize(
    ("text", "rate"), [("1/min", (1, 60 * SECOND)), ("10 / h", (10, 3600 * SECOND))]
)
def test_rates_are_read(text: str, rate: tuple[int, int]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "1", "0/s", "1/week", "x/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--rate "):
        parse_rate(text)

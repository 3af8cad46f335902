"""A run: its record, and the evaluation and the tail that are read when they are asked for.

Own runs and imported ones are the same type. What nobody says of a run is None, or empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailtap.analysis.evaluation import Evaluation, Histogram, Percentile
from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.evaluation.flows import CODES, HEAVY_LOSS, heavy_loss
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.evaluation.percentiles import DEFAULT
from tailtap.analysis.evaluation.values import lost_at_least
from tailtap.analysis.runs.tail import StoredTail, rate_of, tail_of
from tailtap.base.errors import InputError
from tailtap.records.generator import Generator
from tailtap.records.machine import BUILT_IN, Environment, Traits
from tailtap.records.record import Notice
from tailtap.records.run import (
    DutSettings,
    Energy,
    Parameters,
    PlatformFacts,
    RunRecord,
    TrafficSettings,
    Window,
)
from tailtap.records.taps import Tap

NO_TIMES = "files of others that say how often latencies occurred, not when, give no tail model"
"""Why some imported runs have none."""
UNKNOWN = "unknown"
"""The clock of captures that do not say whose it is."""
INVALID = "invalid: the generator did not send what was asked of it"
#: Published percentiles are fractions in floating point; this near is the same.
_SAME = 1e-6

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def _no_buckets() -> Histogram:
    return Histogram(np.empty(0, np.int64), np.empty(0, np.int64), 1)


@dataclass(frozen=True)
class RunEvaluation:
    """The evaluation of a run as figures and tables need it.

    Latencies are in ns, times in s since the first packet.
    """

    counts: Mapping[str, int]
    packets: int | None
    """How many packets the latencies are of; like other numbers, None where nobody says."""
    offered: int | None
    """Packets that may have been lost: those whose fate is known."""
    maximum: int | None
    """The largest latency."""
    mean: float | None
    percentiles: tuple[Percentile, ...]
    """The percentiles that are listed by default."""
    curve_percentiles: tuple[Percentile, ...]
    """Many percentiles, ascending: the source of the confidence band, and of the curve where the
    distribution is not known."""
    latencies: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    """Distinct latencies, ascending, and how often each occurred; empty where nobody says."""
    latency_counts: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    histogram: Histogram = field(default_factory=_no_buckets)
    worst_latency: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    worst_time: Floats = field(default_factory=lambda: np.empty(0))
    burst_time: Floats = field(default_factory=lambda: np.empty(0))
    """When packets were lost: of those in a row, the time of the first."""
    burst_packets: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    """How many packets were lost in a row."""
    gaps: Mapping[str, Histogram] = field(default_factory=dict)
    rate_start: Mapping[str, Floats] = field(default_factory=dict)
    rate_packets: Mapping[str, Integers] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()
    stored: Evaluation | None = field(default=None, repr=False)
    """The evaluation that this was read from; None where there is less."""
    partial: Partial | None = field(default=None, repr=False)
    """The results of others that it was read from, where these are no whole evaluation."""
    lost_around_events: int = 0
    """How many of the lost packets what was done to the device on purpose made lost."""

    def percentile(self, p: float) -> Percentile | None:
        """The percentile `p` (0 to 1), 1 being the maximum; None where it is not known."""
        if self.stored is not None:
            return self.stored.percentile(p)
        if p == 1:
            top = self.maximum
            return None if top is None else Percentile(1.0, top, None, None, 0, False)
        near = (r for r in self.curve_percentiles if math.isclose(1 - r.p, 1 - p, rel_tol=_SAME))
        return next(near, None)

    def supported(self) -> frozenset[float] | None:
        """The default percentiles with enough packets above them; None where nobody says."""
        if self.packets is None:
            return None
        found = ((p, self.percentile(p)) for p in DEFAULT)
        return frozenset(p for p, row in found if row is not None and row.supported)

    @property
    def distribution(self) -> tuple[Integers, Integers]:
        """Distinct latencies, ascending, and how often each occurred.

        Where others told percentiles alone, packets between two of them count as late as the upper
        one. Raises `InputError` where these do not reach the last packet.
        """
        if self.latencies.size:
            return self.latencies, self.latency_counts
        rows = [(row.value, row.above) for row in self.curve_percentiles]
        if self.maximum is not None:
            rows.append((self.maximum, 0))
        if self.packets is None or not rows or rows[-1][1]:
            raise InputError("its files do not say how late all of its packets were")
        values, above = np.array(rows, np.int64).T
        found, place = np.unique(np.maximum.accumulate(values), return_inverse=True)
        counts = np.zeros(found.size, np.int64)
        np.add.at(counts, place, np.diff(self.packets - above, prepend=0))
        return found[counts > 0], counts[counts > 0]

    @property
    def clock(self) -> str | None:
        """The clock of the stamps, where the evaluation says."""
        return self.stored.inputs.ingress.clock if self.stored else None

    @property
    def within(self) -> Within:
        """What every latency may be off by, to either side: 0 with one fine clock."""
        return self.stored.within if self.stored else Within()

    @property
    def within_ns(self) -> int:
        """That in ns."""
        return self.within.ns

    @property
    def rate(self) -> float | None:
        """Packets a second before the device as the capture says; None where there is none."""
        return (rate_of(self.stored.inputs.ingress) or None) if self.stored else None

    @property
    def loss(self) -> float | None:
        """Lost packets as a share of `offered`; None where either is not known."""
        lost = self.counts.get("lost")
        if lost is None or self.offered is None:
            return None
        return lost / self.offered if self.offered else 0.0

    @property
    def failed(self) -> float | None:
        """Requests that failed as a share of all; None where nobody says."""
        errors = self.counts.get("errors")
        return None if errors is None or not self.offered else errors / self.offered

    @property
    def gone(self) -> float:
        """The share that was lost or failed: how late a good answer would have been nobody knows.

        0 where nobody says.
        """
        return max(self.loss or 0.0, self.failed or 0.0)

    @property
    def lost_heavily(self) -> bool:
        """Whether so much was lost that the tail is not known."""
        least, offered = self.lost_at_least, self.offered
        if least is None or not offered:
            return False
        return (least - self.lost_around_events) / offered > HEAVY_LOSS

    @property
    def lost_at_least(self) -> int | None:
        """How many packets were surely lost; None where nobody says.

        Those that left unmatched, or were not read behind the device, may count as lost.
        """
        if self.stored is None:
            return self.counts.get("lost")
        return lost_at_least(self.stored.counts, self.stored.inputs, self.stored.key)

    @property
    def duration(self) -> float:
        """Seconds from the first packet to the end of the last second with a packet."""
        ends = [float(start.max()) + 1 for start in self.rate_start.values() if start.size]
        return max([*ends, float(self.worst_time.max(initial=0)), 1e-3])

    def shows(self, kind: str) -> bool:
        """Whether there is anything to draw in a figure; they are those of `parts`."""
        parts: Mapping[str, Iterable[Sized]] = {
            "hdr": (self.latencies, self.curve_percentiles),
            "worst": (self.worst_latency,),
            "losses": (self.burst_time,),
            "gaps": [histogram.edges for histogram in self.gaps.values()],
            "rates": self.rate_start.values(),
            "latency": (self.histogram.edges,),
        }
        return any(len(part) for part in parts[kind])


@dataclass(frozen=True)
class Origin:
    """Where the published files of an imported run were found."""

    tree: str
    """The name of the tree's folder."""
    place: str
    """The folder of the files, from the tree's root on."""
    source: str
    """The path of the files, less the end that differs between them."""
    short: str = ""
    """`path` without the parts that all imported runs beside it share."""

    @property
    def path(self) -> str:
        """The folder of the files from the tree's name on."""
        return str(PurePath(self.tree, self.place))


@dataclass(frozen=True)
class Run:
    """One run, measured here or imported."""

    slug: str
    number: int = 1
    repeat: int = 1
    status: str = "done"
    """That of `run.json`; ``damaged`` where there is none to read, ``planned`` before the run."""
    experiment: str = ""
    """The name of the experiment or, when imported, of the result tree."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The varied values, as text."""
    record: RunRecord | None = None
    """Its `run.json`; None of a bare evaluation, and where it is damaged."""
    home: Path = Path()
    """The experiment's folder, or else the folder that it is in."""
    top: Path | None = None
    """The folder that the user named, in which it is; below it nothing is written through links."""
    folder: Path | None = None
    """Where its evaluation is; None where there is none."""
    origin: Origin | None = None
    """Set for a run that others measured."""
    error: str = ""
    """Why its record says that it has no result."""
    notes: tuple[Notice, ...] = ()
    """The warnings that are stored with it, less those of its evaluation."""
    read: Callable[[], RunEvaluation] | None = field(default=None, repr=False, compare=False)
    """Reads its evaluation. Raises `InputError`."""
    alias: str = ""
    """What a user called it: runs of one alias are repeats where nothing was varied."""

    @cached_property
    def evaluation(self) -> RunEvaluation | None:
        """Its evaluation; None when it gave no result."""
        return self._result[0]

    @cached_property
    def failure(self) -> str:
        """Why it gave no result; empty when it did."""
        return self._result[1]

    @cached_property
    def _result(self) -> tuple[RunEvaluation | None, str]:
        if self.error or self.read is None:
            return None, self.error or "it has no result"
        try:
            return self.read(), ""
        except InputError as error:
            return None, str(error)

    @property
    def packets(self) -> int | None:
        """Packets that its latencies are of; like all of these, None where nobody says."""
        return self.evaluation.packets if self.evaluation else None

    @property
    def lost(self) -> int | None:
        """Packets that did not arrive."""
        return self.evaluation.counts.get("lost") if self.evaluation else None

    @property
    def loss(self) -> float | None:
        """Lost packets as a share of those whose fate is known."""
        return self.evaluation.loss if self.evaluation else None

    @property
    def gone(self) -> float:
        """The share of its packets or requests that was lost or failed; 0 where nobody says."""
        return self.evaluation.gone if self.evaluation else 0.0

    @property
    def tool(self) -> str:
        """The program of others that measured it; empty where it is not that of one."""
        return self.variables.get("tool", "") if self.origin else ""

    @property
    def maximum(self) -> int | None:
        """Its largest latency in ns."""
        return self.evaluation.maximum if self.evaluation else None

    def percentile(self, p: float) -> Percentile | None:
        """The percentile `p` (0 to 1) of its latency, 1 being the maximum."""
        return self.evaluation.percentile(p) if self.evaluation else None

    def supported(self) -> frozenset[float] | None:
        """The default percentiles with enough packets above them."""
        return self.evaluation.supported() if self.evaluation else None

    @property
    def clock(self) -> str | None:
        """The clock of its stamps: as its captures say or, where these do not, as its taps."""
        said = self.evaluation.clock if self.evaluation else None
        taps = {tap.clock for tap in self.taps.values()}
        return said if said != UNKNOWN or len(taps) != 1 else taps.pop() or said

    @property
    def within_ns(self) -> int:
        """What every latency may be off by, to either side, as its stamps are of two clocks or come
        in steps."""
        return self.evaluation.within_ns if self.evaluation else 0

    @property
    def excluded(self) -> str:
        """Why it says nothing of the device; empty when it does."""
        if self.evaluation is None:
            return self.failure
        if self.valid is False:
            return INVALID
        if not self.evaluation.curve_percentiles and self.gone < 1:
            return "no percentiles are published of it"
        return ""

    @cached_property
    def warnings(self) -> tuple[Notice, ...]:
        """The warnings of the run, less those of its evaluation."""
        evaluation = self.evaluation
        told = any(note.code in CODES for note in self.notes)
        if told or evaluation is None or evaluation.stored is None:
            return self.notes
        # A bare evaluation has no such warning of its own.
        lost, offered = evaluation.lost_at_least or 0, evaluation.offered or 0
        lost -= evaluation.lost_around_events
        has_dut = self.traits is None or self.traits.has_dut
        patterns = evaluation.stored.loss_patterns
        notice = heavy_loss(lost, offered, patterns, generated=False, has_dut=has_dut)
        return self.notes if notice is None else (*self.notes, notice)

    @property
    def all_warnings(self) -> tuple[Notice, ...]:
        """The warnings of the run and of its evaluation, each once."""
        more = self.evaluation.warnings if self.evaluation else ()
        return tuple(dict.fromkeys((*self.warnings, *more)))

    @property
    def codes(self) -> frozenset[str]:
        """The codes of all its warnings."""
        return frozenset(warning.code for warning in self.all_warnings)

    @property
    def own_folder(self) -> Path | None:
        """Where files about it belong: its run folder, or that of a bare evaluation."""
        return self.folder.parent if self.folder and self.record else self.folder

    @property
    def stored(self) -> Evaluation:
        """The whole evaluation.

        Raises `InputError` when it is missing or damaged, or others left less.
        """
        shown = self.evaluation
        if shown is None:
            raise InputError(self.failure)
        if shown.stored is None:
            has = shown.partial.has if shown.partial else "what is known"
            raise InputError(
                f"this needs exceedances.parquet, which an import of {has} does not have: "
                "import the captures"
            ).at(self.slug)
        return shown.stored

    @cached_property
    def tail(self) -> StoredTail:
        """Its largest latencies. Raises `InputError` where the evaluation has not kept them."""
        return tail_of(self.stored, self.folder, self.slug)

    @cached_property
    def tables(self) -> Mapping[str, pa.Table]:
        """The tables of its evaluation, by their names. Raises `InputError` where it has none."""
        partial = self.evaluation.partial if self.evaluation else None
        return self.stored.to_arrow() if partial is None else partial.tables

    @property
    def root(self) -> str:
        """Where it is from: runs of different origins are never repeats of each other."""
        if self.origin:
            return f"{self.alias}/{self.origin.path}" if self.alias else self.origin.path
        return self.alias or str(self.home.resolve())

    @property
    def parameters(self) -> Parameters:
        """What was asked for, as far as it is the same for all kinds."""
        return self.record.parameters.known if self.record else Parameters()

    @property
    def dut(self) -> DutSettings:
        """What was asked of the device."""
        dut = self.parameters.dut
        return dut.known if dut else DutSettings()

    @property
    def device_cpus(self) -> tuple[int, ...]:
        """The CPUs that the device was given or, observed, those on which it was seen at work."""
        observed = self.record.observed if self.record else None
        seen = {cpu for server in observed.servers for cpu in server.cpus} if observed else ()
        return tuple(self.dut.cpus or sorted(seen))

    @property
    def traffic(self) -> TrafficSettings:
        """The traffic that was asked for."""
        traffic = self.parameters.traffic
        return traffic.known if traffic else TrafficSettings()

    @property
    def environment(self) -> Environment:
        """The machine that it was measured on."""
        return (self.record and self.record.environment) or Environment()

    @property
    def generator(self) -> Generator | None:
        """What the generator said of itself."""
        return self.record.generator.known if self.record and self.record.generator else None

    @property
    def taps(self) -> Mapping[str, Tap]:
        """What the taps counted, by their side."""
        taps = (self.record and self.record.taps) or {}
        return {side: tap.known for side, tap in taps.items()}

    @property
    def platform_facts(self) -> PlatformFacts:
        """What the platform said of itself."""
        return (
            self.record.platform.known if self.record and self.record.platform else PlatformFacts()
        )

    @property
    def steal_ns(self) -> Mapping[str, int]:
        """The time that a hypervisor took of each CPU."""
        return self.record.steal_ns if self.record else {}

    @property
    def counters(self) -> Mapping[str, Window]:
        """What the DuT's processors counted, by the window of time; empty when nobody asked."""
        return (self.record and self.record.counters) or {}

    @property
    def energy(self) -> Energy | None:
        """The energy that its machine took; None where nothing told."""
        return self.record.energy if self.record else None

    @property
    def started(self) -> str:
        """When it began, in ISO 8601."""
        return (self.record and self.record.started) or ""

    @property
    def valid(self) -> bool | None:
        """False when the generator did not send what was asked of it; None where nobody says."""
        return self.record.valid if self.record else None

    @property
    def rate(self) -> int | None:
        """The packet rate that was asked for, in pkt/s."""
        return self.traffic.rate

    @property
    def offered_rate(self) -> float | None:
        """The packet rate before the device: as asked for or, where nobody says, as measured."""
        return self.rate or (self.evaluation.rate if self.evaluation else None)

    @property
    def traits(self) -> Traits | None:
        """What is known of the platform: what the run kept, or the platform that others name."""
        if self.origin is not None:
            return BUILT_IN.get(self.platform)
        return self.record.traits if self.record else None

    @property
    def platform(self) -> str:
        """The platform of the device under test, empty when unknown."""
        return self.variables.get("dut.platform") or self.dut.platform or ""


@dataclass(frozen=True)
class Experiment:
    """All runs of a folder, in the order of their numbers: imported ones come last."""

    name: str
    folder: Path
    runs: tuple[Run, ...] = field(default=())
    warnings: tuple[Notice, ...] = ()
    """Warnings about the whole folder."""

    @property
    def own(self) -> tuple[Run, ...]:
        """The runs that were measured or evaluated here."""
        return tuple(run for run in self.runs if run.origin is None)

    @property
    def imported(self) -> tuple[Run, ...]:
        """The runs of published result trees."""
        return tuple(run for run in self.runs if run.origin is not None)

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that have an evaluation."""
        return tuple(run for run in self.runs if run.evaluation is not None)

    @property
    def failed(self) -> tuple[Run, ...]:
        """The runs that have none, each with its reason."""
        return tuple(run for run in self.runs if run.evaluation is None)

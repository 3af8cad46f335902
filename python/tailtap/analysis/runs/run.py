"""A run: its record, and the evaluation and the tail that are read when they are asked for.

Own runs and imported ones are the same type. What nobody says of a run is None, or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt

from tailtap.analysis.evaluation import Evaluation, Percentile
from tailtap.analysis.evaluation.flows import CODES, heavy_loss
from tailtap.analysis.evaluation.model import Latencies
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.runs.tail import StoredTail, rate_of, tail_of
from tailtap.base.errors import InputError
from tailtap.base.seen import Seen
from tailtap.records.datapath import Generator, Tap
from tailtap.records.interrupts import FILE as INTERRUPTS
from tailtap.records.interrupts import Samples, read_samples
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

NO_TIMES = "files of others that say how often latencies occurred, not when, give no tail model"
"""Why some imported runs have none."""
UNKNOWN = "unknown"
"""The clock of captures that do not say whose it is."""
INVALID = "invalid: the generator did not send the requested load"
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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


@dataclass(frozen=True, repr=False)
class Run(Seen):
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
    read: Callable[[], Latencies] | None = field(default=None, repr=False, compare=False)
    """Reads its evaluation. Raises `InputError`."""
    alias: str = ""
    """What a user called it: runs of one alias are repeats where nothing was varied."""

    @cached_property
    def evaluation(self) -> Latencies | None:
        """Its evaluation; None when it gave no result."""
        return self._result[0]

    @cached_property
    def failure(self) -> str:
        """Why it gave no result; empty when it did."""
        return self._result[1]

    @cached_property
    def _result(self) -> tuple[Latencies | None, str]:
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
        return self.evaluation.counted.get("lost") if self.evaluation else None

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
        return self.evaluation.max if self.evaluation else None

    def percentile(self, p: float) -> Percentile | None:
        """The percentile `p` (0 to 1) of its latency, 1 being the maximum."""
        return self.evaluation.percentile(p) if self.evaluation else None

    @property
    def clock(self) -> str | None:
        """The clock of its stamps: as its captures say or, where these do not, as its taps."""
        whole = self.evaluation if isinstance(self.evaluation, Evaluation) else None
        said = whole.inputs.ingress.clock if whole else None
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
        if not self.evaluation.curve and self.gone < 1:
            return "no percentiles are published of it"
        return ""

    @cached_property
    def warnings(self) -> tuple[Notice, ...]:
        """The warnings of the run, less those of its evaluation."""
        evaluation = self.evaluation
        told = any(note.code in CODES for note in self.notes)
        if told or not isinstance(evaluation, Evaluation):
            return self.notes
        # A bare evaluation has no such warning of its own.
        lost = evaluation.lost_at_least - evaluation.lost_around_events
        has_dut = self.traits is None or self.traits.has_dut
        notice = heavy_loss(
            lost, evaluation.offered, evaluation.loss_patterns, generated=False, has_dut=has_dut
        )
        return self.notes if notice is None else (*self.notes, notice)

    @property
    def all_warnings(self) -> tuple[Notice, ...]:
        """The warnings of the run and of its evaluation, each once."""
        more = self.evaluation.warnings if self.evaluation else ()
        return tuple(dict.fromkeys((*self.warnings, *more)))

    @property
    def own_folder(self) -> Path | None:
        """Where files about it belong: its run folder, or that of a bare evaluation."""
        return self.folder.parent if self.folder and self.record else self.folder

    @property
    def stored(self) -> Evaluation:
        """The whole evaluation.

        Raises `InputError` when it is missing or damaged, or others left less.
        """
        found = self.evaluation
        if found is None:
            raise InputError(self.failure)
        if not isinstance(found, Evaluation):
            has = found.has if isinstance(found, Partial) else "what is known"
            raise InputError(
                f"this needs every latency in its order, which an import of {has} does not have: "
                "import the captures"
            ).at(self.slug)
        return found

    @cached_property
    def tail(self) -> StoredTail:
        """Its largest latencies. Raises `InputError` where the evaluation has not kept them."""
        return tail_of(self.stored, self.folder, self.slug)

    @cached_property
    def samples(self) -> Samples:
        """Its own samples of interrupts. Raises `InputError` where there are none to read."""
        return read_samples((self.own_folder or Path()) / INTERRUPTS)

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
        if self.rate or not isinstance(self.evaluation, Evaluation):
            return self.rate
        return rate_of(self.evaluation.inputs.ingress) or None

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


@dataclass(frozen=True, repr=False)
class Experiment(Seen):
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

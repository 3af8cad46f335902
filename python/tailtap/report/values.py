"""What the report is made of: runs and their evaluations as small typed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from tailtap.evaluation import Histogram, Percentile, Warning
from tailtap.evaluation.overload import OVERLOAD_LOSS

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """One evaluation as the figures need it: latencies in ns, times in s since the first packet."""

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
    latencies: Integers
    """Distinct latencies, ascending, and how often each occurred; empty when imported."""
    latency_counts: Integers
    histogram: Histogram
    worst_latency: Integers
    worst_time: Floats
    gaps: Mapping[str, Histogram]
    rate_start: Mapping[str, Floats]
    rate_packets: Mapping[str, Integers]
    warnings: tuple[Warning, ...]

    @property
    def loss(self) -> float | None:
        """Lost packets as a share of `offered`; None where either is not known."""
        lost = self.counts.get("lost")
        if lost is None or self.offered is None:
            return None
        return lost / self.offered if self.offered else 0.0

    @property
    def overloaded(self) -> bool:
        """Whether so much was lost that the latency is that of full queues."""
        return self.loss is not None and self.loss > OVERLOAD_LOSS

    @property
    def duration(self) -> float:
        """Seconds from the first packet to the end of the last second with a packet."""
        ends = [float(start.max()) + 1 for start in self.rate_start.values() if start.size]
        return max([*ends, float(self.worst_time.max(initial=0)), 1e-3])

    def shows(self, kind: str) -> bool:
        """Whether there is anything to draw in a figure: hdr, worst, gaps, rates, latency."""
        parts: Mapping[str, Iterable[Sized]] = {
            "hdr": (self.latencies, self.curve_percentiles),
            "worst": (self.worst_latency,),
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
    """One run of the experiment; `evaluation` is None when it gave no result."""

    number: int
    slug: str
    repeat: int
    status: str
    failure: str
    variables: Mapping[str, str]
    parameters: Mapping[str, Any]
    generator: Mapping[str, Any]
    taps: Mapping[str, Mapping[str, Any]]
    steal_ns: Mapping[str, int]
    counters: Mapping[str, Any]
    """What the DuT's processors counted, by the window of time; empty when nobody asked."""
    warnings: tuple[Warning, ...]
    environment: Mapping[str, Any]
    started: str
    evaluation: Evaluation | None
    valid: bool | None = None
    """False when the generator did not send what was asked of it; None where nobody says."""
    origin: Origin | None = None
    """Set for a run that others measured."""
    folder: Path | None = None
    """Where its evaluation is; None when imported."""

    @property
    def rate(self) -> int | None:
        """The packet rate that was asked for, in pkt/s."""
        rate = mapping(self.parameters, "traffic").get("rate")
        return rate if isinstance(rate, int) else None

    @property
    def platform(self) -> str:
        """The platform of the device under test, empty when unknown."""
        return str(
            self.variables.get("dut.platform")
            or mapping(self.parameters, "dut").get("platform")
            or ""
        )


@dataclass(frozen=True)
class Experiment:
    """All runs of a folder, in the order of their numbers: imported ones come last."""

    name: str
    folder: Path
    runs: tuple[Run, ...] = field(default=())
    warnings: tuple[Warning, ...] = ()
    """Doubts about the whole folder."""

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


def mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key of a record; empty when there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}

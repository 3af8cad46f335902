"""The kinds of figures: one row each, with what it reads of a run.

Functions load what they compute with when they are called, as experiment files are checked by this
table, too. Latencies are in ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tailtap.analysis.figures.quantities import (
    CATEGORY,
    NUMBER,
    PACKETS,
    PER_CENT,
    RATE,
    RATIO,
    SECONDS,
    SHARE,
    TAIL,
    TIME,
    Quantity,
    parse_percentile,
)

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.model import Latencies
    from tailtap.analysis.figures.model import Figure
    from tailtap.analysis.runs.run import Floats, Run

Of = Literal["run", "value", "names", "models", "table"]
"""What a kind draws: curves of each run, one value of it, named values, tail models, a table."""


@dataclass(frozen=True)
class Trace:
    """What of a run is drawn in one line: corners of a curve, or dots."""

    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    supported: int | None = None
    """So many of them stand on ten packets or more; None where all do."""
    before: bool = False
    """Whether it is of packets before the device."""
    name: str = ""
    """What the values at x are of, where these are no numbers."""


@dataclass(frozen=True)
class Value:
    """One value of a run, with its interval where there is one."""

    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Axis:
    """What an axis shows unless the experiment file says otherwise."""

    label: str
    quantity: Quantity
    log: bool = False
    low: float | None = None
    """Where it begins and ends, in base units; None leaves an end to the data."""
    high: float | None = None
    ticks: Mapping[float, str] | None = None
    """What is labelled, where it is not what a drawer chooses."""

    def between(self, low: float, high: float) -> Axis:
        """The same with these ends, where it has none of its own."""
        return replace(
            self,
            low=low if self.low is None else self.low,
            high=high if self.high is None else self.high,
        )


Curves = Callable[["Latencies", int], "list[Trace]"]
"""The traces of an evaluation; histograms have so many bins in each decade."""
ValueOf = Callable[["Run", "Figure"], "Value | None"]
"""The value of a run; None where nobody counted it."""
NamedOf = Callable[["Run", "Figure"], Mapping[str, float]]
"""Values by their names."""


@dataclass(frozen=True)
class Kind:
    """A kind of figure."""

    of: Of
    title: str
    x: Axis
    y: Axis
    dots: bool = False
    """Whether its traces are dots."""
    worst: bool = False
    """Whether the worst repeat stands for all; otherwise their mean does."""
    curves: Curves | None = None
    value: ValueOf | None = None
    named: NamedOf | None = None
    pools: bool = False
    """Whether all its runs are one series unless the file says otherwise."""
    options: frozenset[str] = frozenset()
    """Keys of a figure that this kind has besides those of all: those of `OPTIONS`."""
    counts: bool = False
    """Whether it is of counters, which an experiment must ask for."""
    sums_up: frozenset[str] = frozenset()
    """Variables that make no series of their own."""


OPTIONS = ("over", "percentile", "counter", "per", "method", "sign")
"""Keys of a figure that only some kinds have."""


def _hdr(one: Latencies, bins: int) -> list[Trace]:
    from tailtap.analysis.figures.curves import confidence_band, curve_of

    curve = curve_of(one)
    if curve is None:
        return []
    x, low, high = confidence_band(one.curve)
    band = [Trace(x, low.astype(float), low.astype(float), high.astype(float))]
    return [*(band if x.size else []), Trace(curve.x, curve.y.astype(float), supported=curve.split)]


def _latency(one: Latencies, bins: int) -> list[Trace]:
    from tailtap.analysis.figures.curves import log_histogram, outline

    return [Trace(*outline(*log_histogram(one.histogram(), bins), FLOOR))]


def _gaps(one: Latencies, bins: int) -> list[Trace]:
    from tailtap.analysis.figures.curves import log_histogram, outline

    return [
        Trace(*outline(*log_histogram(one.gaps(side), bins), FLOOR), before=side == "ingress")
        for side in ("ingress", "egress")
    ]


def _worst(one: Latencies, bins: int) -> list[Trace]:
    worst = one.worst_packets
    return [Trace(one.seconds(worst.ingress_ns), worst.latency_ns.astype(float))]


def _losses(one: Latencies, bins: int) -> list[Trace]:
    time, packets = one.bursts
    return [Trace(time, packets.astype(float))]


def _rates(one: Latencies, bins: int) -> list[Trace]:
    import numpy as np

    traces = []
    for side in ("ingress", "egress"):
        start, packets = one.whole_seconds(side)
        x, y = np.column_stack((start, start + 1)).ravel(), np.repeat(packets, 2).astype(float)
        traces.append(Trace(x, y, before=side == "ingress"))
    return traces


def _percentile(run: Run, figure: Figure) -> Value | None:
    row = run.percentile(parse_percentile(figure.percentile or "max"))
    return None if row is None else Value(row.value, row.low, row.high)


def _highest_rate(run: Run, figure: Figure) -> Value | None:
    from tailtap.analysis.runs.text import answer_for

    found = answer_for(run)
    if found is None or found.rate is None:
        return None
    return Value(found.rate, found.rate, found.upper)


def _watts(run: Run, figure: Figure) -> Value | None:
    power = None if run.energy is None else run.energy.watts
    return None if power is None else Value(power)


def _counter(run: Run, figure: Figure) -> Value | None:
    from tailtap.analysis.interrupts.runs import counted

    count = counted(run, figure.counter or "", figure.per or "packet")
    return None if count is None else Value(count)


def _interrupts(run: Run, figure: Figure) -> Mapping[str, float]:
    from tailtap.analysis.interrupts.runs import interrupts

    return interrupts(run, figure.per or "second")


def _causes(run: Run, figure: Figure) -> Mapping[str, float]:
    """The delay of late packets by cause in ns, as ``causes.json`` says; empty without one."""
    from tailtap.records.causes import CausesRecord
    from tailtap.records.record import read

    path = None if run.own_folder is None else run.own_folder / "causes.json"
    if path is None or not path.is_file():
        return {}
    told = read(path, CausesRecord)
    found: dict[str, float] = {}
    for row in told.causes:
        found[row.cause] = found.get(row.cause, 0.0) + row.delay_ns
    rest = told.unexplained.delay_ns
    return found | ({"unexplained": float(rest)} if rest else {})


BINS = 60
"""Of each decade, the same in all figures, so that heights can be compared."""
FLOOR = 0.7
"""Where an empty bin lies on a logarithmic axis of counts."""
_LATENCY = Axis("Latency", TIME, log=True)
_SINCE = Axis("Time since the first packet (s)", SECONDS)
_NONE = Axis("", CATEGORY)
_OVER = frozenset(("over",))

KINDS: Mapping[str, Kind] = {
    "hdr": Kind(
        "run",
        "HDR diagram",
        Axis("Percentile", TAIL, log=True),
        _LATENCY,
        curves=_hdr,
    ),
    "latency": Kind(
        "run",
        "Latencies",
        _LATENCY,
        Axis("Packets", PACKETS, log=True, low=FLOOR),
        curves=_latency,
    ),
    "worst": Kind(
        "run",
        "Worst latencies over time",
        _SINCE,
        _LATENCY,
        dots=True,
        curves=_worst,
    ),
    "losses": Kind(
        "run",
        "Losses over time",
        _SINCE,
        Axis("Packets lost in a row", PACKETS, log=True, low=FLOOR),
        dots=True,
        curves=_losses,
    ),
    "gaps": Kind(
        "run",
        "Inter-packet gaps",
        Axis("Inter-packet gap (grey: before the device)", TIME, log=True),
        Axis("Packets", PACKETS, log=True, low=FLOOR),
        curves=_gaps,
    ),
    "rates": Kind(
        "run",
        "Packet rates",
        Axis("Time since the first packet (s; grey: before the device)", SECONDS),
        Axis("Packet rate", RATE),
        curves=_rates,
    ),
    "percentile": Kind(
        "value",
        "Latency",
        _NONE,
        _LATENCY,
        value=_percentile,
        worst=True,
        options=_OVER | {"percentile"},
    ),
    "loss": Kind(
        "value",
        "Loss",
        _NONE,
        Axis("Lost packets", SHARE),
        value=lambda run, _: None if run.loss is None else Value(run.loss),
        worst=True,
        options=_OVER,
    ),
    "highest-rate": Kind(
        "value",
        "Highest rate",
        _NONE,
        Axis("Highest packet rate", RATE),
        value=_highest_rate,
        worst=True,
        options=_OVER,
        sums_up=frozenset(("traffic.rate",)),
    ),
    "counter": Kind(
        "value",
        "Counter",
        _NONE,
        Axis("Count", NUMBER),
        value=_counter,
        options=_OVER | {"counter", "per"},
        counts=True,
    ),
    "watts": Kind(
        "value",
        "Power",
        _NONE,
        Axis("Power (W)", RATIO),
        value=_watts,
        options=_OVER,
    ),
    "interrupts": Kind(
        "names",
        "Interrupts and softirqs",
        _NONE,
        Axis("Interrupts", NUMBER, log=True),
        named=_interrupts,
        options=frozenset(("per",)),
        counts=True,
    ),
    "causes": Kind(
        "names",
        "Causes of late packets",
        _NONE,
        Axis("Delay of late packets", TIME, log=True),
        named=_causes,
    ),
    "stationarity": Kind(
        "models",
        "Stationarity",
        Axis("Exceedances of the fitted part", PACKETS, log=True),
        Axis("p value", RATIO),
        dots=True,
        pools=True,
        options=frozenset(("method",)),
    ),
    "divergence": Kind(
        "models",
        "Divergence over thresholds",
        Axis("Threshold", CATEGORY),
        Axis("Jensen-Shannon divergence", RATIO),
        pools=True,
        options=frozenset(("method",)),
    ),
    "thresholds": Kind(
        "models",
        "Thresholds",
        Axis("Threshold", CATEGORY),
        _LATENCY,
        pools=True,
        options=frozenset(("method",)),
    ),
    "shape": Kind(
        "models",
        "Shape and boundedness",
        Axis("Tail", CATEGORY),
        Axis("Shape ξ", RATIO),
        pools=True,
        options=frozenset(("method",)),
    ),
    "exceedances": Kind(
        "models",
        "Exceedances and boundedness",
        Axis("Mean exceedances of the level (1 is expected)", RATIO, log=True),
        Axis("Bounded models", PER_CENT),
        dots=True,
        options=frozenset(("method",)),
    ),
    "models": Kind(
        "table",
        "Tail models held against the rest of their runs",
        _NONE,
        _NONE,
        options=frozenset(("method", "sign")),
    ),
    "tail-latency": Kind(
        "table",
        "Tail latency",
        _NONE,
        _NONE,
        options=frozenset(("percentile",)),
    ),
    "grades": Kind(
        "table",
        "Grades",
        _NONE,
        _NONE,
        options=frozenset(("percentile",)),
    ),
}
"""The kinds by name: a new one is a row, and a function that reads it."""

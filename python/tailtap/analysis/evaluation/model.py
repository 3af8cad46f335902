"""The result of evaluating a pair of captures: values, files and the JSON contract."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailtap.analysis.evaluation.clocks import Within, within_of
from tailtap.analysis.evaluation.values import (
    BY_ID,
    DEFAULT,
    HEAVY_LOSS,
    Blocks,
    Column,
    Columns,
    Exceedances,
    Histogram,
    Losses,
    Pair,
    Unread,
    Worst,
    WorstPacket,
    band,
    column,
    latency_record,
    pair,
    papers,
    percentiles_of,
    view,
)
from tailtap.base.errors import InputError
from tailtap.base.seen import Seen
from tailtap.records.evaluation import (
    BlockWidth,
    ClocksRecord,
    Counts,
    Device,
    EvaluationRecord,
    Floor,
    FlowRecord,
    LossPattern,
    LossRecord,
    Options,
    Percentile,
    Sides,
    WorstRecord,
)
from tailtap.records.record import Notice, mark, read

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from tailtap.analysis.evaluation.hops import Hops

EVALUATION = "evaluation.json"
"""The file of an evaluation, in its folder."""
TABLES = ("distribution", "worst", "losses", "exceedances", "blocks", "gaps", "rates")
"""Those that hold what an evaluation is; others follow from them."""
BACK = "back"
"""The folder of the way back, in that of the evaluation."""
SIDES = ("ingress", "egress")


WHOLE = 0.99
"""How long packets came in a second that counts as one, in s: the last is a gap short."""
#: Published percentiles are fractions in floating point; this near is the same.
_SAME = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Captured:
    """What may be known of captures beside the latencies."""

    warnings: Sequence[Notice] = ()
    lost_around_events: int = 0
    """How many of the lost packets what was done to the device on purpose made lost."""
    clocks: ClocksRecord | None = None
    """The offset of the clock behind the device to the one before it: docs/reference/files.md.
    All times are those of the clock before the device."""
    hops: Hops | None = None
    """The hops of a line, where packets were stamped between its nodes."""
    device: Device | None = None
    """What the device did to packets; None where the captures hold no frames."""
    loss_patterns: list[LossPattern] | None = None
    """What the lost packets have in common; None where that was not looked for."""
    flows: list[FlowRecord] | None = None
    """Each flow, where that was asked: those that lost most first, the further ones last."""


class Latencies(Captured):
    """How late packets were, as far as that is known: what figures, tables and verdicts read.

    An `Evaluation` says all of it, a `Partial` less: what nobody says is None, or empty.
    """

    counted: Mapping[str, int]
    """What became of packets, by the names of `Counts`."""
    offered: int | None
    """Packets that may have been lost: those whose fate is known."""
    lost_at_least: int | None
    """How many packets were surely lost; others that count as lost may have arrived."""
    max: int | None
    """The largest latency."""
    mean: float | None
    listed: Sequence[Percentile]
    """The percentiles that are listed by default."""
    curve: Sequence[Percentile]
    """Many percentiles, ascending: the source of the confidence band, and of the curve where the
    distribution is not known."""
    distribution: Pair
    """Distinct latencies, ascending, and how many packets had each."""
    worst_packets: Worst
    """The packets with the largest latencies, worst first."""
    lost_packets: Losses
    bucket_ns: int | None
    """The width of buckets, if all are alike."""
    gap_counts: Mapping[str, Pair]
    """For each side, lower edge and count of each bucket of gaps; see `gaps`."""
    rate_counts: Mapping[str, Pair]
    """For each side, start of a second and packets in it; see `rates`."""
    origin_ns: int
    """When the first packet came to the device."""
    within: Within = Within()
    """What every latency may be off by, to either side, and why."""

    def percentile(self, p: float) -> Percentile | None:
        """The percentile `p` (0 to 1) of the latency, 1 being the maximum; None for an unknown."""
        if p == 1:
            return None if self.max is None else Percentile(1.0, self.max, None, None, 0, False)
        near = (row for row in self.curve if math.isclose(1 - row.p, 1 - p, rel_tol=_SAME))
        return next(near, None)

    def histogram(self) -> Histogram:
        """The latencies in buckets."""
        raise NotImplementedError

    def gaps(self, side: str = "egress") -> Histogram:
        """Gaps between consecutive packets with a key before ("ingress") or after the device.

        Their buckets are as wide as the evaluation was told by `bucket_ns`. Raises `InputError`
        when `side` is neither "ingress" nor "egress".
        """
        return Histogram.of(_of_side(self.gap_counts, side), self.bucket_ns)

    def rates(self, side: str = "egress") -> Pair:
        """Start of each second (ns, the capture's clock) and packets in it, before or after.

        Seconds count from the first packet of the side; those without packets are left out.
        Raises `InputError` when `side` is neither "ingress" nor "egress".
        """
        return _of_side(self.rate_counts, side)

    def to_arrow(self) -> Mapping[str, pa.Table]:
        """The tables that are known, by the names and with the content of their Parquet files."""
        raise NotImplementedError

    def seconds(self, times_ns: Column) -> npt.NDArray[np.float64]:
        """Times in s since the first packet."""
        return (times_ns - self.origin_ns) / 1e9

    def whole_seconds(self, side: str) -> tuple[npt.NDArray[np.float64], Column]:
        """Start of each second in s since the first packet, and packets in it: `rates` to draw."""
        start_ns, packets = self.rates(side)
        return self.seconds(start_ns), packets

    @property
    def bursts(self) -> tuple[npt.NDArray[np.float64], Column]:
        """When packets were lost, of those in a row the first, in s; and how many in a row."""
        start_ns, packets = self.lost_packets.bursts
        return self.seconds(start_ns), packets

    @property
    def packets(self) -> int | None:
        """How many packets the latencies are of."""
        return self.counted.get("matched")

    @property
    def within_ns(self) -> int:
        """What every latency may be off by, to either side; 0 with one clock of fine stamps."""
        return self.within.ns

    @property
    def loss(self) -> float | None:
        """Lost packets as a share of `offered`; None where either is not known."""
        lost = self.counted.get("lost")
        if lost is None or self.offered is None:
            return None
        return lost / self.offered if self.offered else 0.0

    @property
    def failed(self) -> float | None:
        """Requests that failed as a share of all; None where nobody says."""
        errors = self.counted.get("errors")
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
        if self.lost_at_least is None or not self.offered:
            return False
        return (self.lost_at_least - self.lost_around_events) / self.offered > HEAVY_LOSS

    @property
    def duration(self) -> float:
        """Seconds from the first packet to the end of the last second with a packet."""
        starts = (self.whole_seconds(side)[0] for side in SIDES)
        ends = [float(start.max()) + 1 for start in starts if start.size]
        worst = self.seconds(self.worst_packets.ingress_ns)
        return max([*ends, float(worst.max(initial=0)), 1e-3])

    def shows(self, kind: str) -> bool:
        """Whether there is anything to draw in a figure of `DRAWN`."""
        return any(len(part) for part in DRAWN[kind](self))


DRAWN: Mapping[str, Callable[[Latencies], Iterable[Sized]]] = {
    "hdr": lambda one: (one.distribution[0], one.curve),
    "worst": lambda one: (one.worst_packets.latency_ns,),
    "losses": lambda one: (one.lost_packets.ingress_ns,),
    "gaps": lambda one: (one.gaps(side).edges for side in SIDES),
    "rates": lambda one: (one.rates(side)[0] for side in SIDES),
    "latency": lambda one: (one.histogram().edges,),
}
"""What a figure is drawn of."""


@dataclass(frozen=True, repr=False)
class Evaluation(Seen, Latencies):
    """Exact statistics of one pair of captures. All times are integer nanoseconds."""

    key: str
    key_reason: str | None
    counts: Counts
    mean: float
    columns: Columns
    inputs: Sides
    options: Options
    warnings: list[Notice] = field(default_factory=list, kw_only=True)
    key_after: str | None = None
    """What packets behind the device were matched by, where that is not `key`."""
    back: Evaluation | None = None
    """The way back, where the captures hold both directions."""

    @property
    def ways(self) -> dict[str, Evaluation]:
        """This one, which has no name, and the way back where there is one."""
        return {"": self} | ({"the way back": self.back} if self.back else {})

    @cached_property
    def distribution(self) -> Pair:
        return pair(self.columns("distribution"))

    @cached_property
    def worst_packets(self) -> Worst:
        latency, ingress, egress, keys = self.columns("worst")
        return Worst(column(latency), column(ingress), column(egress), keys)

    @cached_property
    def lost_packets(self) -> Losses:
        """The packets that were lost, the first `KEPT_LOSSES` of them, where that was asked.

        There are fewer than `counts.lost` where equal packets were lost and nobody knows which.
        """
        ingress, position, length, burst, flows, keys = self.columns("losses")
        numbers = (column(ingress), column(position), column(length), column(burst))
        return Losses(*numbers, flows, keys)

    @cached_property
    def exceedances(self) -> Exceedances:
        """The largest latencies in time order."""
        floor_ns, *columns = self.columns("exceedances")
        return Exceedances(floor_ns, *map(column, columns))

    @cached_property
    def blocks(self) -> Blocks:
        """What latencies were like as time went on."""
        width_ns, *columns = self.columns("blocks")
        return Blocks(width_ns, *map(column, columns))

    @cached_property
    def gap_counts(self) -> dict[str, Pair]:
        return {side: pair(raw) for side, raw in self.columns("gaps").items()}

    @cached_property
    def rate_counts(self) -> dict[str, Pair]:
        return {side: pair(raw) for side, raw in self.columns("rates").items()}

    @property
    def min(self) -> int:
        """The smallest latency."""
        return view(self.columns("distribution")[0])[0]

    @cached_property
    def max(self) -> int:
        return view(self.columns("distribution")[0])[-1]

    @cached_property
    def within(self) -> Within:
        return within_of(self.clocks, self.inputs)

    @cached_property
    def counted(self) -> Mapping[str, int]:
        return msgspec.structs.asdict(self.counts)

    @cached_property
    def bucket_ns(self) -> int:
        return self.options.bucket_ns

    @cached_property
    def offered(self) -> int:
        return self.counts.matched + self.counts.lost

    @cached_property
    def lost_at_least(self) -> int:
        """How many packets surely did not leave the device.

        Those that count as lost may be what left it unmatched, in other packets, or was not read
        behind it; at a damaged place of the capture before it, a packet may be none.
        """
        after = Unread.of(self.inputs.egress)
        if self.key == BY_ID or after.without_end:
            return 0
        before = self.inputs.ingress.unread
        garbled = before.get("skipped-at-most", 0) + before.get("without-end", 0)
        return max(self.counts.lost - self.counts.unmatched_egress - after.packets - garbled, 0)

    @cached_property
    def origin_ns(self) -> int:
        return self.inputs.ingress.first_ns

    @cached_property
    def listed(self) -> Sequence[Percentile]:
        return self.percentiles()

    @cached_property
    def curve(self) -> Sequence[Percentile]:
        return self.percentiles(band(self.counts.matched))

    def percentile(self, p: float) -> Percentile:
        return self.percentiles([p])[0]

    def percentiles(self, ps: Sequence[float] = DEFAULT) -> list[Percentile]:
        """The percentiles `ps` (each 0 to 1) of the latency, in the order given."""
        return percentiles_of(self.columns("distribution"), ps, self.within_ns)

    def worst(self, n: int = 5000) -> list[WorstPacket]:
        """The `n` worst packets that were kept, worst first."""
        *times, keys = self.columns("worst")
        rows = zip(*(view(column)[:n].tolist() for column in times), keys[:n], strict=True)
        return [WorstPacket._make(row) for row in rows]

    def losses(self, n: int = 5000) -> list[LossRecord]:
        """The first `n` lost packets that were kept, in the order of the capture."""
        *numbers, flows, keys = self.columns("losses")
        rows = zip(
            *(view(column)[:n].tolist() for column in numbers), flows[:n], keys[:n], strict=True
        )
        return [
            LossRecord(
                ingress_ns=ingress_ns,
                position=position,
                length=None if length < 0 else length,
                burst=burst,
                flow=flow,
                key=key,
            )
            for ingress_ns, position, length, burst, flow, key in rows
        ]

    def histogram(self, width_ns: int | None = None) -> Histogram:
        """The latencies in buckets of `width_ns` (default: that of the evaluation, `bucket_ns`).

        Counted from the exact distribution, so that any width will do. Raises `InputError` when
        `width_ns` is not above zero.
        """
        width = self.options.bucket_ns if width_ns is None else width_ns
        if width <= 0:
            raise InputError("the width of a histogram's buckets must be above zero")
        from tailtap.analysis.evaluation import tables

        return tables.histogram(self.distribution, width)

    def whole_seconds(self, side: str) -> tuple[npt.NDArray[np.float64], Column]:
        """Start of each second in s since the first packet, and packets in it.

        The second in which packets end is left out, as its count is no rate. Where there is no
        other, it counts as much as a whole one would.
        """
        start_ns, packets = self.rates(side)
        start = self.seconds(start_ns)
        ends = {"ingress": self.inputs.ingress, "egress": self.inputs.egress}
        lasted = (ends[side].last_ns - int(start_ns[-1])) / 1e9 if start_ns.size else 1.0
        if lasted >= WHOLE:
            return start, packets
        if start.size > 1:
            return start[:-1], packets[:-1]
        return start, (packets / max(lasted, 1e-3)).round().astype("int64")

    def to_arrow(self) -> dict[str, pa.Table]:
        """The tables of the evaluation, by the names and with the content of its Parquet files."""
        from tailtap.analysis.evaluation import tables

        histogram = self.histogram()
        return {
            "percentiles": tables.percentiles(self.percentiles(sorted({*papers(), *DEFAULT}))),
            "distribution": tables.table("distribution", *self.columns("distribution")),
            "histogram": tables.table("histogram", histogram.edges, histogram.counts),
            "worst": tables.table("worst", *self.columns("worst")),
            "losses": tables.table("losses", *self.columns("losses")),
            "exceedances": tables.table("exceedances", *self.columns("exceedances")[1:]),
            "blocks": tables.table("blocks", *self.columns("blocks")[1:]),
            "gaps": tables.by_side("gaps", self.gap_counts),
            "rates": tables.by_side("rates", self.rate_counts),
            **({} if self.hops is None else self.hops.to_arrow()),
        }

    def record(
        self, ps: Sequence[float] = DEFAULT, worst: int = 10, losses: int = 0
    ) -> EvaluationRecord:
        """What `evaluation.json` says, and `tailtap evaluate --json` prints.

        It has the first `losses` lost packets, and no list of them for 0.
        """
        hops = None if self.hops is None else self.hops.record(ps)
        statistics = self.min, self.mean, self.max, self.distribution[0].size
        return EvaluationRecord(
            key=self.key,
            key_after=self.key_after,
            key_reason=self.key_reason,
            counts=self.counts,
            device=self.device,
            latency_ns=latency_record(
                self.min, self.mean, self.max, self.percentiles(ps), self.within_ns
            ),
            worst=[
                WorstRecord(
                    **packet._asdict(), hops=None if self.hops is None else self.hops.of_packet(at)
                )
                for at, packet in enumerate(self.worst(worst))
            ],
            losses=self.losses(losses) if losses else None,
            loss_patterns=self.loss_patterns,
            flows=self.flows,
            hops=hops,
            clocks=self.clocks,
            within=self.within.record if self.within_ns else None,
            inputs=self.inputs,
            options=self.options,
            exceedances=Floor(
                floor_ns=self.columns("exceedances")[0],
                packets=len(view(self.columns("exceedances")[1])),
            ),
            blocks=BlockWidth(width_ns=self.columns("blocks")[0]),
            warnings=self.warnings,
            made=mark(self.key, self.counts, statistics, self.inputs, self.options, self.clocks),
            back=None if self.back is None else self.back.record(ps, worst, losses),
        )

    def as_json(
        self, ps: Sequence[float] = DEFAULT, worst: int = 10, losses: int = 0
    ) -> dict[str, Any]:
        """The object that `tailtap evaluate --json` prints; see `record`."""
        printed: dict[str, Any] = msgspec.to_builtins(self.record(ps, worst, losses))
        return printed

    def write(self, folder: str | PathLike[str], *, below: Path | None = None) -> None:
        """Writes `evaluation.json` and the Parquet tables into `folder`, made if missing.

        Those of the way back into the folder ``back`` in it.

        No folder from `below` on may be a link (`tailtap.base.files`).

        Raises `MachineError` when the folder cannot be written, a full disk included.
        """
        from tailtap.analysis.evaluation import tables

        made = {"evaluation": self.record()}
        tables.write(Path(folder), self.to_arrow(), made, below=below)
        if self.back is not None:
            self.back.write(Path(folder) / BACK, below=below)

    @classmethod
    def load(
        cls,
        folder: str | PathLike[str],
        meta: EvaluationRecord | None = None,
        *,
        late: bool = False,
    ) -> Evaluation:
        """Reads what `write` wrote, but for the record where it is `meta`, which was read already.

        What is `late` is read when it is asked for, which then raises what this does: `InputError`
        when `folder` holds no whole evaluation.
        """
        from tailtap.analysis.evaluation import tables
        from tailtap.analysis.evaluation.hops import Hops

        folder = Path(folder)
        with tables.whole(folder):
            meta = meta or read(folder / EVALUATION, EvaluationRecord)
        columns = tables.stored(folder, meta, SIDES)
        for name in () if late else TABLES:
            columns(name)
        hops = None
        if meta.hops is not None:
            with tables.whole(folder):
                hops = Hops.of_tables(meta.hops, partial(tables.read, folder, mark=meta.made))
        return cls(
            key=meta.key,
            key_after=meta.key_after,
            key_reason=meta.key_reason,
            counts=meta.counts,
            mean=meta.latency_ns.mean,
            columns=columns,
            inputs=meta.inputs,
            options=meta.options,
            warnings=meta.warnings,
            clocks=meta.clocks,
            hops=hops,
            device=meta.device,
            loss_patterns=meta.loss_patterns,
            flows=meta.flows,
            back=None if meta.back is None else cls.load(folder / BACK, late=late),
        )


def _of_side(sides: Mapping[str, Pair], side: str) -> Pair:
    if side not in sides:
        raise InputError(f"'{side}' is no side: give {' or '.join(SIDES)}")
    return sides[side]

"""The result of evaluating a pair of captures: values, files and the JSON contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailtap.analysis.evaluation.clocks import Within, within_of
from tailtap.analysis.evaluation.percentiles import DEFAULT, latency_record, papers, percentiles_of
from tailtap.analysis.evaluation.values import (
    Blocks,
    Columns,
    Exceedances,
    Histogram,
    Losses,
    Pair,
    Worst,
    WorstPacket,
    column,
    lost_at_least,
    pair,
    view,
)
from tailtap.base.errors import InputError
from tailtap.records.evaluation import (
    BlockWidth,
    ClocksRecord,
    Counts,
    Device,
    EvaluationRecord,
    Floor,
    FlowRecord,
    HopRecord,
    LossPattern,
    LossRecord,
    Options,
    Percentile,
    Sides,
    WorstRecord,
)
from tailtap.records.record import Notice, mark, read

if TYPE_CHECKING:
    import pyarrow as pa

    from tailtap.analysis.evaluation.hops import Hops

EVALUATION = "evaluation.json"
"""The file of an evaluation, in its folder."""
BACK = "back"
"""The folder of the way back, in that of the evaluation."""
SIDES = ("ingress", "egress")


@dataclass(frozen=True)
class Evaluation:
    """Exact statistics of one pair of captures. All times are integer nanoseconds."""

    key: str
    key_reason: str | None
    counts: Counts
    mean: float
    columns: Columns
    inputs: Sides
    options: Options
    warnings: list[Notice] = field(default_factory=list)
    clocks: ClocksRecord | None = None
    """The offset of the clock behind the device to the one before it: docs/reference/files.md.
    All times are those of the clock before the device."""
    hops: Hops | None = None
    """The hops of a line, where packets were stamped between its nodes."""
    device: Device | None = None
    """What the device did to packets; None where the captures hold no frames."""
    key_after: str | None = None
    """What packets behind the device were matched by, where that is not `key`."""
    loss_patterns: list[LossPattern] | None = None
    """What the lost packets have in common; None where that was not looked for."""
    flows: list[FlowRecord] | None = None
    """Each flow, where that was asked: those that lost most first, the further ones last."""
    back: Evaluation | None = None
    """The way back, where the captures hold both directions."""

    @cached_property
    def distribution(self) -> Pair:
        """Distinct latencies, ascending, and how many packets had each."""
        return pair(self.columns.distribution)

    @cached_property
    def worst_packets(self) -> Worst:
        """The packets with the largest latencies, worst first."""
        latency_ns, ingress_ns, egress_ns, keys = self.columns.worst
        return Worst(column(latency_ns), column(ingress_ns), column(egress_ns), keys)

    @cached_property
    def lost_packets(self) -> Losses:
        """The packets that were lost, the first `KEPT_LOSSES` of them, where that was asked.

        There are fewer than `counts.lost` where equal packets were lost and nobody knows which.
        """
        ingress_ns, position, length, burst, flows, keys = self.columns.losses
        return Losses(
            column(ingress_ns), column(position), column(length), column(burst), flows, keys
        )

    @cached_property
    def exceedances(self) -> Exceedances:
        """The largest latencies in time order."""
        floor_ns, *columns = self.columns.exceedances
        return Exceedances(floor_ns, *map(column, columns))

    @cached_property
    def blocks(self) -> Blocks:
        """What latencies were like as time went on."""
        width_ns, *columns = self.columns.blocks
        return Blocks(width_ns, *map(column, columns))

    @cached_property
    def gap_counts(self) -> dict[str, Pair]:
        """For each side, lower edge and count of each bucket of gaps; see `gaps`."""
        return {side: pair(raw) for side, raw in self.columns.gaps.items()}

    @cached_property
    def rate_counts(self) -> dict[str, Pair]:
        """For each side, start of a second and packets in it; see `rates`."""
        return {side: pair(raw) for side, raw in self.columns.rates.items()}

    @property
    def min(self) -> int:
        """The smallest latency."""
        return view(self.columns.distribution[0])[0]

    @property
    def max(self) -> int:
        """The largest latency."""
        return view(self.columns.distribution[0])[-1]

    @property
    def within(self) -> Within:
        """What every latency may be off by, to either side, and why."""
        return within_of(self.clocks, self.inputs)

    @property
    def within_ns(self) -> int:
        """What every latency may be off by, to either side; 0 with one clock of fine stamps."""
        return self.within.ns

    @property
    def loss(self) -> float:
        """Lost packets as a share of those whose fate after the device is known."""
        known = self.counts.matched + self.counts.lost
        return self.counts.lost / known if known else 0.0

    @property
    def lost_at_least(self) -> int:
        """How many packets were surely lost; others that count as lost may have arrived."""
        return lost_at_least(self.counts, self.inputs, self.key)

    def percentile(self, p: float) -> Percentile:
        """The percentile `p` (0 to 1) of the latency."""
        return self.percentiles([p])[0]

    def percentiles(self, ps: Sequence[float] = DEFAULT) -> list[Percentile]:
        """The percentiles `ps` (each 0 to 1) of the latency, in the order given."""
        return percentiles_of(self.columns.distribution, ps, self.within_ns)

    def worst(self, n: int = 5000) -> list[WorstPacket]:
        """The `n` worst packets that were kept, worst first."""
        *times, keys = self.columns.worst
        rows = zip(*(view(column)[:n].tolist() for column in times), keys[:n], strict=True)
        return [WorstPacket._make(row) for row in rows]

    def losses(self, n: int = 5000) -> list[LossRecord]:
        """The first `n` lost packets that were kept, in the order of the capture."""
        *numbers, flows, keys = self.columns.losses
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

    def gaps(self, side: str = "egress") -> Histogram:
        """Gaps between consecutive packets with a key before ("ingress") or after the device.

        Their buckets are as wide as the evaluation was told by `bucket_ns`. Raises `InputError`
        when `side` is neither "ingress" nor "egress".
        """
        return Histogram(*_of_side(self.gap_counts, side), self.options.bucket_ns)

    def rates(self, side: str = "egress") -> Pair:
        """Start of each second (ns, the capture's clock) and packets in it, before or after.

        Seconds count from the first packet of the side; those without packets are left out.
        Raises `InputError` when `side` is neither "ingress" nor "egress".
        """
        return _of_side(self.rate_counts, side)

    def to_arrow(self) -> dict[str, pa.Table]:
        """The tables of the evaluation, by the names and with the content of its Parquet files."""
        from tailtap.analysis.evaluation import tables

        histogram = self.histogram()
        return {
            "percentiles": tables.percentiles(self.percentiles(sorted({*papers(), *DEFAULT}))),
            "distribution": tables.counts("latency_ns", self.distribution),
            "histogram": tables.counts("bucket_ns", (histogram.edges, histogram.counts)),
            "worst": tables.worst(self.worst_packets),
            "losses": tables.losses(self.lost_packets),
            "exceedances": tables.columns(self.exceedances),
            "blocks": tables.columns(self.blocks),
            "gaps": tables.by_side(self.gap_counts, ("bucket_ns", "count")),
            "rates": tables.by_side(self.rate_counts, ("start_ns", "packets")),
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
            worst=[self._packet(i, packet) for i, packet in enumerate(self.worst(worst))],
            losses=self.losses(losses) if losses else None,
            loss_patterns=self.loss_patterns,
            flows=self.flows,
            hops=hops,
            clocks=self.clocks,
            within=self.within.record if self.within_ns else None,
            inputs=self.inputs,
            options=self.options,
            exceedances=Floor(
                floor_ns=self.columns.exceedances[0],
                packets=len(view(self.columns.exceedances[1])),
            ),
            blocks=BlockWidth(width_ns=self.columns.blocks[0]),
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

    def _packet(self, place: int, packet: WorstPacket) -> WorstRecord:
        hops = None if self.hops is None else self.hops.of_packet(place)
        return WorstRecord(**packet._asdict(), hops=hops)

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
    def load(cls, folder: str | PathLike[str], meta: EvaluationRecord | None = None) -> Evaluation:
        """Reads what `write` wrote, but for the record where it is `meta`, which was read already.

        Raises `InputError` when `folder` holds no evaluation.
        """
        import pyarrow as pa

        from tailtap.analysis.evaluation import tables

        folder = Path(folder)
        try:
            meta = meta or read(folder / EVALUATION, EvaluationRecord)
            names = ["distribution", "worst", "losses", "exceedances", "blocks", "gaps", "rates"]
            found = cls._of(meta, {name: tables.read(folder, name, meta.made) for name in names})
            if meta.back is not None:
                found = replace(found, back=cls.load(folder / BACK))
            return found if meta.hops is None else found._with_hops(meta, meta.hops, folder)
        except OSError as error:
            raise InputError(f"not an evaluation: {error}").at(folder) from error
        except (ValueError, LookupError, TypeError, AttributeError, pa.ArrowException) as error:
            raise InputError(
                f"not a whole evaluation ({error}); run tailtap evaluate --out again"
            ).at(folder) from error

    def _with_hops(
        self, meta: EvaluationRecord, rows: Sequence[HopRecord], folder: Path
    ) -> Evaluation:
        from tailtap.analysis.evaluation import hops, tables

        read = {name: tables.read(folder, name, meta.made) for name in hops.TABLES}
        return replace(self, hops=hops.Hops.of_tables(rows, read))

    @classmethod
    def _of(cls, meta: EvaluationRecord, read: dict[str, pa.Table]) -> Evaluation:
        from tailtap.analysis.evaluation import tables

        worst = read["worst"]
        distribution = tables.pair(read["distribution"], "latency_ns", "count")
        position, ingress_ns, latency_ns = tables.all_columns(read["exceedances"])
        start_ns, packets, sum_ns, max_ns = tables.all_columns(read["blocks"])
        tables.require_distribution(distribution)
        times = (tables.column(worst, name) for name in ("latency_ns", "ingress_ns", "egress_ns"))
        return cls(
            key=meta.key,
            key_after=meta.key_after,
            key_reason=meta.key_reason,
            counts=meta.counts,
            mean=meta.latency_ns.mean,
            columns=Columns(
                distribution=distribution,
                worst=(*times, worst.column("key").to_pylist()),
                exceedances=(meta.exceedances.floor_ns, position, ingress_ns, latency_ns),
                blocks=(meta.blocks.width_ns, start_ns, packets, sum_ns, max_ns),
                gaps=tables.of_sides(read["gaps"], SIDES, ("bucket_ns", "count")),
                rates=tables.of_sides(read["rates"], SIDES, ("start_ns", "packets")),
                losses=tables.losses_of(read["losses"]),
            ),
            inputs=meta.inputs,
            options=meta.options,
            warnings=meta.warnings,
            clocks=meta.clocks,
            device=meta.device,
            loss_patterns=meta.loss_patterns,
            flows=meta.flows,
        )


def _of_side(sides: dict[str, Pair], side: str) -> Pair:
    if side not in sides:
        raise InputError(f"'{side}' is no side: give {' or '.join(SIDES)}")
    return sides[side]

"""The result of evaluating a pair of captures: values, files and the JSON contract."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tailtap import _core
from tailtap.errors import InputError
from tailtap.evaluation import tables
from tailtap.evaluation.percentiles import DEFAULT, papers
from tailtap.evaluation.values import (
    Blocks,
    Exceedances,
    Histogram,
    Pair,
    Percentile,
    Warning,
    Worst,
    WorstPacket,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Json: TypeAlias = dict[str, Any]

SCHEMA = "tailtap.evaluation/1"
SIDES = ("ingress", "egress")


@dataclass(frozen=True)
class Evaluation:
    """Exact statistics of one pair of captures. All times are integer nanoseconds."""

    key: str
    key_reason: str | None
    counts: dict[str, int]
    mean: float
    #: Distinct latencies, ascending, and how many packets had each.
    distribution: Pair
    worst_packets: Worst
    #: The largest latencies in time order.
    exceedances: Exceedances
    #: What latencies were like as time went on.
    blocks: Blocks
    #: For each side, lower edge and count of each bucket of gaps; see `gaps`.
    gap_counts: dict[str, Pair]
    #: For each side, start of a second and packets in it; see `rates`.
    rate_counts: dict[str, Pair]
    inputs: dict[str, Json]
    options: dict[str, int]
    warnings: list[Warning] = field(default_factory=list)

    @property
    def min(self) -> int:
        """The smallest latency."""
        return int(self.distribution[0][0])

    @property
    def max(self) -> int:
        """The largest latency."""
        return int(self.distribution[0][-1])

    @property
    def loss(self) -> float:
        """Lost packets as a share of those whose fate after the device is known."""
        known = self.counts["matched"] + self.counts["lost"]
        return self.counts["lost"] / known if known else 0.0

    def percentile(self, p: float) -> Percentile:
        """The percentile `p` (0 to 1) of the latency."""
        return self.percentiles([p])[0]

    def percentiles(self, ps: Sequence[float] = DEFAULT) -> list[Percentile]:
        """The percentiles `ps` (each 0 to 1) of the latency, in the order given."""
        if not all(0 <= p <= 1 for p in ps):
            raise InputError("a percentile lies between 0 and 1")
        found = _core.percentiles(*self.distribution, list(ps))
        return [
            Percentile(float(p), int(value), low, high, int(above), bool(supported))
            for p, value, low, high, above, supported in zip(
                found["p"],
                found["value"],
                found["low"],
                found["high"],
                found["above"],
                found["supported"],
                strict=True,
            )
        ]

    def worst(self, n: int = 5000) -> list[WorstPacket]:
        """The `n` worst packets that were kept, worst first."""
        worst = self.worst_packets
        columns = (worst.latency_ns[:n], worst.ingress_ns[:n], worst.egress_ns[:n])
        rows = zip(*(column.tolist() for column in columns), worst.key[:n], strict=True)
        return [WorstPacket._make(row) for row in rows]

    def histogram(self, width_ns: int | None = None) -> Histogram:
        """The latencies in buckets of `width_ns` (default: that of the evaluation, `bucket_ns`).

        Counted from the exact distribution, so that any width will do. Raises `InputError` when
        `width_ns` is not above zero.
        """
        width = self.options["bucket_ns"] if width_ns is None else width_ns
        if width <= 0:
            raise InputError("the width of a histogram's buckets must be above zero")
        return tables.histogram(self.distribution, width)

    def gaps(self, side: str = "egress") -> Histogram:
        """Gaps between consecutive packets with a key before ("ingress") or after the device.

        Their buckets are as wide as the evaluation was told by `bucket_ns`. Raises `InputError`
        when `side` is neither "ingress" nor "egress".
        """
        return Histogram(*_of_side(self.gap_counts, side), self.options["bucket_ns"])

    def rates(self, side: str = "egress") -> Pair:
        """Start of each second (ns, the capture's clock) and packets in it, before or after.

        Seconds count from the first packet of the side; those without packets are left out.
        Raises `InputError` when `side` is neither "ingress" nor "egress".
        """
        return _of_side(self.rate_counts, side)

    def to_arrow(self) -> dict[str, pa.Table]:
        """The tables of the evaluation, by the names and with the content of its Parquet files."""
        histogram = self.histogram()
        return {
            "percentiles": tables.percentiles(self.percentiles(sorted({*papers(), *DEFAULT}))),
            "distribution": tables.counts("latency_ns", self.distribution),
            "histogram": tables.counts("bucket_ns", (histogram.edges, histogram.counts)),
            "worst": tables.worst(self.worst_packets),
            "exceedances": tables.columns(self.exceedances),
            "blocks": tables.columns(self.blocks),
            "gaps": tables.by_side(self.gap_counts, ("bucket_ns", "count")),
            "rates": tables.by_side(self.rate_counts, ("start_ns", "packets")),
        }

    def figure(self, name: str) -> Figure:
        """A figure of the report, of this evaluation alone, as a matplotlib `Figure`.

        ``hdr`` is latency over percentile, ``worst`` the worst packets over time, ``gaps`` the
        gaps before and after the device, ``rates`` the packets in each second, ``latency`` how
        often each latency occurred. Save it with `savefig`. Raises `InputError` when `name` is
        none of these.
        """
        from tailtap.report.figures import evaluation_figure

        return evaluation_figure(self, name)

    def as_json(self, ps: Sequence[float] = DEFAULT, worst: int = 10) -> Json:
        """The object that `tailtap evaluate --json` prints."""
        return {
            "schema": SCHEMA,
            "key": self.key,
            "key_reason": self.key_reason,
            "counts": self.counts,
            "latency_ns": {
                "min": self.min,
                "mean": self.mean,
                "max": self.max,
                "percentiles": [
                    {
                        "p": p.p,
                        "value": p.value,
                        "low": p.low,
                        "high": p.high,
                        "above": p.above,
                        "supported": p.supported,
                    }
                    for p in self.percentiles(ps)
                ],
            },
            "worst": [packet._asdict() for packet in self.worst(worst)],
            "inputs": self.inputs,
            "options": self.options,
            "exceedances": {
                "floor_ns": self.exceedances.floor_ns,
                "packets": len(self.exceedances.position),
            },
            "blocks": {"width_ns": self.blocks.width_ns},
            "warnings": [warning._asdict() for warning in self.warnings],
        }

    def write(self, folder: str | PathLike[str]) -> None:
        """Writes `evaluation.json` and the Parquet tables into `folder`, made if missing.

        Raises `MachineError` when the folder cannot be written, a full disk included.
        """
        tables.write(Path(folder), self.to_arrow(), {"evaluation": self.as_json()})

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Evaluation:
        """Reads what `write` wrote. Raises `InputError` when `folder` holds no evaluation."""
        folder = Path(folder)
        try:
            meta = json.loads((folder / "evaluation.json").read_text())
            if meta["schema"] != SCHEMA:
                raise ValueError(f"its schema is {meta['schema']!r}, not {SCHEMA!r}")
            names = ("distribution", "worst", "exceedances", "blocks", "gaps", "rates")
            return cls._of(meta, {name: tables.read(folder, name) for name in names})
        except OSError as error:
            raise InputError(f"{folder}: not an evaluation: {error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{folder}: not a whole evaluation ({error}); run tailtap evaluate --out again"
            ) from error

    @classmethod
    def _of(cls, meta: Json, read: dict[str, pa.Table]) -> Evaluation:
        worst = read["worst"]
        return cls(
            key=meta["key"],
            key_reason=meta["key_reason"],
            counts=meta["counts"],
            mean=meta["latency_ns"]["mean"],
            distribution=tables.pair(read["distribution"], "latency_ns", "count"),
            worst_packets=Worst(
                tables.column(worst, "latency_ns"),
                tables.column(worst, "ingress_ns"),
                tables.column(worst, "egress_ns"),
                worst.column("key").to_pylist(),
            ),
            exceedances=Exceedances(
                meta["exceedances"]["floor_ns"], *tables.all_columns(read["exceedances"])
            ),
            blocks=Blocks(meta["blocks"]["width_ns"], *tables.all_columns(read["blocks"])),
            gap_counts=tables.of_sides(read["gaps"], SIDES, ("bucket_ns", "count")),
            rate_counts=tables.of_sides(read["rates"], SIDES, ("start_ns", "packets")),
            inputs=meta["inputs"],
            options=meta["options"],
            warnings=[Warning(**warning) for warning in meta["warnings"]],
        )


def _of_side(sides: dict[str, Pair], side: str) -> Pair:
    if side not in sides:
        raise InputError(f"'{side}' is no side: give {' or '.join(SIDES)}")
    return sides[side]

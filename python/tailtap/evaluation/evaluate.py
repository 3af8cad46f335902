"""`evaluate`: the library function behind `tailtap evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tailtap import _core
from tailtap.errors import InputError
from tailtap.evaluation.clocks import Clocks, require_shorter
from tailtap.evaluation.model import Evaluation, Json
from tailtap.evaluation.values import Columns, Warning
from tailtap.units import format_time

SECOND_NS = 1_000_000_000
#: Fewer matched packets than this do not support the 99.9th percentile.
FEW_PACKETS = 10_000


@dataclass(frozen=True)
class Settings:
    """How a pair of captures is evaluated; see `evaluate`, whose parameters these are."""

    key: str = "auto"
    trim_ns: int = 0
    window_ns: int = 5 * SECOND_NS
    worst: int = 5000
    bucket_ns: int = 100
    format: str | None = None
    clocks: Clocks | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` for numbers that mean nothing."""
        if self.window_ns <= 0 or self.bucket_ns <= 0 or self.trim_ns < 0 or self.worst < 0:
            raise InputError("window and bucket must be above zero, trim and worst not below it")
        if self.clocks is not None:
            require_shorter(self.clocks, self.window_ns)

    def matching(self) -> dict[str, Any]:
        """The keyword arguments by which `tailtap._core` matches and counts."""
        return {
            "key": None if self.key == "auto" else self.key,
            "trim_ns": self.trim_ns,
            "window_ns": self.window_ns,
            "worst": self.worst,
            "ingress_format": self.format,
            "egress_format": self.format,
            "clocks": self.clocks and (self.clocks.knots, self.clocks.within_ns),
        }


def evaluate(
    ingress: str | PathLike[str],
    egress: str | PathLike[str],
    *,
    key: str = "auto",
    trim_ns: int = 0,
    window_ns: int = 5 * SECOND_NS,
    worst: int = 5000,
    bucket_ns: int = 100,
    format: str | None = None,
    clocks: Clocks | None = None,
) -> Evaluation:
    """Match the packets of two captures and compute exact statistics of their latency.

    `ingress` and `egress` are capture files from before and after the device under test: pcap,
    pcapng, mscap or stamp files, plain or compressed. `key` says what packets are matched by:
    ``auto``, ``moonsniff``, ``signature`` or ``OFFSET:WIDTH:le|be``. Packets that left the device
    within `trim_ns` of the first one are left out; a packet must leave within `window_ns`. The
    `worst` largest latencies are kept with their stamps; gaps are counted in buckets of
    `bucket_ns`, which is also the width of latency histograms unless asked otherwise. `format`
    names the format of both files when it cannot be told by content.

    `clocks` says how the clock of `egress` is to that of `ingress` where these are two: see
    `evaluation.clocks.known` and `aligned`. All times of the result are those of the clock before
    the device, and every latency is known to ± `Evaluation.within_ns`. A packet is non-causal only
    if it is that for any of the clocks' differences, and may be in the device for a window by any.

    Raises `InputError` when the captures cannot be read or have no packet in common. Damage
    further into a capture is a warning: what stands before it is evaluated.
    """
    settings = Settings(key, trim_ns, window_ns, worst, bucket_ns, format, clocks)
    found = _core.evaluate(Path(ingress), Path(egress), bucket_ns=bucket_ns, **settings.matching())
    return concluded(found, settings)


def concluded(found: Mapping[str, Any], settings: Settings) -> Evaluation:
    """The evaluation that `tailtap._core` gave as a dictionary."""
    sides = {"ingress": found["ingress"], "egress": found["egress"]}
    inputs: dict[str, Json] = {
        name: {
            "path": str(side["path"]),
            "format": side["format"],
            "clock": side["clock"],
            "packets": side["packets"],
            "first_ns": side["first_ns"],
            "last_ns": side["last_ns"],
        }
        for name, side in sides.items()
    }
    warnings = [Warning(code, message) for code, message in found["warnings"]]
    if settings.clocks is not None:
        within = format_time(settings.clocks.within_ns)
        warnings.append(
            Warning(
                "two-clocks",
                f"the captures are of two clocks: every latency may be off by {within} to either "
                "side, which all bounds include",
            )
        )
    matched = found["counts"]["matched"]
    if matched < FEW_PACKETS:
        warnings.append(
            Warning(
                "few-packets",
                f"only {matched} packets were matched: the 99.9th percentile needs at least "
                f"{FEW_PACKETS} to have ten above it",
            )
        )
    return Evaluation(
        key=found["key"],
        key_reason=found["key_reason"],
        counts=found["counts"],
        mean=found["mean"],
        columns=Columns(
            distribution=found["distribution"],
            worst=found["worst"],
            exceedances=found["exceedances"],
            blocks=found["blocks"],
            gaps={name: side["gaps"] for name, side in sides.items()},
            rates={name: side["rates"] for name, side in sides.items()},
        ),
        inputs=inputs,
        options={
            "trim_ns": settings.trim_ns,
            "window_ns": settings.window_ns,
            "bucket_ns": settings.bucket_ns,
        },
        warnings=warnings,
        clocks=None if settings.clocks is None else settings.clocks.as_json(),
    )

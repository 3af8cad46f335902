"""What takes the cores of an idle machine, where somebody measured it into the results' folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.base.units import format_share, format_time, format_us
from tailtap.records.machine import NOISE, NoiseRecord
from tailtap.records.record import read

CAUSES = 8


@dataclass(frozen=True)
class Noise:
    """The rows of the page's tables; latencies in us."""

    above: str
    kernel: str
    cpus: Sequence[Sequence[str]]
    """CPU, gaps per second, median, p99, worst, share of the time."""
    causes: Sequence[Sequence[str]]
    """Cause, detail, gaps, worst, share of the time."""


def noise_of(folder: Path) -> Noise | None:
    """What `tailtap host noise` wrote into `folder`; None if nothing. Raises `InputError`."""
    path = folder / NOISE
    if not path.is_file():
        return None
    found = read(path, NoiseRecord)
    return Noise(
        above=format_time(found.above_ns),
        kernel=found.kernel,
        cpus=[
            (
                str(cpu.cpu),
                f"{cpu.gaps * 1e9 / cpu.elapsed_ns:,.0f}",
                format_us(cpu.median_ns),
                format_us(cpu.p99_ns),
                format_us(cpu.worst_ns),
                format_share(cpu.gap_ns / cpu.elapsed_ns, 3),
            )
            for cpu in found.cpus
            if cpu.elapsed_ns
        ],
        causes=[
            (
                row.cause,
                row.detail,
                f"{row.gaps:,}",
                format_us(row.worst_ns),
                format_share(row.share, 3),
            )
            for row in found.causes[:CAUSES]
        ],
    )

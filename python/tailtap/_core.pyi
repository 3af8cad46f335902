"""What the compiled module offers; a test compares this file with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

__all__ = ["evaluate", "percentiles"]

_Column: TypeAlias = NDArray[np.int64]

class _Side(TypedDict):
    path: Path
    format: str
    packets: int
    first_ns: int
    last_ns: int
    gaps: tuple[_Column, _Column]
    rates: tuple[_Column, _Column]

class _Evaluation(TypedDict):
    key: str
    key_reason: str | None
    counts: dict[str, int]
    mean: float
    distribution: tuple[_Column, _Column]
    histogram: tuple[_Column, _Column]
    worst: tuple[_Column, _Column, _Column, list[str]]
    ingress: _Side
    egress: _Side
    warnings: list[tuple[str, str]]

class _Percentiles(TypedDict):
    p: NDArray[np.float64]
    value: _Column
    low: list[int | None]
    high: list[int | None]
    above: _Column
    supported: NDArray[np.bool_]

def evaluate(
    ingress: Path,
    egress: Path,
    *,
    key: str | None = None,
    trim_ns: int,
    window_ns: int,
    worst: int,
    bucket_ns: int,
    ingress_format: str | None = None,
    egress_format: str | None = None,
) -> _Evaluation: ...
def percentiles(values: _Column, counts: _Column, ps: Sequence[float]) -> _Percentiles: ...

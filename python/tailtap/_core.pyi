"""What the compiled module offers; a test compares this file with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.int64]

class SideDict(TypedDict):
    path: Path
    format: str
    packets: int
    first_ns: int
    last_ns: int
    gaps: tuple[Column, Column]
    rates: tuple[Column, Column]

class EvaluationDict(TypedDict):
    key: str
    key_reason: str | None
    counts: dict[str, int]
    mean: float
    distribution: tuple[Column, Column]
    histogram: tuple[Column, Column]
    worst: tuple[Column, Column, Column, list[str]]
    ingress: SideDict
    egress: SideDict
    warnings: list[tuple[str, str]]

class PercentilesDict(TypedDict):
    p: NDArray[np.float64]
    value: Column
    low: list[int | None]
    high: list[int | None]
    above: Column
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
) -> EvaluationDict: ...
def percentiles(values: Column, counts: Column, ps: Sequence[float]) -> PercentilesDict: ...

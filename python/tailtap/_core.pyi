"""What the compiled module offers; a test compares this file with it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "conclude",
    "evaluate",
    "evaluate_piece",
    "forward",
    "generate",
    "merge",
    "percentiles",
    "plan",
    "tap",
]

_Column: TypeAlias = NDArray[np.int64]

class _Side(TypedDict):
    path: Path
    format: str
    clock: str
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
    worst: tuple[_Column, _Column, _Column, list[str]]
    exceedances: tuple[int, _Column, _Column, _Column]
    blocks: tuple[int, _Column, _Column, _Column, _Column]
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
def plan(
    ingress: Path,
    egress: Path,
    *,
    key: str | None = None,
    trim_ns: int,
    window_ns: int,
    worst: int,
    chunk_bytes: int,
    ingress_format: str | None = None,
    egress_format: str | None = None,
) -> list[bytes]: ...
def evaluate_piece(piece: bytes, *, stopped: Callable[[], bool] | None = None) -> bytes: ...
def merge(partials: Sequence[bytes]) -> bytes: ...
def conclude(partial: bytes, *, bucket_ns: int) -> _Evaluation: ...
def percentiles(values: _Column, counts: _Column, ps: Sequence[float]) -> _Percentiles: ...
def tap(
    links: list[tuple[str, str, bool, str | None, Path]],
    records: int,
    on_ready: Callable[[], object],
    *,
    duration_ns: int | None = None,
    count: int | None = None,
    cpu: int | None = None,
    measure_cost: bool = False,
) -> dict[str, dict[str, Any]]:
    """Stamp packets on links until SIGINT or SIGTERM.

    A link is (name, interface, egress, forward, stamp file). With `egress` the packets that leave
    are stamped, else those that arrive. The forward is an interface, "drop", or None for a passive
    tap. `on_ready` is called once all taps are attached. Returns what `tailtap tap --json` prints
    for each link. Raises `InputError` and `MachineError`.
    """

def generate(
    interface: str,
    rate: int,
    size: int,
    *,
    duration_ns: int | None = None,
    count: int | None = None,
    warm_up_ns: int = 0,
    flows: int = 1,
    cpu: int | None = None,
    bypass: bool = True,
    source_mac: bytes,
    destination_mac: bytes,
) -> dict[str, Any]:
    """Send constant bit rate traffic (pkt/s, bytes with FCS) and return generator.json.

    SIGINT and SIGTERM end it early; the report then says so. Raises `InputError` and
    `MachineError`.
    """

def forward(
    input: str,
    output: str,
    on_ready: Callable[[], object],
    *,
    hold: set[int],
    hold_for_ns: int,
    drop: set[int],
    duplicate: set[int],
    cpu: int | None = None,
) -> dict[str, int]:
    """Pass packets from input to output until SIGINT or SIGTERM; hold, drop, duplicate some.

    Returns the counts that `tailtap forward --json` prints. Raises `InputError` and
    `MachineError`.
    """

"""What the compiled module offers; a test compares this file with it."""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "check_tap_key",
    "conclude",
    "evaluate",
    "evaluate_piece",
    "forward",
    "generate",
    "merge",
    "most_packets",
    "percentiles",
    "plan",
    "recording",
    "redirect",
    "stamp",
    "tap",
]

_Column: TypeAlias = NDArray[np.int64]
_Address: TypeAlias = IPv4Address | IPv6Address
_Length: TypeAlias = tuple[Literal["ns", "packets"], int]

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
def stamp(
    links: list[tuple[str, str, str, bool, Path]],
    stamper: str,
    on_ready: Callable[[], object],
    *,
    duration_ns: int | None = None,
    count: int | None = None,
    cpu: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Stamp packets that interfaces receive until SIGINT or SIGTERM.

    A link is (name, interface, method, absorb, stamp file), with the method "metadata" (an XDP
    program reads the stamp) or "messages" (a packet socket receives it). The stamper is "hardware",
    the network card, which is made to stamp every packet meanwhile; or "software", the kernel. With
    `absorb`, possible with "metadata" alone, packets end here. Returns what `tailtap tap --json`
    prints for each link. Raises `InputError`, and `MachineError` for a card that cannot.
    """

def tap(
    links: list[tuple[str, str, bool, str | None, Path]],
    on_ready: Callable[[], object],
    *,
    snap: int | None = None,
    key: str,
    clock: str,
    rotate: tuple[int | None, int | None],
    records: int | None = None,
    flush_ns: int | None = None,
    duration_ns: int | None = None,
    count: int | None = None,
    cpu: int | None = None,
    measure_cost: bool = False,
) -> dict[str, dict[str, Any]]:
    """Stamp or capture packets on links until SIGINT or SIGTERM.

    A link is (name, interface, egress, forward, file). With `egress` the packets that leave are
    stamped, else those that arrive. The forward is an interface, "drop", or None for a passive tap.
    With `snap` its bytes of every packet are written as pcap, else stamps. `rotate` is the largest
    size in bytes and the longest time in ns of a file. `on_ready` is called once all taps are
    attached. Returns what `tailtap tap --json` prints for each link. Raises `InputError` and
    `MachineError`.
    """

def check_tap_key(key: str) -> None:
    """Raise `InputError` for a key whose ids `tap` cannot stamp."""

def generate(
    interface: str,
    *,
    rate: int | None,
    pattern: tuple[str, list[int]],
    sizes: Sequence[int],
    source: tuple[_Address, int],
    destination: tuple[_Address, int],
    source_ports: tuple[int, int],
    destination_ports: tuple[int, int],
    vlan: int | None,
    source_mac: bytes,
    destination_mac: bytes,
    replay: tuple[Path, bool] | None,
    length: _Length | None,
    warm_up: _Length,
    pause_ns: int,
    cpu: int | None,
    back_end: str,
    bypass: bool,
) -> dict[str, Any]:
    """Send packets (`rate` in pkt/s, `sizes` in bytes with FCS) and return generator.json.

    A pattern is its name and its values; addresses and ports are the first one and how many. A
    replay is a capture, sent in place of packets of ours, and whether to write ids into it;
    without a rate it has its own pace, and without a length it is sent once.
    SIGINT and SIGTERM end it early; the report then says so. Raises `InputError` and
    `MachineError`.
    """

def most_packets(pattern: tuple[str, list[int]], rate: int, duration_ns: int) -> int:
    """At least as many packets as `generate` sends in this time; exact unless chance decides.

    Raises `InputError` for a pattern that cannot be sent.
    """

def recording(path: Path, stamp_ids: bool) -> tuple[int, int, int, int]:
    """What a capture holds that is to be replayed.

    Its packets; how many of them have an id, with `stamp_ids` after it was written; the time after
    which it begins again in ns; and its largest frame in bytes, check sequence included. Raises
    `InputError` for a file that cannot be replayed.
    """

def redirect(
    input: str,
    output: str,
    on_ready: Callable[[], object],
    *,
    mode: str,
    both_ways: bool,
) -> None:
    """Redirect packets from input to output by an XDP program until SIGINT or SIGTERM.

    `mode` is ``native`` or ``generic``. Raises `InputError` and `MachineError`.
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
    limit: tuple[int, int] | None = None,
    cpu: int | None = None,
) -> dict[str, int]:
    """Pass packets from input to output until SIGINT or SIGTERM; hold, drop, duplicate some.

    `limit` is how many pass in a second, and how many may wait for their turn; more are dropped.
    Returns the counts that `tailtap forward --json` prints. Raises `InputError` and
    `MachineError`.
    """

"""The compiled module: analysis and datapath in Rust."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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

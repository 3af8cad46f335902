"""How long DuTs take to start, to run a command, and to go, side by side. Needs root.

A start is everything from the empty lab to two ports that are up; every platform has its turn in
each round. A container's Debian root file system is made before, if it has to be.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from tailtap.base.errors import MachineError
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.platforms.roots import ROOTS
from tailtap.lab.topology.lab import Lab

ROUNDS = 5
COMMANDS = 10
CPU = 1
SETUPS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "bare-metal": ("bare-metal", {}),
    "container, root: host": ("container", {}),
    "container, root: debian": ("container", {"root": "debian"}),
    "vm": ("vm", {}),
}


def once(platform: str, options: Mapping[str, str]) -> tuple[float, float, float]:
    """Milliseconds of a start, of a command, and of the removal with the whole lab."""
    kind = PLATFORMS[platform]
    spec = DutSpec((CPU,), kind.Options.model_validate(options))
    with Lab(graph_of(alike(kind, spec))) as lab:
        began = time.perf_counter()
        [device] = build(lab, alike(kind, spec))
        lab.wait_until_up()
        started = time.perf_counter()
        for _ in range(COMMANDS):
            device.host.run(["true"])
        ran = time.perf_counter()
    removed = time.perf_counter()
    return (started - began) * 1e3, (ran - started) * 1e3 / COMMANDS, (removed - ran) * 1e3


def main() -> None:
    """Prints the table."""
    setups = dict(SETUPS)
    try:
        ROOTS["debian"].lower()
    except MachineError as error:
        print(f"without a Debian root: {error}")
        del setups["container, root: debian"]
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in setups}
    for _ in range(ROUNDS):
        for name, setup in setups.items():
            found[name].append(once(*setup))
    print(f"{'':26}{'start':>12}{'command':>12}{'removal':>12}   median of {ROUNDS}, ms")
    for name, rounds in found.items():
        values = "".join(
            f"{statistics.median(column):12.1f}" for column in zip(*rounds, strict=True)
        )
        print(f"{name:26}{values}")


if __name__ == "__main__":
    main()

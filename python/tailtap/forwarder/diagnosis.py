"""The checks of `tailtap doctor` for forwarders: look for programs, and try the kernel."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tailtap.check import Check
from tailtap.errors import MachineError, TailtapError
from tailtap.forwarder.setting import Need, Setting
from tailtap.machine.privileges import missing_capabilities
from tailtap.platform import PLATFORMS, Dut, DutSpec, alike, build, graph_of
from tailtap.stations.local import LocalHost
from tailtap.topology.lab import Lab
from tailtap.topology.smallest import FORWARD
from tailtap.traffic.model import Traffic

AREA = "forwarders"
PROBE_CPU = 0


def find_programs(name: str, needs: Sequence[Need]) -> Iterator[Check]:
    """Whether the programs of the forwarder `name` are there."""
    try:
        paths = [need.find(LocalHost()) for need in needs]
    except MachineError as error:
        remedy = next(need.remedy for need in needs if need.remedy in str(error))
        yield Check(AREA, name, "missing", str(error).removesuffix(f": {remedy}"), remedy)
        return
    yield Check(AREA, name, "ok", ", ".join(paths) or "needs nothing of its own")


def try_in_lab(
    name: str,
    attempt: Callable[[Dut, Setting], str],
    remedy: str = "another kernel; see docs/forwarders.md",
    *,
    required: bool = False,
) -> Iterator[Check]:
    """Whether the kernel lets the forwarder `name` work, found out in a lab that is removed.

    `attempt` returns what it found, or raises `TailtapError`.
    """
    if os.geteuid() != 0 or missing_capabilities():
        found = "only root can try it"
        yield Check(AREA, name, "untested", found, "run it with sudo", required)
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-"))
        try:
            platform = PLATFORMS["bare-metal"]
            spec = DutSpec((PROBE_CPU,), platform.Options())
            lab = stack.enter_context(Lab(graph_of(alike(platform, spec))))
            [dut] = build(lab, alike(platform, spec))
            lab.wait_until_up()
            found = attempt(dut, Setting(lab, Path(folder), {FORWARD: Traffic()}))
        except TailtapError as error:
            yield Check(AREA, name, "missing", str(error), remedy, required)
            return
    yield Check(AREA, name, "ok", found, required=required)

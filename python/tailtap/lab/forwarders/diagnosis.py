"""The checks of `tailtap doctor` for forwarders: look for programs, and try the kernel."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tailtap.base.check import Check
from tailtap.base.errors import TailtapError
from tailtap.host.changes.privileges import missing_capabilities
from tailtap.lab.forwarders.setting import Need, Setting
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import PLATFORMS, Dut, DutSpec, alike, build, graph_of
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.line import FORWARD
from tailtap.remote import ProgramMissing
from tailtap.remote.local import LocalHost

AREA = "forwarders"
PROBE_CPU = 0


def find_programs(name: str, needs: Sequence[Need]) -> Iterator[Check]:
    """Whether the programs of the forwarder `name` are there."""
    try:
        paths = [need.find(LocalHost()) for need in needs]
    except ProgramMissing as error:
        yield Check(AREA, name, "missing", error.what, error.remedy)
        return
    yield Check(AREA, name, "ok", ", ".join(paths) or "needs nothing of its own")


def try_in_lab(
    name: str,
    attempt: Callable[[Dut, Setting], str],
    remedy: str = "another kernel; see docs/reference/forwarders.md",
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

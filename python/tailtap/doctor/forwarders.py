"""Which forwarders this machine can run: those in the kernel are tried, programs looked for."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tailtap.doctor.check import Check
from tailtap.errors import MachineError, TailtapError
from tailtap.forwarder import FORWARDERS, Forwarder, Setting
from tailtap.host.local import LocalHost
from tailtap.host.privileges import missing_capabilities
from tailtap.platform import PLATFORMS, Wanted
from tailtap.topology.lab import Lab
from tailtap.traffic.model import Traffic

AREA = "forwarders"
TRIED = ("tc-mirred", "kernel-route", "xdp")
"""Those that ask nothing but the kernel, so that their start tells all."""
PROBE_CPU = 0


def check_forwarders() -> Iterator[Check]:
    """One check for each forwarder; none of them is required."""
    may_try = os.geteuid() == 0 and not missing_capabilities()
    for name, kind in FORWARDERS.items():
        if name in TRIED:
            if may_try:
                yield _tried(name, kind)
            else:
                yield Check(AREA, name, "untested", "only root can try it", "run it with sudo")
        else:
            yield _found(name, kind)


def _found(name: str, kind: Forwarder) -> Check:
    try:
        paths = [need.find(LocalHost()) for need in kind.needs]
    except MachineError as error:
        remedy = next(need.remedy for need in kind.needs if need.remedy in str(error))
        return Check(AREA, name, "missing", str(error).removesuffix(f": {remedy}"), remedy)
    return Check(AREA, name, "ok", ", ".join(paths) or "needs nothing of its own")


def _tried(name: str, kind: Forwarder) -> Check:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-"))
        try:
            traffic = Traffic()
            lab = stack.enter_context(Lab(max(traffic.sizes)))
            dut = PLATFORMS["bare-metal"].build(lab, Wanted((PROBE_CPU,)))
            assert dut is not None
            lab.wait_until_up()
            setting = Setting(lab, Path(folder), traffic)
            kind.start(dut, kind.Options(), setting).close()
        except TailtapError as error:
            remedy = "another kernel; see docs/forwarders.md"
            return Check(AREA, name, "missing", str(error), remedy)
    return Check(AREA, name, "ok", "was set up in a lab")

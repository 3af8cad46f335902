"""Whether DuTs can be containers here, found out by starting one."""

from __future__ import annotations

from collections.abc import Iterator

from tailtap.doctor.check import Check
from tailtap.doctor.kernel import PROBE_CPU
from tailtap.errors import MachineError
from tailtap.host.privileges import missing_capabilities
from tailtap.platform import PLATFORMS, Wanted
from tailtap.topology.lab import Lab
from tailtap.traffic.sizes import MIN_SIZE
from tailtap.units import format_time

AREA = "containers"
NAME = "LXC"


def check_containers() -> Iterator[Check]:
    """A container is started, limited to one CPU, and removed."""
    if missing_capabilities():
        yield Check(AREA, NAME, "untested", "only root can try it", "run it with sudo")
        return
    try:
        with Lab(MIN_SIZE) as lab:
            device = PLATFORMS["container"].build(lab, Wanted((PROBE_CPU,)))
    except MachineError as error:
        remedy = "install the Debian package lxc, on a kernel with cpuset control groups"
        yield Check(AREA, NAME, "missing", str(error), remedy)
        return
    assert device is not None
    version = device.facts["cgroup"]["cpuset"]["version"]
    started = format_time(round(device.facts["start_ns"], -6))
    found = f"one was started in {started}, limited by control groups of version {version}"
    yield Check(AREA, NAME, "ok", found)

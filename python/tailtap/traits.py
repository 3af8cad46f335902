"""What the rest of the program has to know of a platform, whatever it is called.

The row of a platform says it, and every run keeps it, so that results can be read where the
platform is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Virtualization = Literal["none", "container", "machine"]


@dataclass(frozen=True)
class Traits:
    """Properties of a platform."""

    has_dut: bool = True
    """False when nothing is between the taps: no forwarder is needed, and the latency is the
    floor."""
    own_kernel: bool = False
    """Whether the DuT's kernel is another one than this machine's."""
    virtualization: Virtualization = "none"
    """What keeps the DuT apart from the machine: nothing, a container, or a virtual machine."""

    def as_json(self) -> dict[str, Any]:
        """The traits in ``run.json``."""
        return asdict(self)


def together(several: Iterable[Traits]) -> Traits:
    """Those of a DuT whose nodes have these: the most virtual of them counts."""
    found = list(several)
    order = get_args(Virtualization)
    return Traits(
        any(one.has_dut for one in found),
        any(one.own_kernel for one in found),
        max((one.virtualization for one in found), key=order.index),
    )


BUILT_IN: Mapping[str, Traits] = {
    "wire": Traits(has_dut=False),
    "bare-metal": Traits(),
    "container": Traits(virtualization="container"),
    "crun": Traits(virtualization="container"),
    "runc": Traits(virtualization="container"),
    "podman": Traits(virtualization="container"),
    "vm": Traits(own_kernel=True, virtualization="machine"),
}
"""The traits of our own platforms, which runs of earlier versions did not keep."""


def traits_of(record: Mapping[str, Any]) -> Traits | None:
    """The traits of a run's platform, from the content of ``run.json``; None when unknown."""
    stored = record.get("traits")
    if isinstance(stored, Mapping):
        fields = Traits.__dataclass_fields__
        return Traits(**{name: value for name, value in stored.items() if name in fields})
    parameters = record.get("parameters")
    dut = parameters.get("dut") if isinstance(parameters, Mapping) else None
    return BUILT_IN.get(str(dut.get("platform"))) if isinstance(dut, Mapping) else None

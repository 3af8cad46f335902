"""What the rest of the program has to know of a platform, whatever it is called.

The row of a platform says it, and every run keeps it, so that results can be read where the
platform is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from tailtap.records.record import Record

Virtualization = Literal["none", "container", "machine"]


class Traits(Record, kw_only=True):
    """Properties of a platform."""

    has_dut: bool = True
    """False when nothing is between the taps: no forwarder is needed, and the latency is the
    floor."""
    own_kernel: bool = False
    """Whether the DuT's kernel is another one than this machine's."""
    virtualization: Virtualization = "none"
    """What keeps the DuT apart from the machine: nothing, a container, or a virtual machine."""


def together(several: Iterable[Traits]) -> Traits:
    """Those of a DuT whose nodes have these: the most virtual of them counts."""
    found = list(several)
    order = get_args(Virtualization)
    return Traits(
        has_dut=any(one.has_dut for one in found),
        own_kernel=any(one.own_kernel for one in found),
        virtualization=max((one.virtualization for one in found), key=order.index),
    )


BUILT_IN: Mapping[str, Traits] = {
    "wire": Traits(has_dut=False),
    "bare-metal": Traits(),
    "container": Traits(virtualization="container"),
    "crun": Traits(virtualization="container"),
    "runc": Traits(virtualization="container"),
    "podman": Traits(virtualization="container"),
    "vm": Traits(own_kernel=True, virtualization="machine"),
    "vm-vhost": Traits(own_kernel=True, virtualization="machine"),
}
"""The traits of our own platforms, which runs of others name and do not describe."""

"""What the firmware does behind the kernel's back."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping
from functools import partial

from tailtap.host.facts import machine as facts
from tailtap.host.knobs.knob import Knob, Told, fixed
from tailtap.host.knobs.purpose import PHYSICAL, Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

SMI_COUNT = 0x34
"""MSR_SMI_COUNT of arch/x86/include/asm/msr-index.h: interrupts since reset."""
SECONDS = 1.0
_PERF = "/sys/bus/event_source/devices/msr/events/smi"
_REGISTER = struct.Struct("<Q")


def _interrupts(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    """How many there are on one core in a second; each of them stops all cores."""
    if facts.cpuinfo("vendor_id", tree.root) != "GenuineIntel":
        raise Absent("only processors of Intel count them")
    if facts.under_hypervisor(tree.root):
        raise Absent("a virtual machine is not told")
    path = f"/dev/cpu/{(purpose.cpus or tree.online or (0,))[0]}/msr"
    if tree.exists(path):
        before = _count(tree, path)
        time.sleep(SECONDS)
        return {path: str(_count(tree, path) - before)}
    if tree.is_live and tree.exists(_PERF):
        return {_PERF: _counted_by_perf()}
    raise Unreadable("nothing shows the count: load the module msr, or install perf")


def _count(tree: Tree, path: str) -> int:
    try:
        file = os.open(tree.at(path), os.O_RDONLY)
        try:
            (found,) = _REGISTER.unpack(os.pread(file, _REGISTER.size, SMI_COUNT))
        finally:
            os.close(file)
    except (OSError, struct.error) as error:
        raise Unreadable(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    return int(found) & 0xFFFF_FFFF


def _counted_by_perf() -> str:
    words = ["perf", "stat", "-x", ",", "-C", "0", "-e", "msr/smi/", "sleep", f"{SECONDS:g}"]
    try:
        return LocalHost().run(words).stderr.strip().splitlines()[-1].partition(",")[0]
    except (CommandFailed, IndexError) as error:
        raise Unreadable(f"perf does not tell: {error}") from None


row = partial(Knob, group="interrupts")
ROWS = (
    row(
        "firmware-interrupts",
        Told(f"MSR {SMI_COUNT:#x} of a core, for a second", _interrupts, "number"),
        fixed("0"),
        "The firmware takes all cores for tens of microseconds and more (System Management "
        "Interrupts), unseen by tracers. Its settings for power, memory errors and legacy USB "
        "decide how often.",
        "Documentation/admin-guide/cpu-isolation.rst; turbostat(8): SMI",
        removes=("gap",),
        risk=0,
        roles=PHYSICAL,
    ),
)

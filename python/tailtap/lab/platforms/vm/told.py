"""What a guest's kernel says of itself once it has booted: its files, recorded on this machine.

One command in the guest prints them, as starting tailtap there takes seconds where QEMU emulates
the CPU. What reads this machine's files then reads the guest's.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailtap.base.errors import MachineError
from tailtap.host.knobs.knob import Files
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.audit import Audit, audit
from tailtap.lab.platforms.vm.kernels import Kernel
from tailtap.lab.platforms.vm.line import Line, rows, write_tree
from tailtap.records.record import as_json
from tailtap.remote.guest import GuestHost

SHELL = "/run/busybox"
"""Where a guest keeps the shell that it booted with: it needs none of this machine's files."""
_CPU = "/sys/devices/system/cpu"
_IOMMU = "/sys/class/iommu/dmar0/intel-iommu/version"
FILES = (
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/[0-9]*/comm",
    "/proc/irq/default_smp_affinity",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/version",
    *(f"{_CPU}/{name}" for name in ("online", "possible", "isolated", "nohz_full")),
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/fs/cgroup/cpuset.cpus.isolated",
    "/sys/kernel/realtime",
    _IOMMU,
)
"""What is read, beside the files that a knob names; the rest is in the script."""
LOG = "/dev/kmsg"
INTERRUPTS = "/interrupts"
"""No file of a kernel: the CPUs that the ports' interrupts may go to."""
_TELL = """b=$1 release=$2; shift 2
$b grep -Hs '' $*
$b dmesg | $b sed -e 's|^\\[ *[0-9.]*\\] ||' -e 's|^|/dev/kmsg:6,0,0,-;|'
[ ! -e /proc/config.gz ] || $b zcat /proc/config.gz | $b sed "s|^|/boot/config-$release:|"
for irq in $(for port in /sys/class/net/*/device; do
        name=$($b readlink "$port") && $b sed -n \\
            "s/^ *\\([0-9]*\\):.* ${name##*/}\\(-[io][nu].*put.*\\|,.*\\)\\?$/\\1/p" \\
            /proc/interrupts
    done) \\
    $(cd /sys/class/net && $b ls tt-in/device/msi_irqs tt-out/device/msi_irqs 2> /dev/null \\
        | $b grep '^[0-9]*$')
do $b cat /proc/irq/$irq/smp_affinity_list; done | $b sort -u | $b sed 's|^|/interrupts:|'
"""


@contextlib.contextmanager
def recorded(guest: GuestHost, kernel: Kernel, purpose: Purpose) -> Iterator[Tree]:
    """The guest's files, as far as a run asks for them. Raises `MachineError`."""
    places = [one.where for one in rows() if isinstance(one.where, Files)]
    paths = dict.fromkeys([*FILES, *(path for one in places for path in one.patterns(purpose))])
    command = [SHELL, "sh", "-c", _TELL, "tell", SHELL, kernel.release, *paths]
    files: dict[str, list[str]] = {}
    for line in guest.run(command).stdout.splitlines():
        path, _, text = line.partition(":")
        files.setdefault(path, []).append(text)
    if not {"/proc/cmdline", "/proc/meminfo", LOG} <= files.keys():
        raise MachineError(f"the guest does not tell what it is: it has only {' '.join(files)}")
    config = f"/boot/config-{kernel.release}"
    if config not in files and kernel.config is not None:
        files[config] = kernel.config.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory(prefix="tailtap-") as folder:
        write_tree(Path(folder), {path: "\n".join([*text, ""]) for path, text in files.items()})
        yield Tree(Path(folder))


def judged(tree: Tree, purpose: Purpose) -> Audit:
    """The audit of what words on the guest's line set, and of the line itself."""
    return audit(tree, purpose, [knob.name for knob in rows()])


def as_record(found: Audit, line: Line) -> dict[str, Any]:
    """`platform.tuning` of ``run.json``: the audit of the guest's boot, and what it left out."""
    return as_json(found.tuning(found.rows, left=line.left))


def require_effect(found: Audit, line: Line) -> None:
    """Raises `MachineError` when a word of the table does not do in the guest what it is for."""
    for row in found.rows:
        word = line.recommended.get(row.knob.name)
        if word is not None and row.answer == "not-met":
            raise MachineError(
                f"dut.tuning: the guest was booted with {word}, but its {row.knob.where.place} "
                f"says {row.value}: take a kernel that can do it, or dut.tuning: runtime"
            )


def interrupt_cpus(tree: Tree) -> str:
    """The CPUs that the interrupts of the guest's ports may go to, each list once."""
    return " ".join((tree.look(INTERRUPTS) or "").splitlines())


def has_iommu(tree: Tree) -> bool:
    """Whether the guest's kernel uses an IOMMU."""
    return tree.look(_IOMMU) is not None

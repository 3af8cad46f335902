"""The command line of a guest's kernel: what every guest has, what the table of knobs recommends
for that kernel, and what the experiment asks for.

The kernel has not booted yet. How it was built tells which words it understands: a word that would
do nothing is left out and named, as is one that `dut.boot` says otherwise.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.base.files import drafted, make_folder
from tailtap.host.knobs import KNOBS, select
from tailtap.host.knobs.knob import Files, Knob
from tailtap.host.knobs.line import not_built
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable
from tailtap.host.tuning.audit import audit
from tailtap.lab.platforms import boot
from tailtap.lab.platforms.boot import KernelOptions
from tailtap.lab.platforms.dut import DutSpec
from tailtap.lab.platforms.vm.kernels import Kernel
from tailtap.records.printed import AuditRecord
from tailtap.remote.guest import GuestHost

ALWAYS = "console=ttyS0 quiet panic=-1 no_timer_check ipv6.disable=1 random.trust_cpu=on"
"""A guest says what goes wrong, ends when it crashes, relies on its timer, and sends no packets
of its own."""


@dataclass(frozen=True)
class Line:
    """The words of one guest's kernel."""

    asked: str
    """What the experiment asks for, whichever way."""
    recommended: Mapping[str, str] = field(default_factory=dict)
    """Those of them that come from the table, by their knob."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Knobs of the table whose word is left out, and why, a clause."""

    @property
    def text(self) -> str:
        return f"{ALWAYS} {self.asked}".strip()


@dataclass(frozen=True)
class _NotBooted(Tree):
    """A kernel that has not booted: how it was built is known, and nothing else."""

    def text(self, path: str) -> str:
        try:
            return super().text(path)
        except Absent:
            raise Unreadable(f"{path} tells, and only once the kernel runs") from None


def purpose_of(spec: DutSpec[KernelOptions]) -> Purpose:
    """What the guest is for: CPU 0 is its own, the others are the DuT's."""
    return Purpose("vm-guest", tuple(range(1, len(spec.cpus) + 1)), (0,))


def rows() -> list[Knob]:
    """The knobs of a guest that words on the line set, and those that judge the line itself."""
    return [
        knob
        for knob in KNOBS
        if "vm-guest" in knob.roles and (knob.word is not None or knob.name.startswith("line-"))
    ]


def line_of(spec: DutSpec[KernelOptions], kernel: Kernel) -> Line:
    """The line of a guest with that kernel."""
    purpose = purpose_of(spec)
    asked = boot.filled_in(spec.options.boot, purpose.cpus)
    if not spec.tuned_boot:
        return Line(asked)
    own = {one.name: one for one in boot.parameters(asked)}
    words: dict[str, str] = {}
    left: dict[str, str] = {}
    with _not_booted(kernel) as tree:
        for knob in rows():
            if knob.word is None or not knob.recommended:
                continue
            try:
                word = knob.word(purpose, tree)
            except (Absent, Unreadable) as reason:
                left[knob.name] = str(reason)
                continue
            [parameter] = boot.parameters(word)
            if parameter.name in own:
                left[knob.name] = f"dut.boot says {own[parameter.name]}"
            elif option := not_built(tree, word):
                left[knob.name] = f"the kernel was built without {option}"
            else:
                words[knob.name] = word
    return Line(" ".join([*words.values(), asked]).strip(), words, left)


@contextlib.contextmanager
def _not_booted(kernel: Kernel) -> Iterator[Tree]:
    config = kernel.config
    text = "" if config is None else config.read_text(encoding="utf-8")
    realtime = "CONFIG_PREEMPT_RT=y" in text.splitlines()
    with tempfile.TemporaryDirectory(prefix="tailtap-") as folder:
        files = {
            "proc/sys/kernel/osrelease": kernel.release,
            "proc/sys/kernel/version": "PREEMPT_RT" if realtime else "not booted",
            **({f"boot/config-{kernel.release}": text} if text else {}),
        }
        write_tree(Path(folder), files)
        yield _NotBooted(Path(folder))


def write_tree(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a machine, by their paths, below `folder`."""
    for path, text in files.items():
        file = folder / path.lstrip("/")
        make_folder(file.parent, below=folder)
        with drafted(file, below=folder) as draft:
            draft.write(text.encode())


SHELL = "/run/busybox"
"""Where a guest keeps the shell that it booted with: it needs none of this machine's files."""
_CPU = "/sys/devices/system/cpu"
IOMMU = "/sys/class/iommu/dmar0/intel-iommu/version"
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
    IOMMU,
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


def judged(tree: Tree, purpose: Purpose) -> AuditRecord:
    """The audit of what words on the guest's line set, and of the line itself."""
    return audit(tree, purpose, [knob.name for knob in rows()])


def require_effect(found: AuditRecord, line: Line) -> None:
    """Raises `MachineError` when a word of the table does not do in the guest what it is for."""
    for row in found.rows:
        word = line.recommended.get(row.name)
        if word is not None and row.answer == "not-met":
            [knob] = select([row.name])
            raise MachineError(
                f"dut.tuning: the guest was booted with {word}, but its {knob.where.place} "
                f"says {row.value}: take a kernel that can do it, or dut.tuning: runtime"
            )

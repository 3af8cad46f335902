"""Whether KVM works here, found out by booting a kernel under it.

The device node proves nothing: under a hypervisor that offers KVM, guests may still hang, some
after their first instructions. So a kernel must boot until it misses its root file system.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tailtap.base.files import make_folder, write_json
from tailtap.lab.platforms.vm.kernels import CACHE, Kernel
from tailtap.remote.local import LocalHost

QEMU = "qemu-system-x86_64"
DEVICE = Path("/dev/kvm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROBE_SECONDS = 10.0
"""How long the kernel may take; with KVM it needs one second."""
REACHED = "VFS: Unable to mount root fs"
"""The last message of a kernel that found everything else."""


@dataclass(frozen=True)
class Accelerator:
    """KVM or TCG, and the reason."""

    kind: Literal["kvm", "tcg"]
    reason: str

    @property
    def emulated(self) -> bool:
        """Whether QEMU emulates the CPU (TCG): latency then says nothing."""
        return self.kind == "tcg"


def accelerator(kernel: Kernel) -> Accelerator:
    """KVM if `kernel` boots under it, else TCG. The answer is kept until this machine reboots.

    Raises `MachineError` when QEMU is missing.
    """
    known = remembered()
    if known is not None:
        return known
    found = _probe(kernel)
    path = _memory()
    make_folder(path.parent)
    write_json(path, {"boot": _boot(), **asdict(found)})
    return found


def foreseen() -> Accelerator | None:
    """What `accelerator` would find; None when it would have to try. Makes nothing."""
    return remembered() or _without_device()


def remembered() -> Accelerator | None:
    """The answer that is stored since this machine booted; None when there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        content = json.loads(_memory().read_text(encoding="utf-8"))
        if content["boot"] == _boot():
            return Accelerator(content["kind"], content["reason"])
    return None


def _without_device() -> Accelerator | None:
    return None if DEVICE.exists() else Accelerator("tcg", f"there is no {DEVICE}")


def _probe(kernel: Kernel) -> Accelerator:
    without = _without_device()
    if without is not None:
        return without
    LocalHost().run([QEMU, "--version"])
    command = [QEMU, "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults", "-no-reboot"]
    command += ["-display", "none", "-serial", "stdio", "-kernel", str(kernel.image)]
    command += ["-append", "console=ttyS0 panic=-1"]
    with tempfile.TemporaryFile() as said:
        try:
            subprocess.run(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=PROBE_SECONDS,
                check=False,
            )
            ended = "it ended"
        except subprocess.TimeoutExpired:
            ended = f"it hung for {PROBE_SECONDS:g} s"
        said.seek(0)
        words = said.read().decode(errors="replace")
        if REACHED in words:
            return Accelerator("kvm", f"{kernel.release} booted under KVM")
        ended += explanation(words)
    return Accelerator("tcg", f"{DEVICE} is there, but {kernel.release} did not boot: {ended}")


def explanation(words: str) -> str:
    """The most telling line of QEMU's and the kernel's output."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines[-1:]
    return f": {errors[0].removeprefix(f'{QEMU}: ')}" if errors else ""


def _memory() -> Path:
    return CACHE / "kvm.json"


def _boot() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()

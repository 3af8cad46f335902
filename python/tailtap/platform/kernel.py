"""Kernels by the names that experiments give them, and whether the one that runs is such a one.

- ``rt`` preempts nearly everywhere (CONFIG_PREEMPT_RT).
- ``nohz`` stops the timer tick on the DuT's CPUs (nohz_full, which implies rcu_nocbs for them)
  and keeps the scheduler off them (isolcpus).
- ``vanilla`` does neither.

Anything else is a version, as ``uname -r`` prints it or the beginning of it, or the path of a
kernel image.
"""

from __future__ import annotations

import platform as python_platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tailtap.errors import MachineError
from tailtap.host.cpus import list_cpus, parse_cpus

VANILLA, RT, NOHZ = "vanilla", "rt", "nohz"
NAMES = (VANILLA, RT, NOHZ)
ROOT = Path("/")
# The header of an x86 kernel image: a magic number, and where the version string stands;
# Documentation/arch/x86/boot.rst.
_MAGIC_AT, _MAGIC = 0x202, b"HdrS"
_VERSION_AT, _VERSION_BASE, _VERSION_BYTES = 0x20E, 0x200, 128


@dataclass(frozen=True)
class Kernel:
    """What of a running kernel bears on latency."""

    release: str
    version: str
    realtime: bool
    nohz_full: tuple[int, ...]
    isolated: tuple[int, ...]

    def kind(self, cpus: Sequence[int]) -> str:
        """The name of this kernel, for a DuT on `cpus`."""
        if self.realtime:
            return RT
        return VANILLA if self.lacks_of_nohz(cpus) else NOHZ

    def lacks_of_nohz(self, cpus: Sequence[int]) -> list[str]:
        """What the command line would have to say for ``nohz`` on `cpus`."""
        have = {"nohz_full": self.nohz_full, "isolcpus": self.isolated}
        return [f"{key}={list_cpus(cpus)}" for key, found in have.items() if set(cpus) - set(found)]

    def facts(self, cpus: Sequence[int]) -> dict[str, Any]:
        """The kernel in ``run.json``."""
        return {"kind": self.kind(cpus), **asdict(self)}


def running_kernel(root: Path = ROOT) -> Kernel:
    """The kernel of this machine. `root` stands in for ``/`` in tests."""
    cpus = root / "sys/devices/system/cpu"
    release = _read(root / "proc/sys/kernel/osrelease") or python_platform.release()
    version = _read(root / "proc/sys/kernel/version") or python_platform.version()
    realtime = "PREEMPT_RT" in version or _read(root / "sys/kernel/realtime") == "1"
    return Kernel(
        release,
        version,
        realtime,
        cpus_or_none(_read(cpus / "nohz_full")),
        cpus_or_none(_read(cpus / "isolated")),
    )


def check_host_kernel(wanted: str | None, cpus: Sequence[int], root: Path = ROOT) -> dict[str, Any]:
    """The facts of this machine's kernel, which is the `wanted` one.

    Raises `MachineError` that says which runs and how to boot the other when it is not.
    """
    kernel = running_kernel(root)
    facts = kernel.facts(cpus)
    kind = facts["kind"]
    runs = f"dut.kernel: this machine runs {kernel.release} ({kind})"
    if wanted is None or wanted == kind:
        return facts
    if wanted == RT:
        raise MachineError(
            f"{runs}, not a real-time kernel: boot one, such as that of the Debian package "
            "linux-image-rt-amd64, or take dut.platform: vm, which brings its own"
        )
    if wanted == NOHZ:
        lacking = " ".join([*kernel.lacks_of_nohz(cpus), f"rcu_nocbs={list_cpus(cpus)}"])
        other = "one without PREEMPT_RT with " if kernel.realtime else ""
        raise MachineError(
            f"{runs}, not a tickless one: boot {other}{lacking} on the command line, "
            "on a kernel with CONFIG_NO_HZ_FULL"
        )
    if wanted == VANILLA:
        how = "one without PREEMPT_RT" if kernel.realtime else "it without nohz_full and isolcpus"
        raise MachineError(f"{runs}, not a vanilla one: boot {how}")
    version = version_of(wanted, root) if "/" in wanted else wanted
    if not _same(version, kernel.release):
        raise MachineError(
            f"{runs}, not {version}: boot that one, or take dut.platform: vm, which brings its own"
        )
    return facts


def _same(version: str, release: str) -> bool:
    """Whether `version` is `release` or the beginning of it, up to a dot or a dash."""
    return release == version or release.startswith((f"{version}.", f"{version}-"))


def version_of(image: str, root: Path = ROOT) -> str:
    """The release that the kernel image at this path says it is."""
    try:
        with (root / image.removeprefix("/")).open("rb") as file:
            header = file.read(_VERSION_AT + 2)
            if header[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
                raise MachineError(f"dut.kernel: {image} is no kernel image")
            file.seek(_VERSION_BASE + int.from_bytes(header[_VERSION_AT:], "little"))
            words = file.read(_VERSION_BYTES).split(b"\0")[0].split()
    except OSError as error:
        raise MachineError(f"dut.kernel: cannot read {image}: {error.strerror}") from error
    if not words:
        raise MachineError(f"dut.kernel: {image} does not say which version it is")
    return words[0].decode("ascii", errors="replace")


def cpus_or_none(text: str | None) -> tuple[int, ...]:
    """The CPUs in the content of a file such as ``nohz_full``, which may name none."""
    # A kernel with CONFIG_NO_HZ_FULL but without nohz_full= prints "(null)".
    return parse_cpus(text) if text and text[0].isdigit() else ()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        return None

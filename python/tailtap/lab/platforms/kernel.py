"""Kernels by their names in experiments, and whether this machine runs the named one.

- ``rt`` preempts nearly everywhere (CONFIG_PREEMPT_RT).
- ``vanilla`` does not.

Anything else is a version, as ``uname -r`` prints it or the beginning of it, or the path of a
kernel image. Boot parameters are separate: see `boot.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tailtap.base.errors import MachineError
from tailtap.host.facts import machine as facts
from tailtap.host.facts.machine import ROOT

VANILLA, RT = "vanilla", "rt"
NAMES = (VANILLA, RT)
# The header of an x86 kernel image: a magic number, and where the version string stands;
# Documentation/arch/x86/boot.rst.
_MAGIC_AT, _MAGIC = 0x202, b"HdrS"
_VERSION_AT, _VERSION_BASE, _VERSION_BYTES = 0x20E, 0x200, 128


@dataclass(frozen=True)
class Kernel:
    """The properties of a running kernel that matter for latency."""

    release: str
    version: str
    realtime: bool

    @property
    def kind(self) -> str:
        """The name of this kernel."""
        return RT if self.realtime else VANILLA

    def facts(self) -> dict[str, Any]:
        """The kernel in ``run.json``."""
        return {"kind": self.kind, **asdict(self)}


def check_kernel(name: str) -> str:
    """Return `name`. Raises `ValueError` for a name that is no kernel any more."""
    if name == "nohz":
        raise ValueError(
            "nohz is no kernel, but boot parameters: write dut.boot: "
            "'nohz_full={cpus} rcu_nocbs={cpus} isolcpus={cpus}' and leave dut.kernel out"
        )
    return name


def running_kernel(root: Path = ROOT) -> Kernel:
    """The kernel of this machine. `root` stands in for ``/`` in tests."""
    release, version = facts.kernel_release(root), facts.kernel_version(root)
    return Kernel(release, version, facts.is_realtime(root))


def check_host_kernel(wanted: str | None, root: Path = ROOT) -> dict[str, Any]:
    """The facts of this machine's kernel, which is the `wanted` one.

    Raises `MachineError` that says which runs and how to boot the other when it is not.
    """
    kernel = running_kernel(root)
    told = kernel.facts()
    runs = f"dut.kernel: this machine runs {kernel.release} ({kernel.kind})"
    if wanted is None or wanted == kernel.kind:
        return told
    if wanted == RT:
        raise MachineError(
            f"{runs}, not a real-time kernel: boot one, such as that of the Debian package "
            "linux-image-rt-amd64, or take dut.platform: vm, which brings its own"
        )
    if wanted == VANILLA:
        raise MachineError(f"{runs}, not a vanilla one: boot one without PREEMPT_RT")
    version = version_of(wanted, root) if "/" in wanted else wanted
    if not _same(version, kernel.release):
        raise MachineError(
            f"{runs}, not {version}: boot that one, or take dut.platform: vm, which brings its own"
        )
    return told


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

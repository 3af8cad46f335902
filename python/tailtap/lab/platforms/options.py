"""Options that several platforms have in common: keys of `dut` in an experiment file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tailtap.base.schema import Ports, Strict
from tailtap.lab.platforms import boot
from tailtap.lab.platforms.boot import check_boot
from tailtap.lab.platforms.dut import DutSpec
from tailtap.lab.platforms.kernel import check_kernel


class PortOptions(Strict):
    """Options of a platform whose ports can be network cards."""

    ports: Ports | None = Field(
        default=None,
        description="Two network cards of this machine that are the DuT's ports: before it and "
        "behind it. tap.ports names the cards at the other ends of their cables. By default the "
        "ports are virtual links.",
        examples=[["enp1s0f0", "enp1s0f1"]],
    )


class KernelOptions(PortOptions):
    """Options of a platform that depends on the kernel and on what it was booted with."""

    kernel: Annotated[str, AfterValidator(check_kernel)] | None = Field(
        default=None,
        description="The kernel that the DuT runs: vanilla, rt (real-time), a version as "
        "`uname -r` prints it or the beginning of it, or the absolute path of a kernel image. A "
        "virtual machine boots it, and so does a testbed's host (docs/howto/testbed.md). Elsewhere "
        "the run fails, and says what to boot, where this machine runs another kernel. By default "
        "any kernel will do.",
        examples=["rt", "6.1", "/boot/vmlinuz-6.1.0-37-rt-amd64"],
    )
    boot: Annotated[str, AfterValidator(check_boot)] = Field(
        default="",
        description="Parameters of that kernel's command line; {cpus} stands for the DuT's CPUs. A "
        "virtual machine boots with them, as does a testbed's host (docs/howto/testbed.md). "
        "Elsewhere the run fails where this machine was booted without them, or with parameters "
        "that only other runs of the experiment ask for.",
        examples=["nohz_full={cpus} isolcpus={cpus}"],
    )


def require_boot_of_host(spec: DutSpec[KernelOptions]) -> dict[str, Any]:
    """The facts of what this machine was booted with. Raises `MachineError` when it will not do."""
    own = spec.options.boot
    without = boot.parameters_of_others(own, spec.varied.get("boot", ()))
    return boot.require_of_host(own, without, spec.cpus)

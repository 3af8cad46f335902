"""`kexec`: the running kernel loads the next one, and jumps into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.base.schema import NoOptions
from tailtap.measure.testbed.boot import PUT, Files, brought, go
from tailtap.measure.testbed.far import FarHost
from tailtap.remote import CommandFailed

LOAD_SECONDS = 120.0
"""How long it may take to check and copy an initial RAM disk of hundreds of MB."""


class Kexec:
    """By kexec_file_load(2), or kexec_load(2) on kernels without it."""

    @contextlib.contextmanager
    def boot(self, host: FarHost, files: Files) -> Iterator[None]:
        """Load the kernel, end the services, and jump. Raises `MachineError`."""
        try:
            kernel, *initrd = brought(host, files)
            if len(initrd) > 1:  # kexec takes one
                joined = f"{PUT}/joined"
                host.run(["sh", "-c", 'cat "$@" > "$0"', joined, *initrd])
                initrd = [joined]
            command = ["kexec", "--kexec-syscall-auto", "--load", kernel]
            command += [f"--initrd={path}" for path in initrd]
            command += [f"--command-line={files.line}"]
            try:
                host.run(command, seconds=LOAD_SECONDS)
            except CommandFailed as error:
                raise MachineError(
                    f"{host.name} cannot load {files.release} by kexec: {error.reason}: its "
                    "kernel may lack CONFIG_KEXEC, or be locked down by Secure Boot: take another "
                    "`via`"
                ) from error
            # It is in the kernel's memory now.
        finally:
            with contextlib.suppress(MachineError):
                host.run(["rm", "-rf", PUT])
        go(host, ["systemctl", "kexec"], ["kexec", "--exec"])
        yield

    def tidy(self, host: FarHost) -> None:
        """Nothing is left: the files were in the memory of the kernel before."""


class KexecKind:
    """The running kernel boots the next one."""

    summary = "The running kernel loads the next one and jumps into it."
    documentation = (
        "It skips the firmware, and takes seconds where a reset of a server takes minutes; network "
        "cards keep what the last driver left in them. The host needs kexec-tools."
    )
    Options: type[BaseModel] = NoOptions

    def diagnose(self) -> Iterator[Check]:
        """Nothing here: the host needs kexec-tools."""
        yield Check("boot way", "kexec", "ok", "needs nothing on this machine")

    def open(self, name: str, options: BaseModel) -> Kexec:
        """It has no options."""
        return Kexec()

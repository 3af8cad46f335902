"""How a host goes down, and where it keeps files until then."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.base.errors import MachineError
from tailtap.measure.testbed.boot import Files
from tailtap.measure.testbed.far import FarHost
from tailtap.remote import CommandFailed, NoAnswer, ProgramMissing

GO_SECONDS = 20.0
"""How long a host may take to say that it goes down. After a kexec it says nothing."""
PUT = "/run/tailtap-boot"
"""Where files are until they are loaded: in memory, so that a reboot forgets them."""


def brought(host: FarHost, files: Files, folder: str = PUT) -> list[str]:
    """The paths on the host of the kernel and of the initial RAM disk, which are brought there."""
    if not files.ours:
        return [str(path) for path in files.paths]
    host.run(["mkdir", "-p", "-m", "700", folder])
    found = []
    for path in files.paths:
        try:
            host.put(path, f"{folder}/{path.name}")
        except OSError as error:
            raise MachineError(str(error.strerror)).at(path) from error
        found.append(f"{folder}/{path.name}")
    return found


def go(host: FarHost, with_systemd: Sequence[str], without: Sequence[str]) -> None:
    """Have the host go down by one of these commands, whichever its first process is for.

    Raises `CommandFailed` when it refuses; that the connection ends is no failure.
    """
    systemd = host.run(["test", "-d", "/run/systemd/system"], check=False).status == 0
    host.run(["sync"])
    try:
        host.run(with_systemd if systemd else without, seconds=GO_SECONDS)
    except NoAnswer:
        pass
    except (CommandFailed, ProgramMissing):
        raise
    except MachineError:
        pass  # the connection has ended


def reboot(host: FarHost) -> None:
    """Have the host reboot, through its firmware."""
    go(host, ["systemctl", "reboot"], ["reboot", "-f"])

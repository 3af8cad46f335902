"""`lxc`: a container of LXC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from pydantic import BaseModel, Field

from tailtap.base.check import Check
from tailtap.base.schema import Matching, Strict
from tailtap.bmc import BootDevice, State
from tailtap.remote import CommandFailed, ProgramMissing
from tailtap.remote.local import LocalHost, require_program

ASK_SECONDS = 10.0
SWITCH_SECONDS = 60.0
PROGRAMS = ("lxc-info", "lxc-start", "lxc-stop")
STOPPED = "STOPPED"


class LxcOptions(Strict):
    """Which container."""

    name: Annotated[
        str, Matching(r"^[A-Za-z0-9_.][A-Za-z0-9_.:-]*$", "the name of a container, such as web")
    ] = Field(
        max_length=255,
        description="The container's name.",
        examples=["web"],
    )
    path: Annotated[str, Matching(r"^/", "a path that begins with /")] | None = Field(
        default=None,
        description="The folder of containers that it is in. By default LXC's own.",
        examples=["/srv/containers"],
    )


class Container:
    """A container that LXC has a configuration of, by LXC's own programs."""

    def __init__(self, options: LxcOptions) -> None:
        self._place = ["-n", options.name, *(["-P", options.path] if options.path else [])]
        self._device: BootDevice = "default"
        for program in PROGRAMS:
            require_program(program)
        self.status()

    def status(self) -> State:
        """Off is stopped; all else is on: also frozen, starting and stopping."""
        told = self._run("lxc-info", "-s", "-H", seconds=ASK_SECONDS).strip()
        return "off" if told == STOPPED else "on"

    def on(self) -> None:
        if self.status() == "off":
            self._run("lxc-start", "-d")

    def off(self) -> None:
        if self.status() == "on":
            self._run("lxc-stop", "-k")

    def cycle(self) -> None:
        self.off()
        self.on()

    def reset(self) -> None:
        self.cycle()

    def shutdown(self) -> None:
        self._run("lxc-stop", "--nokill", "--nowait")

    def boot_device(self) -> BootDevice:
        return self._device

    def set_boot_device(self, device: BootDevice) -> None:
        self._device = device

    def _run(self, program: str, *arguments: str, seconds: float = SWITCH_SECONDS) -> str:
        command = [program, *self._place, *arguments]
        done = LocalHost().run(command, check=False, seconds=seconds)
        if done.status != 0:  # some of them say why on standard output
            raise CommandFailed(command, done.stderr or done.stdout or f"status {done.status}")
        return done.stdout


class LxcKind:
    """Containers of LXC."""

    summary = "A container of LXC."
    documentation = (
        "A boot device is kept and told, and changes nothing. Needs the Debian package lxc, and "
        "the rights to start that container."
    )
    Options: type[BaseModel] = LxcOptions

    def diagnose(self) -> Iterator[Check]:
        try:
            found = [require_program(program) for program in PROGRAMS]
        except ProgramMissing as error:
            remedy = "apt-get install --no-install-recommends lxc"
            yield Check("machines with a controller", "lxc", "missing", error.what, remedy)
        else:
            yield Check("machines with a controller", "lxc", "ok", ", ".join(found))

    def open(self, options: BaseModel) -> Container:
        return Container(cast("LxcOptions", options))

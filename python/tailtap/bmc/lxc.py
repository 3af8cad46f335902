"""`lxc`: a container of LXC."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tailtap.base.schema import Matching, Strict
from tailtap.bmc import State, Switches
from tailtap.remote import CommandFailed
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


class Container(Switches):
    """A container that LXC has a configuration of, by LXC's own programs."""

    def __init__(self, options: LxcOptions) -> None:
        self._place = ["-n", options.name, *(["-P", options.path] if options.path else [])]
        for program in PROGRAMS:
            require_program(program)
        self.status()

    def status(self) -> State:
        """Off is stopped; all else is on: also frozen, starting and stopping."""
        told = self._run("lxc-info", "-s", "-H", seconds=ASK_SECONDS).strip()
        return "off" if told == STOPPED else "on"

    def switch(self, wanted: State) -> None:
        self._run(*(("lxc-start", "-d") if wanted == "on" else ("lxc-stop", "-k")))

    def shutdown(self) -> None:
        self._run("lxc-stop", "--nokill", "--nowait")

    def _run(self, program: str, *arguments: str, seconds: float = SWITCH_SECONDS) -> str:
        command = [program, *self._place, *arguments]
        done = LocalHost().run(command, check=False, seconds=seconds)
        if done.status != 0:  # some of them say why on standard output
            raise CommandFailed(command, done.stderr or done.stdout or f"status {done.status}")
        return done.stdout

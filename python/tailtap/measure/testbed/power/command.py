"""`command`: power outlets and whatever else a command can switch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, Field

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.base.schema import Strict, Time, check_command
from tailtap.measure.testbed.power import State, settle
from tailtap.remote.local import LocalHost

_ANSWER = re.compile(r"(?:.*\s)?(on|off)\W*", re.IGNORECASE | re.DOTALL)
QUOTED = 100
"""How many characters of an answer an error quotes."""

Command = Annotated[
    str, Field(max_length=10_000), AfterValidator(lambda text: check_command(text, ()))
]
"""Words as a shell splits them; no shell runs them."""


class CommandOptions(Strict):
    """The commands."""

    status: Command = Field(
        description="Tells the state: the last word that it prints is `on` or `off`.",
        examples=["pdu-client outlet 3"],
    )
    # Not `on` and `off`: as keys these are truth values in YAML.
    switch_on: Command = Field(description="Switches it on.", examples=["pdu-client outlet 3 on"])
    switch_off: Command = Field(
        description="Switches it off.", examples=["pdu-client outlet 3 off"]
    )
    cycle: Command | None = Field(
        default=None,
        description="Switches it off and on. By default these two commands do.",
        examples=["pdu-client outlet 3 cycle"],
    )
    timeout: Time = Field(
        default=30_000_000_000,
        description="How long a command may take.",
        examples=["60 s"],
    )


class CommandPower:
    """Power by commands; each is split into words once, and no shell sees it."""

    def __init__(self, options: CommandOptions) -> None:
        """By the commands in `options`."""
        self.options = options

    def status(self) -> State:
        """The last word that the command prints. Raises `MachineError`."""
        told = self.run(self.options.status)
        found = _ANSWER.fullmatch(told.strip())
        if found is None:
            said = " ".join(told.split())[-QUOTED:]
            raise MachineError(
                f"status: `{self.options.status}` must print on or off as its last word, not "
                f"{said!r}"
            )
        return "on" if found[1].lower() == "on" else "off"

    def on(self) -> None:
        """Switch it on, and see that it is on. Raises `MachineError`."""
        if self.status() != "on":
            self.run(self.options.switch_on)
            settle(self.status, "on")

    def off(self) -> None:
        """Switch it off, and see that it is off. Raises `MachineError`."""
        if self.status() != "off":
            self.run(self.options.switch_off)
            settle(self.status, "off")

    def cycle(self) -> None:
        """By its own command if there is one. Raises `MachineError`."""
        if self.options.cycle is None or self.status() == "off":
            self.off()
            self.on()
        else:
            self.run(self.options.cycle)
            settle(self.status, "on")

    def run(self, command: str) -> str:
        """What `command` prints. Raises `MachineError`."""
        seconds = self.options.timeout / 1e9
        return LocalHost().run(shlex.split(command), seconds=seconds).stdout


class CommandKind:
    """Any commands that switch a machine."""

    summary = "Commands that switch and tell the power of a machine, such as those of an outlet."
    documentation = "No shell runs them: for a pipe, write `sh -c '…'`."
    Options: type[BaseModel] = CommandOptions

    def diagnose(self) -> Iterator[Check]:
        """Nothing: what it needs depends on its commands."""
        yield Check("power", "command", "ok", "needs nothing of its own")

    def open(self, options: BaseModel) -> CommandPower:
        """By the commands in `options`."""
        return CommandPower(cast("CommandOptions", options))

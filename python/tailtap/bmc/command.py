"""`command`: whatever commands can switch. It needs no root."""

from __future__ import annotations

from pydantic import Field

from tailtap.base.errors import MachineError
from tailtap.bmc import Switches
from tailtap.measure.testbed.power import Command, CommandOptions, CommandPower


class SwitchedOptions(CommandOptions):
    """The commands, and how the machine is called."""

    name: str = Field(
        min_length=1, max_length=255, description="What it is called.", examples=["outlet 3"]
    )
    reset: Command | None = Field(
        default=None,
        description="Lets it begin anew. By default it is switched off and on.",
        examples=["pdu-client outlet 3 reset"],
    )
    shutdown: Command | None = Field(
        default=None,
        description="Asks it to shut down. By default it cannot be asked.",
        examples=["ssh guest poweroff"],
    )


class Switched(CommandPower, Switches):
    """A machine that commands switch."""

    def __init__(self, options: SwitchedOptions) -> None:
        super().__init__(options)
        self.options: SwitchedOptions = options

    def reset(self) -> None:
        if self.options.reset is None:
            self.off()
            self.on()
        else:
            self.run(self.options.reset)

    def shutdown(self) -> None:
        if self.options.shutdown is None:
            raise MachineError(f"{self.options.name} has no command for shutdown")
        self.run(self.options.shutdown)

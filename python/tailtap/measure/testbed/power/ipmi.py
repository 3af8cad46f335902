"""`ipmi`: the management controller of a server, asked by the program ipmitool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

from pydantic import BaseModel, Field

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.base.schema import Matching, Strict
from tailtap.base.writing import read_password
from tailtap.measure.testbed.power import State, settle
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, require_program

SECONDS = 30.0
"""ipmitool asks each thing four times, in pauses of a second and more."""
_STATUS = re.compile(r"Chassis Power is (on|off)")


class IpmiOptions(Strict):
    """Where the controller is, and who asks."""

    address: Annotated[str, Matching(r"^[^-\s]\S*$", "a name or an address, such as 10.0.0.17")] = (
        Field(
            min_length=1,
            max_length=255,
            description="The controller's name or address.",
            examples=["10.0.0.17"],
        )
    )
    port: int = Field(default=623, ge=1, le=65535, description="Its UDP port.", examples=[6230])
    user: str = Field(
        min_length=1,
        max_length=16,
        description="The name of a user who may switch the power.",
        examples=["operator"],
    )
    password_file: str = Field(
        min_length=1,
        description="A file whose first line is the password. Nobody but its owner may use it.",
        examples=["/root/bmc.password"],
    )
    cipher_suite: int = Field(
        default=17,
        ge=1,
        le=255,
        description="How the session is protected: 17 (SHA-256, AES), or 3 (SHA-1, AES) for "
        "controllers that lack it.",
        examples=[3],
    )


class IpmiPower:
    """The power of a server by IPMI 2.0."""

    def __init__(self, options: IpmiOptions) -> None:
        """By the controller in `options`. Raises `InputError` for a password that others can read,
        and `MachineError` without ipmitool.
        """
        self.options = options
        password = Path(options.password_file).expanduser()
        read_password(password)
        self._command = [
            *(require_program("ipmitool"), "-I", "lanplus", "-C", str(options.cipher_suite)),
            # A controller that does not answer is asked again, not for as long as ipmitool would.
            *("-N", "2", "-R", "3"),
            *("-H", options.address, "-p", str(options.port), "-U", options.user),
            *("-f", str(password)),
        ]

    def command(self, *words: str) -> list[str]:
        """How ipmitool is called for `words`."""
        return [*self._command, *words]

    def status(self) -> State:
        """What the controller says. Raises `MachineError`."""
        told = self._ask("status")
        found = _STATUS.search(told)
        if found is None:
            raise MachineError(f"{self._where} does not tell its power: {' '.join(told.split())!r}")
        return "on" if found[1] == "on" else "off"

    def on(self) -> None:
        """Switch it on, and see that it is on. Raises `MachineError`."""
        if self.status() != "on":
            self._ask("on")
            settle(self.status, "on")

    def off(self) -> None:
        """Switch it off, and see that it is off. Raises `MachineError`."""
        if self.status() != "off":
            self._ask("off")
            settle(self.status, "off")

    def cycle(self) -> None:
        """Let the controller do so; it refuses when the server is off. Raises `MachineError`."""
        self._ask("on" if self.status() == "off" else "cycle")
        settle(self.status, "on")

    @property
    def _where(self) -> str:
        return f"the controller {self.options.address} port {self.options.port}"

    def _ask(self, what: str) -> str:
        try:
            return LocalHost().run(self.command("chassis", "power", what), seconds=SECONDS).stdout
        except CommandFailed as error:
            raise MachineError(
                f"{self._where} does not do `chassis power {what}`: {error.reason}: check address, "
                "user, password_file and cipher_suite"
            ) from error


class IpmiKind:
    """Management controllers that speak IPMI."""

    summary = "A server's management controller, by IPMI 2.0."
    documentation = (
        "Needs the Debian package ipmitool. What ipmitool is called with is in this machine's list "
        "of processes, the password excepted."
    )
    Options: type[BaseModel] = IpmiOptions

    def diagnose(self) -> Iterator[Check]:
        """Look for ipmitool."""
        try:
            yield Check("power", "ipmi", "ok", require_program("ipmitool"))
        except MachineError:
            remedy = "apt-get install --no-install-recommends ipmitool"
            yield Check("power", "ipmi", "missing", "the program ipmitool is missing", remedy)

    def open(self, options: BaseModel) -> IpmiPower:
        """By the controller in `options`."""
        return IpmiPower(cast("IpmiOptions", options))

"""`redfish`: the management controller of a server, asked over HTTPS. Needs `tailtap[redfish]`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field

from tailtap.base.check import Check
from tailtap.base.errors import MachineError, PackageMissing
from tailtap.base.schema import Matching, Strict
from tailtap.base.writing import read_password
from tailtap.measure.testbed.power import State, settle

REMEDY = "pip install sushy"
CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
"""Controllers are slow, but a request that takes longer than that hangs."""
RETRIES = 2
"""After errors of the server."""


class RedfishOptions(Strict):
    """Where the controller is, and who asks."""

    address: Annotated[
        str,
        Matching(r"^https?://[^\s/]+/?$", "the address of a controller, such as https://10.0.0.17"),
    ] = Field(
        description="The controller's address.",
        examples=["https://10.0.0.17"],
    )
    user: str = Field(
        min_length=1,
        description="The name of a user who may switch the power.",
        examples=["operator"],
    )
    password_file: str = Field(
        min_length=1,
        description="A file whose first line is the password. Nobody but its owner may use it.",
        examples=["/root/bmc.password"],
    )
    system: Annotated[str, Matching(r"^/redfish/v1/\S+$", "a path below /redfish/v1/")] | None = (
        Field(
            default=None,
            description="Which of the controller's systems; may be left out where it has one.",
            examples=["/redfish/v1/Systems/1"],
        )
    )
    certificate: str | bool = Field(
        default=True,
        description="A file with the certificate that the controller shows, where no authority "
        "signed it; `false` believes any, and with it whoever is in between.",
        examples=["/root/bmc.pem"],
    )


class RedfishPower:
    """The power of a server by Redfish."""

    def __init__(self, options: RedfishOptions) -> None:
        """By the controller in `options`. Raises `InputError` for a password that others can read,
        and `MachineError` without sushy.
        """
        if find_spec("sushy") is None:
            raise PackageMissing("Redfish needs", "sushy")
        self.options = options
        self._password = read_password(Path(options.password_file).expanduser())
        self._known: Any = None

    def status(self) -> State:
        """What the controller says; a machine that is being switched is what it was.

        Raises `MachineError`.
        """
        import sushy

        with self._talking():
            system = self._system()
            system.refresh(force=True)
            state = system.power_state
        if state not in set(sushy.PowerState):
            raise MachineError(f"{self.options.address} does not tell the power of its system")
        return "off" if state in (sushy.PowerState.OFF, sushy.PowerState.POWERING_ON) else "on"

    def on(self) -> None:
        """Switch it on, and see that it is on. Raises `MachineError`."""
        if self.status() != "on":
            self._reset("ON", "FORCE_ON")
            settle(self.status, "on")

    def off(self) -> None:
        """Switch it off, and see that it is off. Raises `MachineError`."""
        if self.status() != "off":
            self._reset("FORCE_OFF")
            settle(self.status, "off")

    def cycle(self) -> None:
        """By its own cycle if it has one, else by off and on. Raises `MachineError`."""
        if self.status() == "on" and self._reset("POWER_CYCLE", optional=True):
            settle(self.status, "on")
            return
        self.off()
        self.on()

    def _reset(self, *names: str, optional: bool = False) -> bool:
        """Ask for the first of `names` that the controller knows; whether there was one."""
        import sushy

        with self._talking():
            system = self._system()
            known = system.get_allowed_reset_system_values()
            for name in names:
                if sushy.ResetType[name] in known:
                    system.reset_system(sushy.ResetType[name])
                    return True
        if optional:
            return False
        raise MachineError(f"{self.options.address} cannot reset its system by {names[0]}")

    def _system(self) -> Any:
        import sushy

        if self._known is None:
            root = sushy.Sushy(
                self.options.address,
                username=self.options.user,
                password=self._password,
                verify=self.options.certificate,
                server_side_retries=RETRIES,
                read_timeout=ANSWER_SECONDS,
                connect_timeout=CONNECT_SECONDS,
            )
            self._known = root.get_system(self.options.system)
        return self._known

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        """Make `MachineError` of what goes wrong on the way to the controller and in it."""
        import requests
        import sushy.exceptions

        try:
            yield
        except sushy.exceptions.AccessError as error:
            raise MachineError(
                f"{self.options.address} refuses the user {self.options.user}: check user and "
                "password_file"
            ) from error
        except (sushy.exceptions.SushyError, requests.RequestException, OSError) as error:
            reason = " ".join(str(error).split())
            raise MachineError(
                f"{self.options.address} does not answer as Redfish does: {reason}: check address, "
                "certificate and system"
            ) from error


class RedfishKind:
    """Management controllers that speak Redfish."""

    summary = "A server's management controller, by Redfish."
    documentation = "Needs `pip install sushy`."
    Options: type[BaseModel] = RedfishOptions

    def diagnose(self) -> Iterator[Check]:
        """Look for the package that it needs."""
        if find_spec("sushy") is None:
            yield Check("power", "redfish", "missing", "the package sushy is missing", REMEDY)
        else:
            yield Check("power", "redfish", "ok", "sushy is installed")

    def open(self, options: BaseModel) -> RedfishPower:
        """By the controller in `options`."""
        return RedfishPower(cast("RedfishOptions", options))

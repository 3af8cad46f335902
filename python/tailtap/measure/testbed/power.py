"""The power of other machines: one class a kind, one row in `POWERS`.

`ipmi` asks the management controller of a server by the program ipmitool, `redfish` asks it over
HTTPS (`tailtap[redfish]`), and `command` calls what switches power outlets and others.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from tailtap.base.document import dotted, explain
from tailtap.base.errors import Check, InputError, MachineError, PackageMissing
from tailtap.base.locks import wait_until
from tailtap.base.registry import Kind, OwnKind, Registry
from tailtap.base.schema import Matching, Strict, Time, check_command
from tailtap.base.writing import read_password
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, require_program

State = Literal["on", "off"]


class Power(ABC):
    """The power of one machine. Every call ends within a time limit and raises `MachineError`."""

    @abstractmethod
    def status(self) -> State:
        """What the machine's power is now."""

    @abstractmethod
    def switch(self, wanted: State) -> None:
        """Switch a machine that is in the other state, at once and without asking its kernel."""

    def on(self) -> None:
        """Switch it on; returns when it is on. Does nothing to a machine that is on."""
        self.bring("on")

    def off(self) -> None:
        """Switch it off; returns when it is off."""
        self.bring("off")

    def bring(self, wanted: State) -> None:
        """Switch it if it is in the other state, and see that it is in this one."""
        if self.status() != wanted:
            self.switch(wanted)
            settle(self.status, wanted)

    def cycle(self) -> None:
        """Switch it off and on; a machine that is off is switched on.

        Returns when it is on. Some controllers say so before they switch it off: that a machine
        booted is seen by its boot_id only.
        """
        self.off()
        self.on()


class PowerKind(Kind, Protocol):
    """One kind of power control."""

    Options: type[BaseModel]
    """The keys beside ``kind``."""

    def open(self, options: BaseModel, /) -> Power:
        """The power of the machine that `options` name.

        Asks nothing yet. Raises `InputError` and `MachineError`.
        """
        ...


def _built_in() -> Mapping[str, PowerKind]:
    return {
        "ipmi": OwnKind(
            "A server's management controller, by IPMI 2.0.",
            "Needs the Debian package ipmitool. What ipmitool is called with is in this machine's "
            "list of processes, the password excepted.",
            IpmiOptions,
            IpmiPower,
            _look_for_ipmitool,
        ),
        "redfish": OwnKind(
            "A server's management controller, by Redfish.",
            "Needs `pip install sushy`.",
            RedfishOptions,
            RedfishPower,
            _look_for_sushy,
        ),
        "command": OwnKind(
            "Commands that switch and tell the power of a machine, such as those of an outlet.",
            "No shell runs them: for a pipe, write `sh -c '…'`.",
            CommandOptions,
            CommandPower,
            lambda: Check("power", "command", "ok", "needs nothing of its own"),
        ),
    }


POWERS: Registry[PowerKind] = Registry("power", "tailtap.powers", PowerKind, _built_in)


def power_of(options: Mapping[str, Any]) -> Power:
    """The power that ``{kind: ipmi, address: …}`` describes.

    Raises `InputError` that begins with the key, and `MachineError` when a package is missing.
    """
    try:
        row, model = POWERS.chosen("kind", options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        known = POWERS[options["kind"]].Options.model_fields
        said = explain(first, first["loc"], lambda _: list(known))
        raise InputError(said).at(dotted(first["loc"])) from error
    return row.open(model)


SETTLE_SECONDS = 60.0
"""Controllers of servers switch within seconds; some do so only after a graceful try."""
ASK_SECONDS = 0.5


def settle(status: Callable[[], State], wanted: State, seconds: float = SETTLE_SECONDS) -> None:
    """Return when the power is `wanted`; raises `MachineError` after `seconds`."""
    if not wait_until(lambda: status() == wanted, seconds, ASK_SECONDS):
        raise MachineError(
            f"the power is not {wanted} {seconds:g} s after it was switched {wanted}"
        )


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


class CommandPower(Power):
    """Power by commands; each is split into words once, and no shell sees it."""

    def __init__(self, options: CommandOptions) -> None:
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

    def switch(self, wanted: State) -> None:
        self.run(self.options.switch_on if wanted == "on" else self.options.switch_off)

    def cycle(self) -> None:
        if self.options.cycle is None or self.status() == "off":
            super().cycle()
        else:
            self.run(self.options.cycle)
            settle(self.status, "on")

    def run(self, command: str) -> str:
        seconds = self.options.timeout / 1e9
        return LocalHost().run(shlex.split(command), seconds=seconds).stdout


SECONDS = 30.0
"""ipmitool asks each thing four times, in pauses of a second and more."""
BUSY_SECONDS = 10.0
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


class IpmiPower(Power):
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
        return [*self._command, *words]

    def status(self) -> State:
        told = self._ask("status")
        found = _STATUS.search(told)
        if found is None:
            raise MachineError(f"{self._where} does not tell its power: {' '.join(told.split())!r}")
        return "on" if found[1] == "on" else "off"

    def switch(self, wanted: State) -> None:
        self._ask(wanted)

    def cycle(self) -> None:
        """Let the controller do so; it refuses when the server is off. Raises `MachineError`."""
        self._ask("on" if self.status() == "off" else "cycle")
        settle(self.status, "on")

    @property
    def _where(self) -> str:
        return f"the controller {self.options.address} port {self.options.port}"

    def _ask(self, what: str) -> str:
        """What ipmitool says. A controller that still does what came before is asked again."""
        command, answers = self.command("chassis", "power", what), []

        def is_free() -> bool:
            answers.append(LocalHost().run(command, seconds=SECONDS, check=False))
            return "Node busy" not in answers[-1].stderr

        try:
            wait_until(is_free, BUSY_SECONDS, 0.5)
            if answers[-1].status:
                raise CommandFailed(command, answers[-1].stderr)
            return answers[-1].stdout
        except CommandFailed as error:
            raise MachineError(
                f"{self._where} does not do `chassis power {what}`: {error.reason}: check address, "
                "user, password_file and cipher_suite"
            ) from error


def _look_for_ipmitool() -> Check:
    try:
        return Check("power", "ipmi", "ok", require_program("ipmitool"))
    except MachineError:
        remedy = "apt-get install --no-install-recommends ipmitool"
        return Check("power", "ipmi", "missing", "the program ipmitool is missing", remedy)


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


class RedfishPower(Power):
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

    def switch(self, wanted: State) -> None:
        self._reset(*(("ON", "FORCE_ON") if wanted == "on" else ("FORCE_OFF",)))

    def cycle(self) -> None:
        if self.status() == "on" and self._reset("POWER_CYCLE", optional=True):
            settle(self.status, "on")
        else:
            super().cycle()

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


def _look_for_sushy() -> Check:
    if find_spec("sushy") is None:
        return Check("power", "redfish", "missing", "the package sushy is missing", REMEDY)
    return Check("power", "redfish", "ok", "sushy is installed")

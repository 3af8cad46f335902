"""The power of other machines: one file a kind, one row in `POWERS`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ValidationError

from tailtap.base.check import Check
from tailtap.base.document import dotted, explain
from tailtap.base.errors import InputError, MachineError
from tailtap.base.registry import Registry
from tailtap.base.suggest import did_you_mean

__all__ = ["POWERS", "Power", "PowerKind", "State", "checked", "power_of"]

State = Literal["on", "off"]


class Power(Protocol):
    """The power of one machine. Every call ends within a time limit and raises `MachineError`."""

    def status(self) -> State:
        """What the machine's power is now."""
        ...

    def on(self) -> None:
        """Switch it on; returns when it is on. Does nothing to a machine that is on."""
        ...

    def off(self) -> None:
        """Switch it off at once, without asking its kernel; returns when it is off."""
        ...

    def cycle(self) -> None:
        """Switch it off and on; a machine that is off is switched on.

        Returns when it is on. Some controllers say so before they switch it off: that a machine
        booted is seen by its boot_id only.
        """
        ...


class PowerKind(Protocol):
    """One kind of power control."""

    summary: str
    """What it is, in one sentence."""

    documentation: str
    """What its users should know, as a paragraph of Markdown."""

    Options: type[BaseModel]
    """The keys beside ``kind``."""

    def diagnose(self) -> Iterator[Check]:
        """The checks of `tailtap doctor`: whether what it calls is there."""
        ...

    def open(self, options: BaseModel) -> Power:
        """The power of the machine that `options` name.

        Asks nothing yet. Raises `InputError` and `MachineError`.
        """
        ...


def _built_in() -> Mapping[str, PowerKind]:
    from tailtap.measure.testbed.power.command import CommandKind
    from tailtap.measure.testbed.power.ipmi import IpmiKind
    from tailtap.measure.testbed.power.redfish import RedfishKind

    return {"ipmi": IpmiKind(), "redfish": RedfishKind(), "command": CommandKind()}


POWERS: Registry[PowerKind] = Registry("power", "tailtap.powers", PowerKind, _built_in)
"""Every kind of power control by its name."""


def checked(options: Mapping[str, Any]) -> tuple[PowerKind, BaseModel]:
    """The kind and the options of ``{kind: ipmi, address: …}``.

    Raises `InputError` for a kind that is not known, and pydantic's `ValidationError`, whose
    places are the keys of `options`.
    """
    kind = options.get("kind")
    if kind is None:
        raise InputError(f"kind: this key is missing: it is one of {', '.join(POWERS)}")
    if not isinstance(kind, str) or kind not in POWERS:
        raise InputError(f"kind: there is no power {kind!r}: {did_you_mean(str(kind), POWERS)}")
    row = POWERS[kind]
    rest = {key: value for key, value in options.items() if key != "kind"}
    return row, row.Options.model_validate(rest)


def power_of(options: Mapping[str, Any]) -> Power:
    """The power that ``{kind: ipmi, address: …}`` describes.

    Raises `InputError` that begins with the key, and `MachineError` when a package is missing.
    """
    try:
        row, model = checked(options)
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
    deadline = time.monotonic() + seconds
    while status() != wanted:
        if time.monotonic() > deadline:
            raise MachineError(
                f"the power is not {wanted} {seconds:g} s after it was switched {wanted}"
            )
        time.sleep(ASK_SECONDS)

"""Serving controllers until it is enough."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal

from tailtap.base.errors import MachineError, PackageMissing
from tailtap.bmc.configuration import Configuration
from tailtap.records.record import Record


class BmcEvent(Record, kw_only=True, omit_defaults=True, rename={"address_of": "from"}):
    """Something that happened at the controller of a machine."""

    event: Literal["listening", "power", "boot", "refused", "failed"]
    machine: str
    address: str | None = None
    """Where it listens."""
    exposed: bool | None = None
    """Whether others than this machine reach that address."""
    action: str | None = None
    device: str | None = None
    user: str | None = None
    address_of: str | None = None
    """Where the user is."""
    why: str | None = None
    muted: bool | None = None
    """Whether further ones are not told for a minute."""


def serve(
    configuration: Configuration,
    tell: Callable[[BmcEvent], None],
    wait: Callable[[], object],
) -> None:
    """Serve all controllers of `configuration` until `wait` returns.

    `tell` is given what happens by several threads, one at a time. The machines stay as they are.
    Raises `MachineError` when a machine is missing or an address is taken; then nothing is served.
    """
    if find_spec("cryptography") is None:
        raise PackageMissing("controllers need", "cryptography")
    from tailtap.bmc.controller import Controller

    with contextlib.ExitStack() as stack:
        controllers: list[Controller] = []
        for number, one in enumerate(configuration.served, start=1):
            try:
                machine = one.kind.open(one.options)
            except MachineError as error:
                raise error.at(one.name) from error
            made = Controller(
                one.name, machine, one.listen, configuration.users, tell, number=number
            )
            controllers.append(made)
            stack.callback(made.close)
        for one, made in zip(configuration.served, controllers, strict=True):
            made.start()
            tell(
                BmcEvent(
                    event="listening", machine=one.name, address=made.address, exposed=one.exposed
                )
            )
        wait()

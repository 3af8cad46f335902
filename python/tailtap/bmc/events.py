"""What happens at controllers, as `tailtap bmc serve --json` prints it."""

from __future__ import annotations

from typing import Literal

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

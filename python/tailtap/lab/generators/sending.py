"""What a generator is given for one flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailtap.lab.generators.model import Traffic


class Sending(NamedTuple):
    """Traffic, and the port that it is sent into."""

    port: str
    traffic: Traffic

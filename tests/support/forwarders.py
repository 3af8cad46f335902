"""Which forwarders can be tested here."""

from __future__ import annotations

import pytest

from tailtap.base.errors import MachineError
from tailtap.lab.forwarders import FORWARDERS
from tailtap.remote.local import LocalHost


def require(name: str) -> None:
    """Skip the test when this machine lacks a program of the forwarder `name`."""
    try:
        for need in FORWARDERS[name].needs:
            need.find(LocalHost())
    except MachineError as error:
        pytest.skip(str(error))

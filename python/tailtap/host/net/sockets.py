"""Kinds of raw sockets that this kernel may lack."""

from __future__ import annotations

import socket

from tailtap.base.errors import MachineError

AF_XDP = 44
"""Not named by Python's socket module; include/linux/socket.h."""
OPTIONS = {AF_XDP: "CONFIG_XDP_SOCKETS", int(socket.AF_PACKET): "CONFIG_PACKET"}
"""What a kernel is built with to have them."""


def refusal(family: int) -> OSError | None:
    """Why no raw socket of this family can be opened; None when one can."""
    try:
        socket.socket(family, socket.SOCK_RAW).close()
    except OSError as error:
        return error
    return None


def require_socket(name: str, family: int) -> None:
    """Raises `MachineError` when no raw socket of the family `name` can be opened."""
    error = refusal(family)
    if error is not None:
        raise MachineError(
            f"no {name} socket can be opened here ({error.strerror}): take a kernel with "
            f"{OPTIONS[family]}"
        )

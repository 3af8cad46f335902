"""Whether the kernel reports system calls to an audit daemon: it is asked, by netlink.

The word ``audit=`` is what somebody wanted, and without it a daemon decides. `auditctl -s` asks the
same, and few machines have it; pyroute2 brings the protocol, and no family of messages for this.
"""

from __future__ import annotations

import errno
import os
import struct

from pyroute2.netlink import NLM_F_REQUEST, nlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nlsocket import NetlinkSocket

from tailtap.host.knobs.tree import Absent, Unreadable

FAMILY = 9
"""NETLINK_AUDIT; include/uapi/linux/netlink.h."""
GET = 1000
"""AUDIT_GET; include/uapi/linux/audit.h."""


class Status(nlmsg):  # type: ignore[misc]
    """The beginning of `struct audit_status`; include/uapi/linux/audit.h."""

    fields = (("mask", "I"), ("enabled", "I"))


def enabled() -> int:
    """0 when nothing is reported, 1 when it is, 2 when that cannot be changed any more.

    Raises `Absent` for a kernel without auditing, `Unreadable` where the kernel does not say.
    """
    try:
        socket = NetlinkSocket(family=FAMILY)
    except OSError as error:
        if error.errno in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT):
            raise Absent("this kernel was built without AUDIT") from None
        raise Unreadable(f"the kernel cannot be asked (AUDIT_GET): {error.strerror}") from None
    try:
        socket.marshal.msg_map[GET] = Status
        socket.bind()
        for answer in socket.nlm_request(Status(), msg_type=GET, msg_flags=NLM_F_REQUEST):
            return int(answer["enabled"])
    except (NetlinkError, OSError) as error:
        number = getattr(error, "code", None) or error.errno or 0
        told = "only root may ask the kernel" if number == errno.EPERM else os.strerror(number)
        raise Unreadable(f"{told} (AUDIT_GET)") from None
    except struct.error as error:
        raise Unreadable(f"the kernel's answer cannot be read (AUDIT_GET): {error}") from None
    finally:
        socket.close()
    raise Unreadable("the kernel does not answer (AUDIT_GET)")

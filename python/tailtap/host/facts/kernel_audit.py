"""Whether the kernel reports system calls to an audit daemon: it is asked, by netlink.

The word ``audit=`` is what somebody wanted, and without it a daemon decides. `auditctl -s` asks the
same, and few machines have it.
"""

from __future__ import annotations

import errno

from tailtap.host.knobs.tree import Absent, Unreadable


def enabled() -> int:
    """0 when nothing is reported, 1 when it is, 2 when that cannot be changed any more.

    Raises `Absent` for a kernel without auditing, `Unreadable` where the kernel does not say.
    """
    from tailtap import _core

    try:
        return _core.audit_enabled()
    except OSError as error:
        number = error.errno or 0
        if number in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT):
            raise Absent("this kernel was built without AUDIT") from None
        told = "only root may ask the kernel" if number == errno.EPERM else error.strerror
        raise Unreadable(f"{told} (AUDIT_GET)") from None

"""Work in many network namespaces from one thread: a process for each takes a hundred times longer.

The thread has a mount namespace of its own, so that nobody else sees what it mounts, and all of it
goes with the thread. It is `ip netns exec` (ip-netns(8)) without the process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tailtap.base.errors import MachineError

T = TypeVar("T")
G = TypeVar("G")
Work = Iterable[tuple[str, Callable[[], T]]]
"""Calls, each with the name of the namespace in which it is made."""

NAMESPACES = Path("/run/netns")
"""Where ip-netns(8) keeps namespaces by their names."""

# linux/sched.h, linux/mount.h, linux/sockios.h, linux/if.h
_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_ADVICE = {errno.EPERM: ": run it as root", errno.EINVAL: ": the root folder must be a mount"}
_REQUEST = "16sH14x"
"""``struct ifreq`` with flags in it."""


class NoNamespace(MachineError):
    """There is no network namespace of that name, or none any more."""


def inside(work: Work[T]) -> list[T]:
    """What each call returns, made in the network namespace of the name before it, in order.

    /sys and /proc/sys/net are those of that namespace. Raises `NoNamespace`, `MachineError`, and
    what a call raises: none is made after it.
    """
    with ThreadPoolExecutor(1) as thread:
        every: Iterator[T] = _each(work)
        return thread.submit(lambda: list(every)).result()


def inside_those_left(work: Work[T], gone: G) -> list[T | G]:
    """The same, with `gone` for the calls whose namespace is not there.

    Others may end theirs at any moment, so that nobody can ask for it beforehand.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: list(_each(work, [gone]))).result()


def _each(work: Work[T], gone: Sequence[G] = ()) -> Iterator[T | G]:
    _apart()
    where: str | None = None
    for namespace, call in work:
        if namespace != where:
            try:
                _enter(namespace)
            except NoNamespace:
                if not gone:
                    raise
                yield gone[0]
                continue
            where = namespace
        yield call()


def set_up(port: str) -> None:
    """Set an interface of the namespace that this thread is in up. Raises `MachineError`."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            asked = struct.pack(_REQUEST, port.encode(), 0)
            flags = struct.unpack(_REQUEST, fcntl.ioctl(control, _SIOCGIFFLAGS, asked))[1]
            wanted = struct.pack(_REQUEST, port.encode(), flags | _IFF_UP)
            fcntl.ioctl(control, _SIOCSIFFLAGS, wanted)
    except OSError as error:
        raise MachineError(f"{port} cannot be set up: {error.strerror}") from error


def _apart() -> None:
    """Give this thread a mount namespace of its own, which sees what others mount later."""
    _call("unshare", _CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)


def _enter(namespace: str) -> None:
    try:
        descriptor = os.open(NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NoNamespace(f"there is no network namespace {namespace}") from error
    try:
        # EINVAL: it is a file like any other, as ip-netns(8) leaves for a moment when it makes or
        # removes a namespace.
        if _call("setns", descriptor, _CLONE_NEWNET, fine=errno.EINVAL) == errno.EINVAL:
            raise NoNamespace(f"there is no network namespace {namespace}")
    finally:
        os.close(descriptor)
    # It shows the devices of the namespace in which it is mounted. EBUSY: it is there already, as
    # that is the namespace of this process.
    _call("mount", namespace.encode(), b"/sys", b"sysfs", 0, None, fine=errno.EBUSY)


def _call(name: str, *arguments: object, fine: int | None = None) -> int:
    """A function of the C library that Python does not have: 0, or the error that is `fine`.

    Raises `MachineError` for any other.
    """
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == 0:
        return 0
    error = ctypes.get_errno()
    if error != fine:
        why = f"cannot work in network namespaces: {name}: {os.strerror(error)}"
        raise MachineError(why + _ADVICE.get(error, ""))
    return error

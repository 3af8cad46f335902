"""Runs inside a virtual machine, as its first process, and there does what tailtap asks for.

The guest shares this machine's files, so the host's own interpreter runs this file, with nothing
but the standard library and the files that `frames.py` lists. One virtio-serial port carries all
channels: commands (`commands.py`) and files (`files.py`). It sleeps while there is nothing to do.

When the host lets go of the port the agent ends with everything that it started, and the guest
with it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

from tailtap.remote import files
from tailtap.remote.commands import Commands
from tailtap.remote.loop import READ_BYTES, Link, Loop
from tailtap.remote.mux import Mux

PAUSE_SECONDS = 0.02
"""How often it looks for a host, which is there before the guest boots."""


def program() -> str:
    """The program for ``python -I -S -c PROGRAM PORT COMMAND…``; the command runs in the end."""
    root = str(Path(__file__).resolve().parents[2])
    return f"import sys; sys.path.append({root!r}); from tailtap.remote.agent import main; main()"


def serve(requests: int, answers: int) -> None:
    """Serve commands and files on open descriptors, which may be one, until the requests end."""
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)  # a command that lives on would keep it open
    loop = Loop()
    commands = Commands(loop)
    woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)

    def reap() -> None:
        os.read(woken, READ_BYTES)
        commands.reap()

    loop.watch(woken, reading=reap)
    mux = Mux({"command": commands.serve, "get": files.get, "put": files.put})
    Link(loop, mux, requests, answers)
    while mux.over is None:
        loop.step()


def _wait_for_host(port: int) -> None:
    waiting = select.poll()
    waiting.register(port, 0)
    while any(event & select.POLLHUP for _, event in waiting.poll(0)):
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Serve the port that is named first, then become the command that follows, if there is one."""
    port = os.open(sys.argv[1], os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    _wait_for_host(port)
    serve(port, port)
    if sys.argv[2:]:
        os.execv(sys.argv[2], sys.argv[2:])

"""A child of tailtap that stands for a command in a virtual machine.

``python -m tailtap.host.relay SOCKET COMMAND…`` gives its output, ends as it ends, and passes
signals on: to tailtap it looks like the command itself.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.host.wire import Wire

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE = 125
"""The exit status when the virtual machine ended under the command."""


def relay(path: Path, command: Sequence[str]) -> int:
    """Run `command` at the other end; its exit status."""
    woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(waking)
    wire = Wire(path)
    wire.start(command)
    with contextlib.closing(wire), selectors.DefaultSelector() as selector:
        selector.register(wire, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if woken in ready:
                for caught in os.read(woken, 64):
                    wire.signal(caught)
            if wire.fileno() in ready:
                status = _take(wire)
                if status is not None:
                    return status


def _take(wire: Wire) -> int | None:
    """Pass on what has come; the command's status at its end."""
    for answer in wire.answers(time.monotonic()):
        if "exit" in answer:
            return int(answer["exit"])
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            if name in answer:
                stream.buffer.write(answer[name])
                stream.buffer.flush()
    return None


def main() -> None:
    """End as the command ended."""
    try:
        status = relay(Path(sys.argv[1]), sys.argv[2:])
    except MachineError as error:
        print(error, file=sys.stderr)
        sys.exit(GONE)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main()

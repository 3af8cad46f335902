"""Waits for descriptors, and sleeps while there is nothing to do: no timer wakes it up."""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Callable

from tailtap.remote.mux import Mux, ProtocolError

READ_BYTES = 65_536
EVENTS = (selectors.EVENT_READ, selectors.EVENT_WRITE)
Action = Callable[[], None]


class Loop:
    """Calls who waits for a descriptor."""

    def __init__(self) -> None:
        self.before_sleep: list[Action] = []
        """Called before each sleep: what the others left to send is sent."""
        self._selector = selectors.DefaultSelector()

    def watch(
        self, descriptor: int, *, reading: Action | None = None, writing: Action | None = None
    ) -> None:
        """Call these when `descriptor` can be read, or has ended, and written. None: forget it."""
        wanted = sum(event for event, action in zip(EVENTS, (reading, writing), strict=True)
                     if action is not None)  # fmt: skip
        known = descriptor in self._selector.get_map()
        if wanted and known:
            self._selector.modify(descriptor, wanted, (reading, writing))
        elif wanted:
            self._selector.register(descriptor, wanted, (reading, writing))
        elif known:
            self._selector.unregister(descriptor)

    def step(self, seconds: float | None = None) -> None:
        """Sleep until something can be done, at most so many seconds, and do it."""
        for action in self.before_sleep:
            action()
        for key, events in self._selector.select(seconds):
            for event, action in zip(EVENTS, key.data, strict=True):
                # An action before may have let go of the descriptor, or wait for other things.
                now = self._selector.get_map().get(key.fd)
                same = now is not None and now.data == key.data
                if same and action is not None and events & event:
                    action()

    def close(self) -> None:
        self._selector.close()


class Link:
    """A mux on descriptors; both may be the same."""

    def __init__(
        self, loop: Loop, mux: Mux, reading: int, writing: int, over: Action = lambda: None
    ) -> None:
        """What comes by `reading` is for `mux`, what it sends goes to `writing`, neither blocking.

        `over` is called once, when nothing more comes; `mux.over` says why.
        """
        self._loop, self._mux, self._over = loop, mux, over
        self._reading, self._writing = reading, writing
        self._sending = b""
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        self._watch(blocked=False)
        loop.before_sleep.append(self.flush)

    def flush(self) -> None:
        while self._mux.over is None:
            self._sending = self._sending or self._mux.take()
            if not self._sending:
                return
            try:
                self._sending = self._sending[os.write(self._writing, self._sending) :]
            except BlockingIOError:
                self._watch(blocked=True)
                return
            except OSError:  # whoever reads is gone: what it said last can still be read
                self._sending = b""
                return

    def read(self) -> None:
        try:
            received = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EINTR:
                return
            received = b""
        if received:
            try:
                self._mux.receive(received)
            except ProtocolError:
                received = b""
        if not received:
            self._mux.lose()
            self.close()
            self._over()

    def close(self) -> None:
        """Wait for nothing more. The descriptors stay open."""
        for descriptor in {self._reading, self._writing}:
            self._loop.watch(descriptor)
        if self.flush in self._loop.before_sleep:
            self._loop.before_sleep.remove(self.flush)

    def _unblocked(self) -> None:
        self._watch(blocked=False)
        self.flush()

    def _watch(self, *, blocked: bool) -> None:
        writing = self._unblocked if blocked else None
        if self._reading == self._writing:
            self._loop.watch(self._reading, reading=self.read, writing=writing)
        else:
            self._loop.watch(self._reading, reading=self.read)
            self._loop.watch(self._writing, writing=writing)

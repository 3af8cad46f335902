"""Whether the links of the lab stand: a run whose link went away in between is worth nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.base.errors import MachineError
from tailtap.lab.instruments.observing import Links, Reading, Scope
from tailtap.remote.process import Process


class LinkWatch:
    """Told by the kernel when a link is deleted; asked at the end whether all of them carry."""

    def start(self, scope: Scope) -> Watching:
        """Begin to listen."""
        return Watching(scope.links)


class Watching:
    """Processes that sleep until a link is deleted: polling would disturb what is measured."""

    def __init__(self, links: Links) -> None:
        """Listen to the news of `links`."""
        self._links = links
        self._processes = list(links.watch())
        self._silent: set[Process] = set()

    def sources(self) -> Sequence[Process]:
        """Those that may still tell something; `stop` stands in for one that has ended."""
        return [process for process in self._processes if process not in self._silent]

    def trouble(self) -> str | None:
        """The port that vanished, if one has."""
        for process in self.sources():
            lines = process.read_available()
            if lines is None:
                self._silent.add(process)
            for line in lines or ():
                port = self._links.deleted_port(line)
                if port is not None:
                    return f"interface {port} vanished during the run"
        return None

    def stop(self) -> Reading:
        """Nothing, as all links stand. Raises `MachineError` when one does not."""
        self.close()
        broken = self._links.broken_ports()
        if broken:
            raise MachineError(f"{broken[0]} during the run")
        return Reading()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()
        self._silent.update(self._processes)

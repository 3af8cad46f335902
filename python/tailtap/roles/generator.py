"""The role that sends: one load generator, for one flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailtap.machine import environment
from tailtap.machine.journal import boot_id
from tailtap.roles.role import Request, Workbench
from tailtap.roles.tuning import judged_as_generator
from tailtap.stations.process import Process
from tailtap.stations.session import FINISHED, Json
from tailtap.traffic import GENERATORS


class LoadGenerator:
    """Plan: ``{"flow"}``. Events: `finished`, when all packets are sent or it gave up."""

    def __init__(self, bench: Workbench, plan: Json) -> None:
        """A generator that sends nothing yet."""
        self._lab = bench.lab
        port = bench.lab.graph.flow(plan["flow"]).generator
        self._host, self._port = bench.lab.host(port.node), port.name
        self._experiment, self._traffic = bench.experiment, bench.traffic(plan["flow"])
        self._kind = GENERATORS[self._traffic.generator]
        self._process: Process | None = None
        self._ended = False

    def requests(self) -> Mapping[str, Request]:
        """What it can be asked: each one's answer is told by its method."""
        return {
            "describe": self._describe,
            "probe": self._probe,
            "start": self._start,
            "interrupt": self._interrupt,
            "result": self._result,
        }

    def sources(self) -> Sequence[Process]:
        """The generator's process while it sends."""
        return [self._process] if self._process is not None and not self._ended else []

    def look(self) -> Sequence[Json]:
        """Its end, which shows in its output, and by which it is ready to tell its result."""
        if not any(process.readable() for process in self.sources()):
            return []
        self._ended = True
        return [{"event": FINISHED}]

    def close(self) -> None:
        """End it if it still sends."""
        if self._process is not None:
            self._process.close()

    def _describe(self, content: Json) -> Json:
        """Its machine (`station`): `environment`, and the audit for the role generator (`tuning`).

        None where it is the DuT's machine, whose boot the question comes with (`boot_id`).
        """
        if content["boot_id"] is not None and content["boot_id"] == boot_id():
            return {"station": None}
        tuning = judged_as_generator(self._experiment)
        return {"station": {"environment": environment.describe(), "tuning": tuning}}

    def _probe(self, content: Json) -> Json:
        """Send a few packets that count for nothing, once the links are up."""
        self._lab.wait_until_up()
        self._kind.probe(self._host, self._port, self._traffic)
        return {}

    def _start(self, content: Json) -> Json:
        """Begin with the warm-up."""
        self._process = self._kind.start(self._host, self._port, self._traffic)
        return {}

    def _interrupt(self, content: Json) -> Json:
        """End early; what was sent until then counts."""
        if self._process is not None:
            self._process.interrupt()
        return {}

    def _result(self, content: Json) -> Json:
        """``generator.json``, after the end."""
        assert self._process is not None  # asked in order
        return {"generator": self._kind.result(self._process)}

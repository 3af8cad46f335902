"""A station without a machine behind it: its roles answer, and fail, die or hang when told to.

Packets that it "sent" took 1 us to 2 us, and their stamps are written as taps write them, so that
whatever evaluates a run has something to work on.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from made_records import keeping
from stamps import write_sides

from tailtap.base.errors import Findings, MachineError
from tailtap.records.machine import Environment, Kernel, Timekeeping
from tailtap.records.run import Window
from tailtap.remote.session import (
    ANSWER_SECONDS,
    FAILED,
    FINISHED,
    NOTHING,
    Closed,
    Foreseen,
    Json,
    RoleEvent,
    RolePlan,
    Setup,
)

PACKETS = 1000
_SENT_NS = 1_000_000_000 + np.arange(PACKETS) * 100_000
TIMES = _SENT_NS, _SENT_NS + 1000 + np.arange(PACKETS)
SLIP: Json = {"percentiles": [{"p": 0.99, "value": 100}]}
ANSWERS: Mapping[tuple[str, str], Json] = {
    ("dut", "prepare"): {
        "tuning": None,
        "boot_id": "of paper",
        "placement": None,
        "platform": {"kernel": {"release": "of paper"}},
        "warnings": [],
        "own_kernel": False,
        "patience": 1.0,
        "ready_seconds": 1.0,
        "holds_ns": 0,
    },
    ("dut", "why"): {"reason": "it sleeps"},
    ("dut", "read"): {
        "facts": {"softnet": {"1": {"processed": 10 * PACKETS}}, "elapsed_ns": 1},
        "warnings": [],
        "brought": {"kernel-counters": {"facts": ["elapsed_ns", "softnet"], "files": []}},
        "cpu_ns": None,
    },
    ("dut", "stop"): {"forwarder": {"version": "1"}},
    ("generator", "describe"): {"station": None},
    ("timestamper", "describe"): {"station": None},
}
SENT: Json = {
    "sent": PACKETS,
    "failed": 0,
    "scheduled_rate": 10_000.0,
    "achieved_rate": 10_000.0,
    "slip_ns": SLIP,
}
"""What the generator says of each flow."""

LIFETIME = Window(
    scope="machine", cpus=[0], elapsed_ns=1, events={}, estimated=[], by_cpu={"0": {}}
)
"""What processors counted as long as a site stood."""


@dataclass
class FakeStation:
    """What befalls its roles is said beforehand; what was asked of them stands in `asked`."""

    fails: Mapping[tuple[str, str], BaseException] = field(default_factory=dict)
    """Raised by a role, by its name, when it is asked something."""
    happens: Mapping[str, RoleEvent] = field(default_factory=dict)
    """An event of a role while packets are sent."""
    meddle: Callable[[str, str], None] = lambda role, request: None
    """Called with each role and what it is asked; may raise in its place."""
    endless: bool = False
    """Whether the generator never finishes."""
    slow: bool = False
    """Whether it finishes only when it is told to."""
    sent: Json = field(default_factory=dict)
    """What the generator says of each flow, where that is not `SENT`."""
    mute: bool = False
    """Whether nothing gets through the device."""
    passed: Iterator[tuple[int, int]] | None = None
    """What has come to ingress and egress each time that somebody asks; by default one packet more
    to both.
    """
    unseen: int = 0
    """How many packets the egress tap did not see."""
    answers: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    """What roles answer in place of `ANSWERS`."""
    nonsense: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    """What roles say whatever was done."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    said: dict[tuple[str, str], Json] = field(default_factory=dict)
    """What each question came with last."""
    opened: int = 0
    closed: int = 0
    cleaned: int = 0
    apart: Path | None = None
    """The folder of its own in which its roles write; by default they write where plans say."""
    name: str = "a fake"
    ahead_ns: int = 0
    """What its clock shows more than ours."""
    marker: Path | None = None
    """A file that is made when a site is closed."""
    times: Callable[[str], tuple[npt.ArrayLike, npt.ArrayLike]] = lambda _run: TIMES
    """When packets of the run of a name pass both taps, in ns; below 0 behind: they do not."""

    def environment(self) -> Environment:
        return Environment(kernel=Kernel(release="of paper"))

    def foresee(self, setup: Setup) -> Foreseen:
        self.answer("site", "foresee")
        nothing = Findings()
        return Foreseen(machine=nothing, run=Findings([f"no {setup.tasks[0]}"]))

    def open(self, setup: Setup) -> FakeSite:
        self.opened += 1
        self.answer("site", "open")
        return FakeSite(self)

    def clean(self) -> None:
        self.cleaned += 1

    def answer(self, role: str, request: str) -> Json:
        self.asked.append((role, request))
        self.meddle(role, request)
        if (role, request) in self.fails:
            raise self.fails[role, request]
        return dict({**ANSWERS, **self.answers}.get((role, request), {}))


@dataclass
class FakeSite:
    station: FakeStation
    _open: bool = True

    def begin(self, role: str, plan: RolePlan) -> FakeSession:
        self.station.answer(role, "begin")
        return FakeSession(self.station, role, plan)

    def keep(self, seconds: float) -> None:
        self.station.answer("site", "keep")

    def clock(self) -> int:
        self.station.answer("site", "clock")
        return time.monotonic_ns() + self.station.ahead_ns

    def timekeeping(self) -> Timekeeping:
        return keeping()

    def close(self) -> Closed:
        if self._open:
            self._open = False
            self.station.closed += 1
            self.station.answer("site", "close")
            if self.station.marker is not None:
                self.station.marker.touch()
        return Closed(counters={"lifetime": LIFETIME})


class FakeSession:
    def __init__(self, station: FakeStation, role: str, plan: RolePlan) -> None:
        self._station, self._role, self._plan = station, role, plan
        self._woken, self._waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._counted = 0
        self._flows = plan.flows
        self._folder = Path(plan.folder or "")
        if station.apart is not None:
            self._folder = station.apart / role
            self._folder.mkdir(parents=True, exist_ok=True)
        self._events: list[RoleEvent] = []
        self._closed = False

    def __del__(self) -> None:
        os.close(self._woken)
        os.close(self._waking)

    def ask(
        self,
        request: str,
        content: Mapping[str, object] = NOTHING,
        /,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Json:
        self._station.said[self._role, request] = dict(content)
        answer = self._station.answer(self._role, request)
        if (self._role, request) in self._station.nonsense:
            said: Json = self._station.nonsense[self._role, request]
            return said
        match self._role, request:
            case "generator", "result":
                return {"flows": {flow: {**SENT, **self._station.sent} for flow in self._flows}}
            case "generator", "start" if not self._station.endless and not self._station.slow:
                self._tell(RoleEvent(event=FINISHED))
            case "generator", "interrupt" if self._station.slow:
                self._tell(RoleEvent(event=FINISHED))
            case "dut", "observe":
                if self._role in self._station.happens:
                    self._tell(self._station.happens[self._role])
            case "timestamper", "restart":
                if self._role in self._station.happens:
                    self._tell(self._station.happens[self._role])
            case "timestamper", "count":
                self._counted += 0 if self._station.mute else 1
                count = {"ingress": self._counted, "egress": self._counted}
                if self._station.passed is not None:
                    count["ingress"], count["egress"] = next(self._station.passed)
                return {"flows": dict.fromkeys(self._flows, count)}
            case "timestamper", "stop":
                told = {flow: self._stamps(name) for flow, name in self._flows.items()}
                return {"cpus": "0", "flows": told}
            case "dut", "prepare":
                self._folder.joinpath("forwarder.log").write_text("it forwards\n", "utf-8")
        return answer

    def fileno(self) -> int:
        return self._woken

    def events(self) -> list[RoleEvent]:
        if self._events:
            os.read(self._woken, 64)
        found, self._events = self._events, []
        return found

    def fetch(self) -> None:
        self._station.answer(self._role, "fetch")
        if self._station.apart is not None and self._plan.folder is not None:
            shutil.copytree(self._folder, self._plan.folder, dirs_exist_ok=True)

    def close(self) -> None:
        self._closed = True

    def _tell(self, event: RoleEvent) -> None:
        self._events.append(event)
        os.write(self._waking, b".")

    def _stamps(self, name: str) -> Json:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        before, behind = map(np.asarray, self._station.times(name))
        write_sides(folder, before, behind, *np.flatnonzero(behind < 0))
        came = int((behind >= 0).sum())
        seen = {"ingress": before.size, "egress": came - self._station.unseen}
        return {
            "taps": {
                link: {"seen": count, "lost": 0, "file": f"{link}.stamps"}
                for link, count in seen.items()
            },
            "warnings": [],
            "files": ["egress.stamps", "ingress.stamps"],
            "points": [
                {"name": "ingress", "port": "tap:tt-a0", "file": "ingress.stamps", "before": "dut"},
                {"name": "egress", "port": "tap:tt-b0", "file": "egress.stamps", "before": None},
            ],
        }


def gone(role: str) -> MachineError:
    """What is said of a role that is not there any more."""
    return MachineError(f"{role} was ended by SIGKILL")


def failed(reason: str, *, link: bool = False) -> RoleEvent:
    """The event of a role that cannot go on."""
    return RoleEvent(event=FAILED, reason=reason, link=link)


REQUESTS: Sequence[tuple[str, str]] = (
    ("site", "open"),
    ("dut", "begin"),
    ("dut", "prepare"),
    ("timestamper", "begin"),
    ("generator", "begin"),
    ("timestamper", "start"),
    ("timestamper", "count"),
    ("dut", "check"),
    ("generator", "probe"),
    ("timestamper", "restart"),
    ("dut", "observe"),
    ("site", "keep"),
    ("generator", "start"),
    ("generator", "result"),
    ("dut", "read"),
    ("timestamper", "stop"),
    ("dut", "stop"),
    ("dut", "fetch"),
    ("timestamper", "fetch"),
    ("generator", "fetch"),
    ("site", "close"),
)
"""Everything that a good run asks, in the order in which it is asked first."""

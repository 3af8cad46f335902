"""`tailtap run --check`: what of an experiment its machines cannot do, before anything is made.

Each machine is asked about its own part (`roles/foresee.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tailtap.base.errors import Findings, TailtapError
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import make_plan
from tailtap.experiment.reading import CheckedExperiment
from tailtap.experiment.sections import FULL, RUNTIME
from tailtap.host.facts.needs import missing_capabilities
from tailtap.lab.instruments.events import events_of
from tailtap.lab.instruments.perf import foresee as foresee_counting
from tailtap.lab.topology.placement import BUSY_POLL
from tailtap.measure.boots import HOST_OPTIONS, Boots, Wanted, asks, boots_of, wanted_of
from tailtap.measure.preconditions import (
    free_bytes,
    require_events,
    require_room_of,
    room_bytes,
    stamp_bytes,
)
from tailtap.measure.roles import Stations, tasks_of
from tailtap.measure.roles.foresee import Forwarders, foresee, foresee_machine
from tailtap.records.printed import CheckedRun, Message, RunCheckRecord
from tailtap.remote.session import Setup


def check_experiment(
    checked: CheckedExperiment,
    out: Path,
    stations: Stations | None = None,
    boots: Boots | None = None,
) -> RunCheckRecord:
    """Plan the experiment and find out what keeps its machines from it; makes nothing.

    `out` is where its results would go. Roles are on their `stations`; without any they are on this
    machine. What `boots` would boot the DuT's with is not asked of the boot that it is in. Takes
    about 10 ms for each combination of variables, and more where machines are far.
    """
    plan = make_plan(checked)
    far = None if stations is None else _Far(stations, boots if asks(plan) else None)
    whole = foresee_machine() if far is None else far.whole
    whole.ask(require_room_of, out, plan)
    if (
        far is None
        and not missing_capabilities()
        and any(run.experiment.traits.has_dut for run in plan)
    ):
        _foresee_counting(checked, whole)
    # Repeats are the same experiment, and many combinations have the same forwarder.
    known: dict[int, Findings] = {}
    forwarders: Forwarders = {}
    for run in plan:
        if id(run.experiment) not in known:
            known[id(run.experiment)] = (
                foresee(run.experiment, forwarders=forwarders)
                if far is None
                else far.foresee(run.experiment)
            )
    runs = [
        CheckedRun(
            number=run.number,
            slug=run.slug,
            variables=dict(run.variables),
            problems=_messages(known[id(run.experiment)].problems),
            notes=_messages(known[id(run.experiment)].notes),
        )
        for run in plan
    ]
    return RunCheckRecord(
        name=checked.name,
        differs=list(checked.differs),
        can_run=not whole.problems and not any(run.problems for run in runs),
        as_root=far is not None or os.geteuid() == 0,
        runs=runs,
        problems=_messages(whole.problems),
        notes=_messages(whole.notes),
        traffic_seconds=sum(run.experiment.seconds for run in plan),
        boots=0 if boots is None else boots_of(plan),
        stamp_bytes=stamp_bytes(plan),
        room_bytes=room_bytes(plan),
        free_bytes=free_bytes(out),
    )


def _foresee_counting(checked: CheckedExperiment, findings: Findings) -> None:
    """Whether there are such events, and which of them this machine does not count."""
    before = len(findings.problems)
    findings.ask(require_events, checked)
    events = events_of(checked.combinations[0][1].counters)
    if events is not None and len(findings.problems) == before:
        foresee_counting(events, findings)


class _Far:
    """The machines of a testbed, each asked about its own part."""

    def __init__(self, stations: Stations, boots: Boots | None) -> None:
        self.whole = Findings()
        self.whole.notes.append("`tailtap testbed check` sends a packet over each cable")
        self._boots = boots
        self._tasks = tasks_of(stations)
        self._booted: dict[Wanted, Findings] = {}
        self._asked: set[str] = set()
        """The machines that said what concerns all runs, or cannot be asked."""

    def foresee(self, experiment: Experiment) -> Findings:
        found = Findings()
        cables, document = experiment.testbed_cables, experiment.document()
        wanted = wanted_of(experiment) if self._boots is not None else None
        if wanted is not None and self._boots is not None:
            if wanted not in self._booted:  # many runs want the same, and the host is asked by ssh
                self._booted[wanted] = Findings()
                note = self._booted[wanted].ask(self._boots.foresee, wanted)
                self._booted[wanted].notes += [] if note is None else [note]
            found.add(self._booted[wanted])
            # What it is booted with now says nothing of the run.
            kernel, line = HOST_OPTIONS if experiment.traits.own_kernel else ("kernel", "boot")
            settled = {kernel: None, line: ""}
            for case in document.get("cases", ()):
                case |= {name: "" for name in case if name == f"dut.{line}"}
            vary = document.get("vary", {})
            vary |= {name: [""] for name in vary if name == f"dut.{line}"}
            settled |= {"cgroup": None} if "cgroup" in document["dut"] else {}
            if experiment.dut.tuning == FULL and not experiment.traits.own_kernel:
                settled["tuning"] = RUNTIME
            settled |= {"napi": "threads"} if experiment.dut.napi == BUSY_POLL else {}
            document["dut"] |= settled
        for station, tasks in self._tasks:
            is_new = station.name not in self._asked
            self._asked.add(station.name)
            try:
                foreseen = station.foresee(
                    Setup(
                        experiment=document,
                        cables=[pair.as_json() for pair in cables],
                        tasks=list(tasks),
                    )
                )
            except TailtapError as error:
                self.whole.problems += [str(error)] if is_new else []
                continue
            _add(found, station.name, foreseen.run)
            if is_new:
                _add(self.whole, station.name, foreseen.machine)
        return found


def _add(findings: Findings, name: str, said: Findings) -> None:
    findings.problems += [f"{name}: {text}" for text in said.problems]
    findings.notes += [f"{name}: {text}" for text in said.notes]


def _messages(texts: Iterable[str]) -> list[Message]:
    return [Message(message=text) for text in texts]

"""The station that is this process: roles are asked by calling them."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Collection, Mapping
from functools import partial

from pydantic import ValidationError

from tailtap.base.bugs import ending
from tailtap.base.document import dotted, explain
from tailtap.base.errors import InputError, MachineError, TailtapError
from tailtap.experiment.model import ON_TESTBED, Experiment
from tailtap.host.cpu.cpus import away_from
from tailtap.host.facts import environment, timekeeping
from tailtap.lab.instruments.events import events_of
from tailtap.lab.instruments.perf import Counting, Snapshot, window
from tailtap.lab.topology.graph import TASKS, Task
from tailtap.lab.topology.graphs import Cables
from tailtap.lab.topology.lab import Lab
from tailtap.measure.beside import kept_to, own_folder
from tailtap.measure.roles import PLACE, Begin, Role, Workbench
from tailtap.measure.roles.dut import DeviceUnderTest
from tailtap.measure.roles.foresee import by_testbed, foresee, foresee_machine, named_here
from tailtap.measure.roles.generator import LoadGenerator
from tailtap.measure.roles.timestamper import Timestamper
from tailtap.records.machine import Environment, Timekeeping
from tailtap.records.record import as_json
from tailtap.remote.local import Process
from tailtap.remote.serving import serve
from tailtap.remote.session import (
    ANSWER_SECONDS,
    NOTHING,
    Closed,
    Foreseen,
    Json,
    RoleEvent,
    RolePlan,
    Setup,
)

ROLES: Mapping[str, Begin] = {
    "dut": DeviceUnderTest,
    "generator": LoadGenerator,
    "timestamper": Timestamper,
}


class Here:
    """This machine, worked on by this process."""

    name = "this machine"

    def environment(self) -> Environment:
        return environment.describe()

    def open(self, setup: Setup) -> HereSite:
        timekeeping.require_kernel_clock()
        experiment = self._experiment(setup)
        try:
            return HereSite(experiment, setup.tasks)
        except TailtapError as error:
            raise (by_testbed(error) if experiment.testbed_cables else error) from error

    def foresee(self, setup: Setup) -> Foreseen:
        machine, run = foresee_machine(), foresee(self._experiment(setup), setup.tasks)
        return Foreseen(
            machine=machine,
            run=run,
        )

    def _experiment(self, setup: Setup) -> Experiment:
        cables = [named_here(Cables.of(pair), setup.tasks) for pair in setup.cables]
        try:
            experiment = Experiment.model_validate(
                setup.experiment, context={ON_TESTBED: bool(cables)}
            )
        except ValidationError as error:  # it was checked where other kinds are installed
            first = error.errors(include_url=False)[0]
            raise InputError(
                f"{self.name} cannot have this experiment: {dotted(first['loc'])}: "
                f"{explain(first, first['loc'], lambda _: ())}"
            ) from error
        return experiment.wired(cables)

    def clean(self) -> None:
        """Nothing to do: a site of this process is closed whatever happens."""


class HereSite:
    """A lab on this machine, and the roles in it."""

    def __init__(self, experiment: Experiment, tasks: Collection[Task] = TASKS) -> None:
        """The nodes with these tasks are here. Raises `MachineError` when they cannot be made."""
        dut = "dut" in tasks and experiment.traits.has_dut
        self._sessions: list[HereSession] = []
        self._observed = Closed()
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            senders = experiment.senders if "generator" in tasks else ()
            # Generators and the forwarder then pin themselves to the measured CPUs.
            own = experiment.dut.cpus if dut else ()
            stack.enter_context(kept_to(away_from(senders, own)))
            counting, events = None, events_of(experiment.counters)
            if events is not None and dut:
                # From before the DuT is built until it is gone. Whoever starts and ends it is not
                # on its CPUs, so that these tell nothing of that.
                counting = stack.enter_context(Counting(events))
                stack.callback(self._over_life, counting, counting.read())
            lab = stack.enter_context(Lab(experiment.graph(), tasks))
            stack.callback(self._end_roles)
            self._bench = Workbench(lab, experiment, counting)
            self._stack = stack.pop_all()

    def begin(self, role: str, plan: RolePlan) -> HereSession:
        session = HereSession(ROLES[role](self._bench, plan), role)
        self._sessions.append(session)
        return session

    def keep(self, seconds: float) -> None:
        """Nothing to do: it ends with this process."""

    def clock(self) -> int:
        return time.monotonic_ns()

    def timekeeping(self) -> Timekeeping:
        return timekeeping.describe()

    def close(self) -> Closed:
        """End the roles and remove the lab; what was counted from its beginning to its end."""
        self._stack.close()
        return self._observed

    def _end_roles(self) -> None:
        with contextlib.ExitStack() as stack:
            for session in self._sessions:
                stack.callback(session.close)

    def _over_life(self, counting: Counting, before: Snapshot) -> None:
        self._observed = Closed(counters={"lifetime": window(before, counting.read(), None)})


class HereSession:
    """A role that is an object of this process."""

    def __init__(self, role: Role, name: str) -> None:
        self._role, self._name = role, name
        self._waiting = select.epoll()
        self._sources: dict[int, Process] = {}

    def ask(
        self,
        request: str,
        content: Mapping[str, object] = NOTHING,
        /,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Json:
        answer = self._role.requests().get(request)
        if answer is None:
            raise MachineError(f"the {self._name} cannot be asked to {request}")
        try:
            return as_json(answer(dict(content)))
        finally:
            self._wait_for_sources()

    def fileno(self) -> int:
        return self._waiting.fileno()

    def events(self) -> list[RoleEvent]:
        found = list(self._role.look())
        self._wait_for_sources()
        return found

    def fetch(self) -> None:
        """Nothing to do: the plan's folder is on this machine."""

    def close(self) -> None:
        self._role.close()
        self._waiting.close()

    def _wait_for_sources(self) -> None:
        if self._waiting.closed:
            return
        wanted = {process.fileno(): process for process in self._role.sources()}
        for descriptor, process in self._sources.items():
            if wanted.get(descriptor) is not process:  # another one may have its number now
                with contextlib.suppress(OSError):  # closed with its process
                    self._waiting.unregister(descriptor)
        for descriptor, process in wanted.items():
            if self._sources.get(descriptor) is not process:
                self._waiting.register(descriptor, select.EPOLLIN)
        self._sources = wanted


def main() -> None:
    """Serve until the input ends. What is printed by mistake goes to standard error."""
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(Here(), sys.stdin.fileno(), answers, partial(own_folder, PLACE, "roles"))
    except Exception as error:
        lines, status = ending(error)
        for line in lines:
            print(line, file=sys.stderr)
        sys.exit(status)


if __name__ == "__main__":
    main()

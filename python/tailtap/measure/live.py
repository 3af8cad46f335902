"""Numbers of an experiment's runs while they are measured.

They are counted from the stamps that the taps write each second, by a thread at low priority on
CPUs that the device does not serve packets on and, where there are others, no generator sends on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

from tailtap.analysis.causes.many import BRIEF_BYTES, size_of
from tailtap.analysis.causes.stored import causes_of
from tailtap.analysis.evaluation.evaluate import SECOND_NS, of_run
from tailtap.analysis.live.numbers import Board, CauseSums, Numbers, Watched
from tailtap.analysis.live.written import Growing
from tailtap.analysis.runs.folder import ExperimentFolder, are_requests
from tailtap.analysis.runs.reader import finished_runs
from tailtap.base.errors import TailtapError
from tailtap.experiment.plan import PlannedRun
from tailtap.host.cpu.cpus import away_from
from tailtap.lab.generators.external import MOONSNIFF
from tailtap.measure.beside import settle
from tailtap.measure.campaign import Listener
from tailtap.records.causes import CauseRow
from tailtap.records.run import RunRecord

FLUSH = "1 s"
"""How often taps write whose stamps are counted meanwhile."""
WINDOW_NS = SECOND_NS
"""A packet that has not come after this time counts as lost meanwhile, at the latest."""
PERIOD_SECONDS = 1.0
OF_PCAPS = "numbers meanwhile are counted from stamps, and this run writes pcaps: it has none"


class Watching:
    """A thread that counts what is written, and hangs the numbers on a board."""

    def __init__(self, numbers: Numbers, board: Board, cpus: Collection[int]) -> None:
        """Begin; the thread keeps to `cpus`."""
        self._numbers, self._board, self._cpus = numbers, board, cpus
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tt-live", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Count the rest, and end."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        settle(self._cpus)
        ended = False
        while not ended:
            ended = self._ended.wait(PERIOD_SECONDS)
            now_ns = time.monotonic_ns()
            try:
                self._numbers.look(now_ns, complete=ended)
                self._board.hang(self._numbers.record(time.monotonic_ns(), running=not ended))
            except (TailtapError, OSError) as error:
                latest = self._board.latest
                if latest is not None:
                    told = [*latest.notes, f"what came since is not counted: {error}"]
                    self._board.hang(replace(latest, running=False, notes=told))
                return  # the measurement goes on


class Live(Listener):
    """Has the packets of each run counted while they are sent."""

    def __init__(self, out: ExperimentFolder, board: Board) -> None:
        """The runs are stored in `out`, and the numbers hang on `board`."""
        self._out, self._board = out, board
        self._runs = self._number = 0
        self._watching: Watching | None = None
        self._causes = CauseSums()

    def begun(self, runs: Sequence[PlannedRun], total: int) -> None:
        self._runs, self._number = total, total - sum(len(run.group) for run in runs)

    def started(self, run: PlannedRun) -> None:
        flows, notes = watched(run, self._out)
        numbers = Numbers(
            run.slug,
            flows,
            number=self._number + 1,
            runs=self._runs,
            seconds=run.experiment.seconds,
            notes=notes,
            causes=self._causes.rows,
        )
        self._number += len(run.group)
        here = run.experiment
        dut = here.dut.cpus if here.traits.has_dut else ()
        self._watching = Watching(numbers, self._board, away_from(here.senders, dut))

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        self.ended()
        if record.trace is not None:
            self._explain([self._out.run(one.slug).path for one in run.group])

    def ended(self) -> None:
        if self._watching is not None:
            self._watching.stop()
            self._watching = None

    def _explain(self, folders: Sequence[Path]) -> None:
        self._causes.add(row for folder in folders for row in explained(folder))
        latest = self._board.latest
        if latest is not None:
            self._board.hang(replace(latest, causes=self._causes.rows))


def explained(folder: Path) -> Sequence[CauseRow]:
    """Why packets of a run were late that is done; none where nobody can say it soon.

    Nothing is written: at the end `tailtap explain` says it again.
    """
    if size_of(folder) > BRIEF_BYTES:
        return []
    with contextlib.suppress(TailtapError, OSError):
        return [row for one in finished_runs(folder) for row in causes_of(one).record.causes]
    return []


def watched(run: PlannedRun, out: ExperimentFolder) -> tuple[Sequence[Watched], Sequence[str]]:
    """The flows of a run whose packets can be counted meanwhile, and what is to be said of it."""
    if run.experiment.snap is not None:
        return [], [OF_PCAPS]
    flows = []
    for one in run.group:
        asked = one.row().parameters.known.evaluation
        assert asked is None or not are_requests(asked)  # these need pcaps
        settings = of_run(asked)
        settings = of_run(
            asked,
            key=MOONSNIFF if settings.key == "auto" else settings.key,
            window_ns=min(settings.window_ns, WINDOW_NS),
        )
        folder = out.run(one.slug)
        ends = Growing(folder.ingress), Growing(folder.egress)
        flows.append(Watched(one.flow, *ends, settings))
    return flows, ()

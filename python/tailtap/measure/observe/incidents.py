"""Incidents of a flight recorder: run folders that are written aside, and appear whole."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tailtap.analysis.live.numbers import CauseSums, Episode
from tailtap.analysis.runs.folder import ExperimentFolder
from tailtap.base.bugs import STORAGE, kept
from tailtap.base.errors import InputError, TailtapError
from tailtap.base.files import move, remove_tree
from tailtap.base.units import format_time
from tailtap.measure.beside import settle
from tailtap.measure.observe import ObservedRun
from tailtap.records.causes import CausesRecord
from tailtap.records.record import read
from tailtap.remote.local import LocalHost

WAITING = 4
"""So many incidents may wait to be evaluated; more come too fast to be kept."""
STEP_SECONDS = 600.0
"""How long explaining one, or making its page, may take."""
THEN_SECONDS = 60.0
"""How long the command of the user may take; it is ended then."""
LOW = ("nice", "-n", "19")


@dataclass(frozen=True)
class Draft:
    """An incident whose stamps and trace are in a folder aside."""

    episode: Episode
    run: ObservedRun
    kept: bool = True
    """Whether its folder stays; else only its causes are of interest."""


@dataclass
class Made:
    """What became of incidents so far."""

    kept: int = 0
    disk: int = 0
    """Incidents that the disk had no room for."""
    last: str | None = None
    ended: str | None = None
    notes: list[str] = field(default_factory=list)
    causes: CauseSums = field(default_factory=CauseSums)


class Maker:
    """A thread at low priority that makes run folders of drafts."""

    def __init__(
        self,
        out: ExperimentFolder,
        *,
        then: str | None,
        cpus: Collection[int],
        note: Callable[[str], object] = lambda sentence: None,
    ) -> None:
        """Into `out`, on `cpus`; `then` is a command of the user's for each one."""
        self.made = Made()
        self._out, self._then, self._cpus, self._note = out, then, cpus, note
        self._drafts: queue.Queue[Draft | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="tt-incidents", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether it has more to do than it may be asked for."""
        return self._drafts.qsize() >= WAITING

    def add(self, draft: Draft) -> None:
        """Make a run folder of it, by and by."""
        self._drafts.put(draft)

    def finish(self) -> Made:
        """Make the rest, and end."""
        self._drafts.put(None)
        self._thread.join()
        return self.made

    def _work(self) -> None:
        settle(self._cpus)
        while (draft := self._drafts.get()) is not None:
            try:
                self._make(draft)
            except OSError as error:
                if error.errno not in STORAGE:
                    self._failed(draft, error)
                    continue
                self.full(f"{self._out.path}: {error.strerror}")
                self._drop(draft)
            except Exception as error:  # it costs this incident and no other one
                self._failed(draft, error)

    def full(self, why: str) -> None:
        """Count an incident that the disk had no room for; no more are kept."""
        self.made.disk += 1
        self.end(why)

    def end(self, why: str) -> None:
        """Keep no more of them."""
        self.made.ended = self.made.ended or f"incidents are not kept any more: {why}"

    def _failed(self, draft: Draft, error: Exception) -> None:
        said = kept(error, draft.run.folder.path)
        self.made.notes.append(f"incident {draft.run.record.number}: {said}")
        self._drop(draft)

    def _drop(self, draft: Draft) -> None:
        try:
            remove_tree(draft.run.folder.path, below=self._out.path)
        except (OSError, InputError):
            self.made.notes.append(f"{draft.run.folder.path} could not be removed")

    def _make(self, draft: Draft) -> None:
        record, aside = draft.run.record, draft.run.folder
        if self.made.ended is not None:
            self.made.disk += 1
            self._drop(draft)
            return
        draft.run.evaluate()
        if record.trace is not None:
            self._explain(draft)
        if not draft.kept:
            self._drop(draft)
            return
        whole = self._out.run(record.slug)
        move(aside.path, whole.path, below=self._out.path)
        self.made.kept += 1
        self.made.last = record.slug
        self._program("report", str(self._out.path), "--runs", str(record.number), "--out",
                      str(whole.path / "report"))  # fmt: skip
        self._note(f"incident: {whole.path}")
        if self._then is not None:
            environment = {
                "TAILTAP_INCIDENT": str(whole.path),
                "TAILTAP_PACKETS": str(draft.episode.packets),
                "TAILTAP_WHY": "; ".join(draft.episode.words),
            }
            said = self._run(["sh", "-c", self._then], THEN_SECONDS, environment)
            if said is not None:
                self.made.notes.append(f"--then: {said}")

    def _explain(self, draft: Draft) -> None:
        """Say why its packets were late. One that nobody can explain is kept all the same."""
        folder = draft.run.folder.path
        self._program("explain", str(folder))
        with contextlib.suppress(TailtapError):
            self.made.causes.add(read(folder / "causes.json", CausesRecord).causes)

    def _program(self, *words: str) -> None:
        """Run a command of this program at low priority; what it says is kept if it fails."""
        said = self._run([*LOW, *LocalHost().program, *words, "--quiet"], STEP_SECONDS)
        if said is not None:
            self.made.notes.append(f"tailtap {words[0]}: {said}")

    @staticmethod
    def _run(
        words: list[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> str | None:
        try:
            ran = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
                stderr=subprocess.PIPE, timeout=seconds, start_new_session=True,
                env=None if environment is None else {**os.environ, **environment},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"it took more than {format_time(int(seconds * 1e9))}, and was ended"
        except OSError as error:
            return str(error)
        if ran.returncode == 0:
            return None
        said = ran.stderr.decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"it ended with status {ran.returncode}"

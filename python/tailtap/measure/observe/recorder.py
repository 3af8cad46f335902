"""The flight recorder: a device is observed for as long as it takes, and what mattered is kept."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from tailtap.analysis.evaluation.evaluate import Settings
from tailtap.analysis.live.counting import NEVER
from tailtap.analysis.live.numbers import (
    Board,
    Episode,
    Episodes,
    Numbers,
    Trigger,
    Watched,
    parse_trigger,
)
from tailtap.analysis.live.written import Row
from tailtap.analysis.runs.folder import ExperimentFolder
from tailtap.base.bugs import STORAGE
from tailtap.base.errors import MachineError
from tailtap.base.files import remove_tree, write_json
from tailtap.base.units import format_size
from tailtap.host.cpu.cpus import away_from
from tailtap.measure.beside import kept_to
from tailtap.measure.campaign import Campaign, now
from tailtap.measure.observe import ObservedRun, opened_for
from tailtap.measure.observe.at_work import SIDES, AtWork, Stopped
from tailtap.measure.observe.incidents import Draft, Maker
from tailtap.measure.observe.look import Options, observing_folder
from tailtap.measure.observe.prepared import SLUGS, Prepared
from tailtap.measure.observe.recording import Recording
from tailtap.measure.observe.segments import (
    TraceRow,
    bytes_in,
    join_captures,
    join_traces,
    row_of,
)
from tailtap.records.datapath import Tapped, TapsSoFar
from tailtap.records.live import LiveIncidents, LiveRecord, RecordingRecord
from tailtap.records.record import as_json, opened
from tailtap.records.run import Facts
from tailtap.records.trace import Taken

SEGMENT_NS = 1_000_000_000
"""How long a piece is of what is written."""
STORE_LOOKS = 10
"""What was counted is stored at every so many looks."""
EXPLAINED_NS, FIRST_NS = 60_000_000_000, 5_000_000_000
"""Where nothing makes an incident, a second is explained so often, and first so soon: it takes a
second or two of a CPU that serves nothing."""
PATIENCE_NS = 5_000_000_000
"""How long an incident waits for its trace to be complete."""
RECORD = "recording.json"


def record(
    options: Options,
    recording: Recording,
    campaign: Campaign,
    *,
    board: Board | None = None,
    on_begin: Callable[[Prepared], object] = lambda prepared: None,
) -> RecordingRecord:
    """Observe a device until SIGINT or the time that was `asked`, and keep incidents.

    Each is a run folder; `RECORD` says what all packets became, and what was not kept. Numbers
    hang on `board` meanwhile; `on_begin` is called before the first packet counts. Raises what
    `observe` raises.
    """
    with opened_for(options, campaign, packets_alone=True) as prepared:
        cpus, folder = away_from(prepared.serving.cpus), campaign.folder
        with kept_to(cpus), observing_folder() as memory, observing_folder(campaign.out) as aside:
            maker = Maker(folder, then=recording.then, cpus=cpus, note=campaign.note)
            recorder = Recorder(prepared, recording, folder, memory, aside, maker)
            looks = itertools.count()

            def look(left_s: float | None) -> None:
                recorder.look(time.monotonic_ns(), work.told)
                numbers = recorder.numbers(left_s)
                if board is not None:
                    board.hang(numbers)
                campaign.measured(numbers)
                if next(looks) % STORE_LOOKS == 0:
                    recorder.store()

            try:
                with contextlib.closing(
                    AtWork.start(prepared, memory, rotate_ns=SEGMENT_NS, tell_ns=SEGMENT_NS)
                ) as work:
                    on_begin(prepared)
                    for sentence in prepared.sentences():
                        campaign.note(sentence)
                    recorder.began_ns = work.began_ns
                    with contextlib.suppress(KeyboardInterrupt):
                        work.watch(look)
                    recorder.stopped(work)
            finally:
                maker.finish()
                told = recorder.store(finished=True)
            if board is not None:
                board.hang(told.numbers)
            return told


class Recorder:
    """Counts what comes in pieces, and makes drafts of incidents."""

    def __init__(
        self,
        prepared: Prepared,
        recording: Recording,
        out: ExperimentFolder,
        memory: Path,
        aside: Path,
        maker: Maker,
    ) -> None:
        """Of what taps and tracer write into `memory`; incidents are `aside` until they are whole.

        Raises `InputError` for a wrong trigger.
        """
        self._prepared, self._recording, self._out = prepared, recording, out
        self._memory, self._maker = memory, maker
        self._aside = ExperimentFolder(aside, out.path)
        self._rows: dict[str, tuple[Row, Row]] = {}
        self._triggers: dict[str, list[Trigger]] = {
            slug: [parse_trigger(text) for text in recording.above] for slug in SLUGS
        }
        self._episodes = {slug: Episodes(recording.keep_ns) for slug in SLUGS}
        self._over: deque[tuple[str, Episode]] = deque()
        self._trace = TraceRow(memory / SLUGS[0]) if prepared.traced else None
        self._numbers: Numbers | None = None
        self._late, self._drafted, self._peak = 0, 0, 0
        self._dropped = {"limit": 0, "rate": 0, "busy": 0, "disk": 0}
        self._times: deque[int] = deque()
        self._tap_lost: int | None = None
        self._notes: list[str] = []
        self.began_ns: int | None = None
        """When all taps were there; packets that came before do not count."""
        self._started = now()
        self._now_ns = time.monotonic_ns()
        self._explain_ns = self._now_ns + FIRST_NS

    def look(
        self,
        now_ns: int,
        told: TapsSoFar | None = None,
        *,
        complete: bool = False,
        ends_ns: int = NEVER,
    ) -> None:
        """Count what was written since, and draft what is an incident.

        `told` is what the taps said last. When all is `complete`, packets that came before
        `ends_ns` count.
        """
        self._now_ns = now_ns
        if told is not None:  # stamps without room
            self._tap_lost = sum(link.lost for link in told.links.values())
        if not self._begin():
            return
        assert self._numbers is not None
        for slug, counted in self._numbers.look(now_ns, complete=complete, ends_ns=ends_ns):
            found = [one for trigger in self._triggers[slug] if (one := trigger.look(counted))]
            self._late += sum(one.packets for one in found)
            over = self._episodes[slug].add(sorted(found))
            over += self._episodes[slug].over(counted.span.until_ns)
            self._over.extend((slug, episode) for episode in over)
        if complete:
            for slug, episodes in self._episodes.items():
                self._over.extend((slug, one) for one in episodes.over(1 << 63))
        while self._over and (complete or self._is_traced(self._over[0][1], now_ns)):
            self._keep(*self._over.popleft())
        self._peak = max(self._peak, bytes_in(self._memory))
        if not complete:
            if not self._recording.above:
                self._explain_some()
            self._drop()

    def stopped(self, work: AtWork) -> None:
        """End taps and tracer, and count what they wrote at their end."""
        ends_ns = NEVER
        try:
            ends_ns = work.stop().span_ns[1]
        except MachineError as error:
            self._notes.append(str(error))
        self.look(time.monotonic_ns(), work.told, complete=True, ends_ns=ends_ns)

    def numbers(self, left_s: float | None = None) -> LiveRecord:
        """All that is known now."""
        made = self._maker.made
        dropped = sum(self._dropped.values()) + made.disk
        incidents = LiveIncidents(kept=made.kept, dropped=dropped, late=self._late, last=made.last)
        notes = [*self._notes, *made.notes[-5:], *([made.ended] if made.ended else [])]
        if self._numbers is None:
            return LiveRecord(
                run=self._out.path.name, time_ns=self._now_ns, elapsed_s=0.0, left_s=left_s,
                window_ns=self._recording.keep_ns, incidents=incidents, notes=notes,
            )  # fmt: skip
        known = self._numbers.record(self._now_ns)
        for flow in known.flows:
            flow.tap_lost = self._tap_lost
        return replace(
            known,
            left_s=left_s,
            incidents=incidents,
            causes=made.causes.rows,
            trace_lost=None if self._trace is None else self._trace.lost,
            notes=notes,
        )

    def store(self, *, finished: bool = False) -> RecordingRecord:
        """Store what is known now; a full disk ends the keeping of incidents and nothing else."""
        made, recording = self._maker.made, self._recording
        told = RecordingRecord(
            started=self._started,
            finished=now() if finished else None,
            above=list(recording.above),
            keep_ns=recording.keep_ns,
            most_incidents=recording.incidents,
            memory_bytes=recording.memory,
            peak_bytes=self._peak,
            dropped_limit=self._dropped["limit"],
            dropped_rate=self._dropped["rate"],
            dropped_busy=self._dropped["busy"],
            dropped_disk=self._dropped["disk"] + made.disk,
            ended=made.ended,
            numbers=replace(self.numbers(), running=not finished),
        )
        try:
            write_json(self._out.path / RECORD, as_json(told), below=self._out.path)
        except OSError as error:
            if error.errno not in STORAGE:
                raise
            self._maker.end(f"{self._out.path}: {error.strerror}")
        return told

    def _begin(self) -> bool:
        """Find what the taps write; whether there is something."""
        if self._numbers is not None:
            return True
        flows = []
        settings = Settings(key=self._prepared.looked.key, window_ns=self._recording.keep_ns)
        for slug, _ in zip(SLUGS, self._prepared.ways, strict=False):
            ingress, egress = (row_of(self._memory / slug, side) for side in SIDES)
            if ingress is None or egress is None:
                return False
            self._rows[slug] = ingress, egress
            flows.append(Watched(slug, ingress, egress, settings, self.began_ns))
        self._numbers = Numbers(self._out.path.name, flows)
        return True

    def _is_traced(self, episode: Episode, now_ns: int) -> bool:
        """Whether all that a trace has of it is written, or will not be."""
        if self._trace is None:
            return True
        wanted = episode.end_ns + SEGMENT_NS
        return self._trace.until_ns >= wanted or now_ns > wanted + PATIENCE_NS

    def _keep(self, slug: str, episode: Episode) -> None:
        why = self._limit()
        if why is not None:
            self._dropped[why] += 1
            return
        self._drafted += 1
        try:
            draft = self._draft(slug, episode)
        except OSError as error:
            if error.errno not in STORAGE:
                raise
            self._maker.full(f"{self._out.path}: {error.strerror}")
            remove_tree(self._aside.path, below=self._out.path)
            return
        self._times.append(self._now_ns)
        self._maker.add(draft)

    def _explain_some(self) -> None:
        """Now and then, find out why packets of the latest second were late; it is not kept."""
        assert self._numbers is not None
        until_ns = self._numbers.until_ns - SEGMENT_NS  # files that are whole
        episode = Episode(until_ns - SEGMENT_NS, until_ns, 0, [])
        if (
            self._trace is None
            or self._now_ns < self._explain_ns
            or episode.begin_ns < (self.began_ns or 0)
            or self._trace.until_ns < until_ns
            or self._maker.is_busy
            or self._maker.made.ended is not None
        ):
            return
        self._explain_ns = self._now_ns + EXPLAINED_NS
        for slug, _ in zip(SLUGS, self._prepared.ways, strict=False):
            try:
                self._maker.add(self._draft(slug, episode, kept=False))
            except OSError as error:
                if error.errno not in STORAGE:
                    raise
                remove_tree(self._aside.path, below=self._out.path)

    def _limit(self) -> str | None:
        if self._maker.made.ended is not None:
            return "disk"
        if self._drafted >= self._recording.incidents:
            return "limit"
        if self._recording.rate is not None:
            most, period_ns = self._recording.rate
            while self._times and self._times[0] <= self._now_ns - period_ns:
                self._times.popleft()
            if len(self._times) >= most:
                return "rate"
        return "busy" if self._maker.is_busy else None

    def _draft(self, slug: str, episode: Episode, *, kept: bool = True) -> Draft:
        """Copy the segments of an episode, from memory into a folder aside."""
        number = self._drafted
        what = "incident" if kept else f"of-{slug}"
        folder = self._aside.run(f"{number:03}-{what}-{time.strftime('%Y%m%d-%H%M%S')}")
        folder.start_anew()
        run = ObservedRun.of(self._prepared, number, self._prepared.ways[SLUGS.index(slug)], folder)
        run.record.variables = {"incident": number, **run.record.variables}
        until_ns = episode.end_ns + (self._recording.keep_ns if kept else 0)
        taps = {}
        for side, row in zip(SIDES, self._rows[slug], strict=True):
            paths = row.between(episode.begin_ns, until_ns)
            target = folder.path / f"{side}{row.path.suffix}"
            counts = join_captures(paths, target, below=self._out.path)
            taps[side] = opened(
                f"the {side} tap", {"file": target.name, "lost": 0, **counts}, Tapped
            )
        traced = None
        if self._trace is not None and (files := self._trace.between(episode.begin_ns, until_ns)):
            joined = join_traces(files, folder.path, below=self._out.path)
            facts = {name: getattr(joined, name) for name in joined.__struct_fields__}
            facts.pop("names")
            traced = Taken(**facts, kinds={}, hooks={})
        stopped = Stopped(
            taps={folder.path.name: taps},
            trace=traced,
            warnings=[],
            cost=None,
            span_ns=(episode.begin_ns, until_ns),
        )
        run.take(stopped, Facts(elapsed_ns=until_ns - episode.begin_ns))
        return Draft(episode, run, kept)

    def _drop(self) -> None:
        assert self._numbers is not None
        needed = [self._numbers.needed_ns, self._numbers.until_ns - 2 * self._recording.keep_ns]
        if not self._recording.above:
            needed.append(self._numbers.until_ns - 3 * SEGMENT_NS)  # what may be explained
        needed += [one.begin_ns for _, one in self._over]
        needed += [one.open.begin_ns for one in self._episodes.values() if one.open]
        before_ns = min(needed)
        while True:
            for rows in self._rows.values():
                for row in rows:
                    row.drop(before_ns)
            if self._trace is not None:
                self._trace.drop(before_ns)
            if bytes_in(self._memory) <= self._recording.memory or before_ns > self._now_ns:
                return
            told = (
                f"segments took more than {format_size(self._recording.memory)} in memory: the "
                "oldest were dropped, and what was in them is neither counted nor kept"
            )
            if told not in self._notes:
                self._notes.append(told)
            before_ns = max(before_ns, self._now_ns - 10 * SEGMENT_NS) + SEGMENT_NS

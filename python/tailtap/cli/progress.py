"""How far a measurement has come: lines and bars on the terminal, and pages while it runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.base.units import format_count, format_rate, format_time
from tailtap.cli.terminal import folded, printable, warn, width_of
from tailtap.measure.campaign import (
    Campaign,
    Listener,
    complaints,
    default_folder,
    reasons,
    seconds_of,
)
from tailtap.records.run import RunRecord

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress
    from rich.text import Text

    from tailtap.analysis.live.numbers import Board
    from tailtap.experiment.plan import PlannedRun
    from tailtap.records.live import LiveFlow, LiveRecord


class Reasons(Listener):
    """Only why runs gave no result that counts: one line for each reason."""

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        for reason in reasons(record):
            warn(f"{run.slug}: {reason}")


BAR_COLUMNS = 12
LINE_SECONDS = 10.0
"""A log gets a line about what is observed so often, later each tenth of what it took so far."""


def measuring(numbers: LiveRecord) -> str:
    """How far what is observed is, in one line."""
    whole = "" if numbers.left_s is None else f" of {numbers.elapsed_s + numbers.left_s:.0f}"
    parts = [f"measuring: {numbers.elapsed_s:.0f}{whole} s"]
    several = len(numbers.flows) > 1
    parts += [brief(flow, named=several) for flow in numbers.flows if flow.ingress]
    if numbers.incidents is not None:
        parts.append(f"{format_count(numbers.incidents.kept, 'incident')} kept")
    return ", ".join(parts)


def brief(flow: LiveFlow, *, named: bool = False) -> str:
    """A flow so far: its rate, its highest supported percentile up to p99.9, what is lost."""
    from tailtap.analysis.evaluation.values import label

    parts = [f"{flow.name}: {format_rate(flow.rate)}" if named else format_rate(flow.rate)]
    known = [one for one in flow.percentiles if one.supported and one.p <= 0.999]
    parts += [f"{label(one.p)} {format_time(one.value)}" for one in known[-1:]]
    if flow.max_ns is not None:
        parts.append(f"worst {format_time(flow.max_ns)}")
    return ", ".join([*parts, f"{flow.lost:,} lost"])


class Lines(Listener):
    """One plain line when a run begins and one when it did not go well, for logs."""

    def __init__(self, *, numbers: bool = True) -> None:
        """Without `numbers` of what is observed where something else shows them."""
        self.wants_numbers = numbers

    _total = 0
    _next_s = 0.0

    def begun(self, runs: Sequence[PlannedRun], total: int) -> None:
        self._total = total

    def noted(self, sentence: str) -> None:
        """Something is worth a word."""
        warn(sentence)

    def started(self, run: PlannedRun) -> None:
        warn(f"run {run.number} of {self._total}: {run.slug}")

    def measured(self, numbers: LiveRecord) -> None:
        """So much is known of what is observed: a line once it is counted, and now and then."""
        counts = numbers.elapsed_s >= LINE_SECONDS or any(flow.rate for flow in numbers.flows)
        if self.wants_numbers and counts and numbers.elapsed_s >= self._next_s:
            self._next_s = numbers.elapsed_s + max(LINE_SECONDS, numbers.elapsed_s / 10)
            warn(f"observe: {measuring(numbers)}")

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        for line in complaints(record):
            warn(f"{run.slug}: {line}")


class Bar(Lines):
    """A progress bar with the time left, for a terminal."""

    wants_ticks = True
    board: Board | None = None
    """Where the numbers of the running run hang, if packets are counted meanwhile."""
    _run: PlannedRun | None = None
    _progress: Progress | None = None
    _live: Live | None = None

    def begun(self, runs: Sequence[PlannedRun], total: int) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._console = Console(stderr=True, width=width_of(sys.stderr))
        # Refreshed by hand: a thread that redraws ten times a second would disturb the DuT.
        wide = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=wide),
            BarColumn(BAR_COLUMNS),
            TextColumn("{task.fields[left]}", markup=False),
            console=self._console,
            expand=True,
            auto_refresh=False,
            transient=True,
        )
        self._seconds = sum(seconds_of(run.experiment) for run in runs)
        self._done = 0.0
        self._bar = self._progress.add_task("", total=self._seconds, left="")
        self._progress.start()

    def noted(self, sentence: str) -> None:
        """Something is worth a word: above the line that changes."""
        if self._live is None:
            warn(sentence)
        else:
            said = folded(printable(sentence), self._live.console.width)
            self._live.console.print(said, markup=False, highlight=False, soft_wrap=True)

    def measured(self, numbers: LiveRecord) -> None:
        """So much is known of what is observed: a line that changes."""
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            console = Console(stderr=True, width=width_of(sys.stderr))
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(_text(measuring(numbers)), refresh=True)

    def ended(self) -> None:
        for one in (self._progress, self._live):
            if one is not None:
                one.stop()
        self._live = None

    def started(self, run: PlannedRun) -> None:
        self._run = run
        self._show(0.0)

    def tick(self, seconds: float) -> None:
        self._show(seconds)

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        self._done += seconds_of(run.experiment)
        for line in complaints(record):
            said = folded(printable(f"{run.slug}: {line}"), self._console.width)
            self._console.print(said, markup=False, highlight=False, soft_wrap=True)
        self._show(0.0)

    def _show(self, seconds: float) -> None:
        assert self._progress is not None
        now = min(self._seconds, self._done + seconds)
        left = max(0, round(self._seconds - now))
        text = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
        self._progress.update(
            self._bar, completed=now, refresh=True, description=self._said(), left=text
        )

    def _said(self) -> str:
        """The running run, and its rate: that which was asked for until packets are counted."""

        run, latest = self._run, None if self.board is None else self.board.latest
        if run is None:
            return ""
        flows = latest.flows if latest is not None and latest.run == run.slug else []
        if any(one.rate for one in flows):
            return "; ".join([run.slug, *(brief(one, named=len(flows) > 1) for one in flows)])
        return f"{run.slug}; {format_rate(run.experiment.traffic.rate)}"


def listener(*, quiet: bool, watched: bool = False) -> Listener:
    """The listener that fits standard error: a bar only on a terminal, only reasons if `quiet`.

    Where the numbers are `watched`, the terminal shows these in place of a bar.
    """
    if quiet:
        return Reasons()
    return Bar() if not watched and sys.stderr.isatty() else Lines(numbers=not watched)


Function = Callable[..., Any]
CAUSES = 5
"""So many causes are shown."""


@contextlib.contextmanager
def campaign_in(
    out: Path | None,
    name: str,
    *,
    quiet: bool,
    resume: bool = False,
    watched: bool = False,
    **more: Any,
) -> Iterator[Campaign]:
    """A campaign in `out`, by default a folder of the name and the time of day.

    What it leaves there is of whoever typed the command, and in the folder's database if that has
    one. `more` are fields of `Campaign`.
    """
    from tailtap.cli.caller import results_of_caller
    from tailtap.results.current import kept_current

    folder = out or default_folder(name)
    with results_of_caller(folder), kept_current(folder):
        yield Campaign(folder, resume, [listener(quiet=quiet, watched=watched)], **more)


@contextlib.contextmanager
def showing(
    board: Board, *, live: bool, metrics: str | None, quiet: bool, cpus: Collection[int]
) -> Iterator[None]:
    """Show what hangs on `board`, by threads that keep to `cpus`.

    Raises `InputError` for what is no address, `MachineError` where nobody can listen there.
    """
    from functools import partial

    from tailtap.measure.beside import settle
    from tailtap.show.live.server import LOOPBACK, METRICS, Address, Server

    keep = partial(settle, cpus)
    wanted = [] if metrics is None else [(Address.parse(metrics), False)]
    wanted += [(Address(LOOPBACK, 0), True)] if live else []
    with contextlib.ExitStack() as stack:
        for address, page in wanted:
            server = stack.enter_context(Server(address, board, page=page, settle=keep))
            if not quiet:
                path, what = ("/", "numbers") if page else (METRICS, "metrics")
                warn(f"{what} so far: http://{server.address}{path}")
        if live and not quiet and sys.stderr.isatty():
            stack.enter_context(_View(board, keep))
        yield


class _View:
    """The numbers on a terminal, renewed when there are others."""

    def __init__(self, board: Board, settle: Callable[[], object]) -> None:
        from rich.console import Console
        from rich.live import Live

        # Drawn by hand: a thread that redraws several times a second would disturb the machine.
        console = Console(stderr=True, width=width_of(sys.stderr))
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._board, self._settle = board, settle
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="tt-view", daemon=True)

    def __enter__(self) -> _View:
        self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._live.stop()

    def _show(self) -> None:
        self._settle()
        shown = None
        while not self._ended.is_set():
            latest = self._board.newer(shown, 0.5)
            if latest is not None and latest is not shown:
                self._live.update(drawn(latest), refresh=True)
                shown = latest


def drawn(record: LiveRecord) -> Group:
    """The numbers as they stand in a terminal."""
    from rich.console import Group

    left = "" if record.left_s is None else f", {record.left_s:.0f} s left"
    several = f" ({record.number} of {record.runs})" if record.runs > 1 else ""
    lines: list[Any] = [_text(f"{record.run}{several}: {record.elapsed_s:.0f} s{left}", "bold")]
    for flow in record.flows:
        lines += [_text(_words(flow, named=len(record.flows) > 1)), _table(flow)]
    if record.incidents is not None:
        kept = record.incidents
        lines.append(_text(f"incidents: {kept.kept:,} kept, {kept.dropped:,} not kept"))
    if record.causes:
        lines.append(_text("what made packets late"))
    for cause in record.causes[:CAUSES]:
        detail = f" ({cause.detail})" if cause.detail else ""
        lines.append(_text(f"  {cause.cause}{detail}: {format_count(cause.packets, 'packet')}"))
    return Group(*lines, *(_text(note, "dim") for note in record.notes))


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(text), style)


def _words(flow: LiveFlow, *, named: bool) -> str:
    """What came of a flow's packets, as a line."""
    name = f"{flow.name}: " if named else ""
    tap = f", {flow.tap_lost:,} stamps without room" if flow.tap_lost else ""
    return (
        f"{name}{format_count(flow.ingress, 'packet')}, {flow.rate:,.0f}/s, {flow.lost:,} lost, "
        f"{flow.left_out:,} left out{tap}"
    )


def _table(flow: LiveFlow) -> Any:
    """The percentiles of a flow, the supported ones."""
    from rich.table import Table

    from tailtap.analysis.evaluation.values import label

    supported = [one for one in flow.percentiles if one.supported]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for one in supported:
        table.add_column(label(one.p), justify="right")
    table.add_column("worst", justify="right")
    worst = "" if flow.max_ns is None else format_time(flow.max_ns)
    table.add_row(*(format_time(one.value) for one in supported), worst)
    return table

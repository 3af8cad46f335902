"""Watching a measurement while it runs: a page, a terminal, a monitoring system."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import click

from tailtap.cli.terminal import printable, warn

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from tailtap.analysis.live.numbers import Board
    from tailtap.records.live import LiveFlow, LiveRecord

Function = Callable[..., Any]
CAUSES = 5
"""So many causes are shown."""


def watched(function: Function) -> Function:
    """The options --live and --metrics."""
    options = [
        click.option(
            "--live",
            is_flag=True,
            help="Show the numbers so far on a page for browsers of this machine, whose address is "
            "printed, and in the terminal. For this the taps write every second, and a thread "
            "counts at low priority on CPUs that the device does not serve packets on.",
        ),
        click.option(
            "--metrics",
            metavar="[HOST]:PORT",
            help="Give the numbers so far to a monitoring system, as OpenMetrics at "
            "http://HOST:PORT/metrics; ':9400' listens on all addresses of this machine.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@contextlib.contextmanager
def showing(
    board: Board, *, live: bool, metrics: str | None, quiet: bool, cpus: Collection[int]
) -> Iterator[None]:
    """Show what hangs on `board`, by threads that keep to `cpus`.

    Raises `InputError` for what is no address, `MachineError` where nobody can listen there.
    """
    from functools import partial

    from tailtap.measure.live import settle
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

        from tailtap.cli.terminal import width_of

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
        lines.append(_text(f"  {cause.cause}{detail}: {cause.packets:,} packets"))
    return Group(*lines, *(_text(note, "dim") for note in record.notes))


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(text), style)


def _words(flow: LiveFlow, *, named: bool) -> str:
    """What came of a flow's packets, as a line."""
    name = f"{flow.name}: " if named else ""
    tap = f", {flow.tap_lost:,} stamps without room" if flow.tap_lost else ""
    return (
        f"{name}{flow.ingress:,} packets, {flow.rate:,.0f}/s, {flow.lost:,} lost, "
        f"{flow.left_out:,} left out{tap}"
    )


def _table(flow: LiveFlow) -> Any:
    """The percentiles of a flow, the supported ones."""
    from rich.table import Table

    from tailtap.analysis.evaluation.percentiles import label
    from tailtap.base.units import format_time

    supported = [one for one in flow.percentiles if one.supported]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for one in supported:
        table.add_column(label(one.p), justify="right")
    table.add_column("worst", justify="right")
    worst = "" if flow.max_ns is None else format_time(flow.max_ns)
    table.add_row(*(format_time(one.value) for one in supported), worst)
    return table

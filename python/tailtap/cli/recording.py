"""What `tailtap observe` has of a flight recorder: its options, and what it prints."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.cli.terminal import say, warn

if TYPE_CHECKING:
    from tailtap.measure.observe.asked import Asked
    from tailtap.measure.observe.prepared import Prepared
    from tailtap.measure.observe.recorder import Recording
    from tailtap.records.live import RecordingRecord

Function = Callable[..., Any]


def recorded(function: Function) -> Function:
    """The options of the flight recorder, which the function gets as its `recording`."""
    options = [
        click.option(
            "--above",
            multiple=True,
            metavar="WHAT",
            help="Keep incidents only: what was stamped and traced around packets that took longer "
            "than a time ('200 us'), packets that were lost ('loss'), or a percentile that rose "
            "('p99.9 > 1 ms over 10 s'). May be given several times. All else goes, but for its "
            "counts.",
        ),
        click.option(
            "--keep",
            default="1 s",
            metavar="TIME",
            help="How long before its cause an incident begins; a packet that has not come after "
            "this time is lost.",
        ),
        click.option(
            "--incidents",
            type=click.IntRange(min=1),
            default=100,
            help="At most so many incidents. What comes then is counted.",
        ),
        click.option(
            "--rate",
            metavar="NUMBER/TIME",
            help="At most so many incidents in a time: 1/min, 10/h. What is more is counted.",
        ),
        click.option(
            "--then",
            metavar="COMMAND",
            help="Run this by sh for each incident that was kept, with its folder as "
            "$TAILTAP_INCIDENT, what made it as $TAILTAP_WHY, and its late packets as "
            "$TAILTAP_PACKETS.",
        ),
        click.option(
            "--memory",
            default="1 GB",
            metavar="SIZE",
            help="What waits in memory (/dev/shm) takes this much at most.",
        ),
    ]

    @functools.wraps(function)
    def with_recording(
        *,
        above: tuple[str, ...],
        keep: str,
        incidents: int,
        rate: str | None,
        then: str | None,
        memory: str,
        **others: Any,
    ) -> Any:
        from tailtap.analysis.live.triggers import parse_trigger
        from tailtap.base.errors import InputError
        from tailtap.base.units import parse_size, parse_time
        from tailtap.measure.observe.recorder import Recording, parse_rate

        for text in above:
            parse_trigger(text)
        keep_ns = parse_time(keep)
        if not 100_000_000 <= keep_ns <= 60_000_000_000:
            raise InputError(f"--keep {keep!r}: give a time from 100 ms to 60 s")
        recording = Recording(
            above=above,
            keep_ns=keep_ns,
            incidents=incidents,
            rate=None if rate is None else parse_rate(rate),
            then=then,
            memory=parse_size(memory),
        )
        return function(recording=recording, **others)

    declared: Function = with_recording
    for option in reversed(options):
        declared = option(declared)
    return declared


def record_incidents(
    asked: Asked,
    recording: Recording,
    out: Path,
    *,
    live: bool,
    metrics: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Observe, keep incidents in `out`, and print what became of all packets.

    Raises what `record` raises, and `MachineError` when not all incidents could be kept.
    """
    from tailtap.analysis.live.numbers import Board
    from tailtap.base.errors import MachineError
    from tailtap.cli.caller import results_of_caller
    from tailtap.cli.live import showing
    from tailtap.cli.observe import told_of
    from tailtap.measure.campaign import Campaign
    from tailtap.measure.live import away_from
    from tailtap.measure.observe.recorder import record
    from tailtap.records.record import printed
    from tailtap.results.database import kept_current

    board = Board()

    def begun(prepared: Prepared) -> None:
        cpus = away_from(prepared.serving.cpus)
        stack.enter_context(showing(board, live=live, metrics=metrics, quiet=quiet, cpus=cpus))
        for line in () if quiet else told_of(prepared):
            warn(line)

    def made(path: Path) -> None:
        if not quiet:
            warn(f"incident: {path}")

    with results_of_caller(out), kept_current(out), contextlib.ExitStack() as stack:
        told = record(asked, recording, Campaign(out), board=board, on_begin=begun, on_made=made)
    if json:
        print(printed(told))
    else:
        _print(told, out)
    if told.ended is not None:
        raise MachineError(told.ended)


def _print(told: RecordingRecord, out: Path) -> None:
    """What became of all packets, and of the incidents."""
    from rich.console import Console

    from tailtap.cli.live import drawn
    from tailtap.cli.terminal import width_of

    Console(width=width_of(sys.stdout)).print(drawn(told.numbers))
    for count, why in (
        (told.dropped_limit, "were more than --incidents"),
        (told.dropped_rate, "came faster than --rate"),
        (told.dropped_busy, "came while too many others were being made"),
        (told.dropped_disk, "found no room on the disk"),
    ):
        if count:
            say(f"not kept: {count:,} incidents {why}")
    say(f"results: {out}")

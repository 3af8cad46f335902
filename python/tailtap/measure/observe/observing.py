"""`observe`: the library function behind `tailtap observe`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder
from tailtap.base.bugs import STORAGE, kept
from tailtap.base.errors import InputError, Interrupted
from tailtap.lab.instruments.kernel_counters import Counters, warnings_of
from tailtap.measure.campaign import Campaign
from tailtap.measure.observe.at_work import AtWork
from tailtap.measure.observe.look import PACKETS, Asked
from tailtap.measure.observe.prepared import SLUGS, Prepared, prepare
from tailtap.measure.observe.record import begun, ended, evaluated, share_trace, stopped_into
from tailtap.measure.preconditions import Beside, other_measurements
from tailtap.records.run import RunRecord
from tailtap.records.warnings import notices

Begun = Callable[[Prepared], object]
"""Called when the first packet counts."""


def observe(
    asked: Asked, campaign: Campaign, *, on_begin: Begun = lambda prepared: None
) -> list[RunFolder]:
    """Observe packets that pass a device which is there already.

    Ends when it has lasted as long as was `asked`, when so many packets have passed, and at SIGINT,
    SIGTERM or SIGHUP, which end it like the others. Returns the run folders: of the way there and,
    where it was asked for, of the way back. Nothing on the machine is changed.

    Raises what `opened_for` raises.
    """
    with opened_for(asked, campaign) as prepared:
        return observe_prepared(prepared, campaign.folder, on_begin)


@contextlib.contextmanager
def opened_for(
    asked: Asked, campaign: Campaign, *, packets_alone: bool = False
) -> Iterator[Prepared]:
    """All that is prepared, in a folder that was empty.

    With `packets_alone` there must be two interfaces, and no requests. Raises what
    `Campaign.opened` raises, `InputError` for interfaces and packets that cannot be found, and
    `MachineError` when this machine cannot do it.
    """
    with campaign.opened():
        campaign.require_empty()
        prepared = prepare(asked)
        if packets_alone and prepared.match != PACKETS:
            raise InputError(
                "a flight recorder follows packets from one interface to another: name both"
            )
        campaign.prepare("", {})
        yield prepared


def observe_prepared(
    prepared: Prepared,
    folder: ExperimentFolder,
    on_begin: Begun = lambda prepared: None,
    *,
    ends_early: bool = True,
) -> list[RunFolder]:
    """The same of what is prepared, into a folder that is there and locked.

    With `ends_early` false an interruption leaves no result: it raises `Interrupted`.
    """
    early = contextlib.suppress(KeyboardInterrupt) if ends_early else contextlib.nullcontext()
    runs: list[tuple[RunFolder, RunRecord]] = []
    for number, (slug, way) in enumerate(zip(SLUGS, prepared.ways, strict=False), 1):
        run, record = folder.run(slug), begun(prepared, number, way)
        record.slug = slug
        run.start_anew()
        run.write(record)
        runs.append((run, record))
    first = runs[0][0]
    try:
        beside, before, began = Beside.look(), Counters.read(), time.monotonic_ns()
        with AtWork.start(prepared, folder.runs) as work:
            on_begin(prepared)
            with early:  # it ends it, and no other one reaches us
                work.watch()
            elapsed, after = time.monotonic_ns() - began, Counters.read()
            stopped = work.stop()
        facts = after.since(before).facts(elapsed)
        others = [
            *other_measurements(beside, Beside.look()),
            *warnings_of(after.since(before), elapsed, prepared.serving.cpus),
        ]
        for run, record in runs:
            stopped_into(record, run, stopped, facts)
            record.warnings += notices(others)
            if run is not first:
                share_trace(first.path, run.path)
    except KeyboardInterrupt:
        for run, record in runs:
            ended(record, run, "interrupted", "stopped by the user")
        raise Interrupted("interrupted before anything was measured") from None
    except Exception as error:
        _fail(runs, error)
    else:
        for run, record in runs:
            try:
                evaluated(record, run, stopped.span_ns)
            except Exception as error:  # the other way may have a result
                _fail([(run, record)], error)
            else:
                ended(record, run, "done")
    return [run for run, _ in runs]


def _fail(runs: Sequence[tuple[RunFolder, RunRecord]], error: Exception) -> None:
    """Store why these runs have no result. Raises what the disk is to blame for."""
    if isinstance(error, OSError) and error.errno in STORAGE:
        raise error
    for run, record in runs:
        ended(record, run, "failed", kept(error, run.path))

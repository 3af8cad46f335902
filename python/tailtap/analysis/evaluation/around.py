"""What packets met with around events: how long nothing came out, what was lost, how late it was.

An event's packets are those that go in from its begin on until its window behind its end is over,
or the next event begins: from where it may have begun at the earliest until where it may have ended
at the latest. All others are the run's other time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tailtap.analysis.evaluation.percentiles import percentiles_of
from tailtap.records.run import Blocked, Event, Passed, Quantile
from tailtap.records.stamps import read_stamps

PERCENTILES = (0.5, 0.99, 0.999)
Times = npt.NDArray[np.int64]


def around(
    events: Sequence[Event], ingress: Path, egress: Path, *, trim_ns: int, window_ns: int
) -> tuple[list[Event], Passed]:
    """The events with what was around them, and what passed in the run's other time.

    `ingress` and `egress` are stamp files. Packets that go in within `trim_ns` of the first one are
    of no time, and one is lost that is not out within `window_ns`. Raises `InputError`.
    """
    first, last = read_stamps(ingress), read_stamps(egress)
    order = np.argsort(first["time_ns"], kind="stable")
    into: Times = first["time_ns"][order].astype(np.int64)
    out = np.sort(last["time_ns"].astype(np.int64))
    latency = _latencies(into, first["id"][order], last, window_ns)
    found, other = [], np.ones(len(into), bool)
    begin = int(into[0]) if len(into) else 0
    for event, end in zip(events, _ends(events), strict=True):
        began = _begin(event)
        part = slice(*np.searchsorted(into, [began, end]))
        other[part] = False
        told = replace(
            event,
            after_ns=event.begin_ns - begin,
            blocked=_blocked(into, out, began, end),
            around=_passed(latency[part], max(end - began, 0)),
        )
        found.append(told)
    other[: int(np.searchsorted(into, begin + trim_ns))] = False
    whole = int(into[-1]) - begin if len(into) else 0
    covered = sum(one.around.time_ns for one in found if one.around is not None)
    return found, _passed(latency[other], max(whole - covered - trim_ns, 0))


def _ends(events: Sequence[Event]) -> Iterable[int]:
    """The end of each event's window."""
    begins = sorted(map(_begin, events))
    for event in events:
        own = event.begin_ns if event.end_ns is None else event.end_ns
        own += event.within_ns + event.window_ns
        yield min(own, next((begin for begin in begins if begin > _begin(event)), own))


def _begin(event: Event) -> int:
    """When it began at the earliest."""
    return event.begin_ns - event.within_ns


def _latencies(
    into: Times, ids: npt.NDArray[np.uint32], last: npt.NDArray[np.void], window_ns: int
) -> Times:
    """The latency of each packet that went in; -1 of one that was lost."""
    # Of a packet with copies the first one counts.
    order = np.lexsort((last["time_ns"], last["id"]))
    known, times = last["id"][order], last["time_ns"][order].astype(np.int64)
    place = np.searchsorted(known, ids)
    there = place < len(known)
    there[there] = known[place[there]] == ids[there]
    latency = np.full(len(into), -1, np.int64)
    latency[there] = times[place[there]] - into[there]
    latency[latency > window_ns] = -1
    return latency


def _passed(latency: Times, time_ns: int) -> Passed:
    arrived = latency[latency >= 0]
    rows = []
    if arrived.size:
        values, counts = np.unique(arrived, return_counts=True)
        pair = values.astype(np.int64), counts.astype(np.int64)
        rows = [
            Quantile(p=row.p, value=row.value, above=row.above, supported=row.supported)
            for row in percentiles_of(pair, PERCENTILES)
        ]
    return Passed(
        time_ns=time_ns,
        packets=len(latency),
        lost=len(latency) - len(arrived),
        percentiles=rows,
        max_ns=int(arrived.max()) if arrived.size else None,
    )


def _blocked(into: Times, out: Times, begin: int, end: int) -> Blocked | None:
    """The longest time that touches an event's window in which nothing came out."""
    low = max(int(np.searchsorted(out, begin)) - 1, 0)
    high = min(int(np.searchsorted(out, end)) + 1, len(out))
    before, after = out[low : high - 1], out[low + 1 : high]
    entered = np.searchsorted(into, before, side="right")
    there = entered < len(into)
    before, after, entered = before[there], after[there], entered[there]
    waited = after - into[entered]
    best = None
    if waited.size and (longest := int(np.argmax(waited))) >= 0 and waited[longest] > 0:
        started, came = int(into[entered[longest]]), int(after[longest])
        best = Blocked(
            begin_ns=started,
            ns=came - started,
            least_ns=_least(into, int(entered[longest]), came),
            most_ns=came - int(before[longest]),
        )
    stopped = _stopped(into, out, end)
    if stopped is not None and (best is None or stopped.least_ns > (best.ns or 0)):
        return stopped
    return best


def _least(into: Times, entered: int, came: int) -> int:
    """How long packets found it blocked: from the first to the last but one before `came`.

    The last one may have passed at once, where those before it were lost.
    """
    behind = max(int(np.searchsorted(into, came)) - 2, entered)
    return int(into[behind] - into[entered])


def _stopped(into: Times, out: Times, end: int) -> Blocked | None:
    """Where nothing comes out any more from a moment before `end` on."""
    entered = int(np.searchsorted(into, out[-1], side="right")) if len(out) else 0
    if entered >= len(into) or into[entered] >= end:
        return None
    started = int(into[entered])
    return Blocked(begin_ns=started, ns=None, least_ns=int(into[-1]) - started, most_ns=None)

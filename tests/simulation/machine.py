"""A machine of which every nanosecond of the serving core has a known owner.

A core runs what is ready and has the highest level, and of one level what came first: tasks,
softirqs, interrupts, NMIs, and above all of them what takes the core away. A packet waits until the
server has the core. Nothing here is the program's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
POLLS, THREAD, QUOTA, TASK, SOFTIRQ, LOCKED, INTERRUPT, NMI, AWAY = range(9)
"""Levels. A task that keeps softirqs away is `LOCKED` once it runs. A server that is out of `QUOTA`
leaves its core idle."""
Times = tuple[Integers, Integers]
"""Where stretches begin and end, ascending; they do not overlap."""
FOREVER = 1 << 60


def _holds(times: Times, moments: Integers) -> npt.NDArray[np.bool_]:
    start, end = times
    at = np.searchsorted(start, moments, "right") - 1
    found: npt.NDArray[np.bool_] = (at >= 0) & (moments < np.append(end, 0)[at])
    return found


def split(times: Times, others: Times) -> tuple[Times, Times]:
    """What of some stretches lies in others, and what does not."""
    edges = np.unique(np.concatenate([*times, *others]))
    start, end = edges[:-1], edges[1:]
    mine, theirs = _holds(times, start), _holds(others, start)
    within, beyond = mine & theirs, mine & ~theirs
    return (start[within], end[within]), (start[beyond], end[beyond])


class What(NamedTuple):
    """What can have a core: the row of the table of causes that its time belongs to, and how its
    record tells of it.
    """

    cause: str
    detail: str
    level: int
    kind: int = 0
    id: int = 0
    aux: int = 0
    inner: tuple[int, int, int] | None = None
    """Kind, id and aux of a record within."""
    locks: bool = False

    @property
    def row(self) -> tuple[str, str]:
        return self.cause, self.detail


class Job(NamedTuple):
    """Something that a core has to do: from when on, how long, and what it is."""

    start: int
    dur: int
    what: What


class Server(NamedTuple):
    """How packets are served: `waking` are done one after the other when the server sleeps."""

    by: str
    what: What
    waking: tuple[tuple[What, int], ...] = ()
    idle: What = What("idle-exit", "", THREAD, 9, 1)
    idle_states: tuple[tuple[int, int], ...] = ((0, 1_500),)
    """From so long an idle time on, leaving it takes so long; ns, ascending."""

    @property
    def polls(self) -> bool:
        return self.by == "poll"


class Course:
    """What a core did: stretches without a gap, each of one job."""

    def __init__(self, server: Server, packets: int) -> None:
        """Nothing yet."""
        self.server = server
        self.table: list[What] = []
        """All that had the core; jobs name their place here."""
        self._places: dict[What, int] = {}
        self.left = [0] * packets
        """When each packet left."""
        self.what: list[int] = []
        """Of each job."""
        self.ready: list[int] = []
        """When each job was ready."""
        self.start: list[int] = []
        self.end: list[int] = []
        self.job: list[int] = []
        self.short: list[tuple[int, int]] = []
        """From when until when the server's group is out of quota."""

    def place(self, what: What) -> int:
        """Where something stands in the table."""
        if what not in self._places:
            self._places[what] = len(self.table)
            self.table.append(what)
        return self._places[what]

    def begin(self, what: int, now: int) -> int:
        """A new job."""
        self.what.append(what)
        self.ready.append(now)
        return len(self.what) - 1

    def stretch(self, start: int, end: int, job: int) -> None:
        """The core is a job's for a time."""
        if start == end:
            return
        if self.job and self.job[-1] == job and self.end[-1] == start:
            self.end[-1] = end
        else:
            self.start.append(start)
            self.end.append(end)
            self.job.append(job)


def course(
    server: Server, arrivals: Sequence[int], service: Sequence[int], jobs: Sequence[Job], start: int
) -> Course:
    """What a core does from `start` on: it serves packets, and has other jobs."""
    events = [(time, place) for place, time in enumerate(arrivals)]
    events += [(job.start, ~place) for place, job in enumerate(jobs)]
    events.sort()
    events += [(FOREVER, 0)] * 2
    made = Course(server, len(arrivals))
    idles = [
        (least, takes, made.place(server.idle._replace(id=state)))
        for state, (least, takes) in enumerate(server.idle_states, start=1)
    ]
    waking = [(made.place(what), what.level, work) for what, work in server.waking]
    waking.append((made.place(server.what), server.what.level, 0))
    served = waking[-1][0]
    ready: list[list[int]] = []  # -level, order, what is left to do, job
    queue: deque[int] = deque()
    awake, order = False, 0
    step: dict[int, int] = {}  # of the job that wakes the server, or is it
    now = start
    if server.polls:
        ready.append([-POLLS, 0, FOREVER, made.begin(served, now)])

    def add(what: int, level: int, work: int) -> int:
        nonlocal order
        order += 1
        job = made.begin(what, now)
        heappush(ready, [-level, order, work, job])
        return job

    def wake(place: int) -> None:
        what, level, work = waking[place]
        last = place == len(waking) - 1
        step.clear()
        step[add(what, level, service[queue[0]] if last else work)] = place

    at, number = 0, len(events) - 2
    while at < number or len(ready) > server.polls:
        if not ready:
            time, place = events[at]
            if place < 0 and jobs[~place].what.level == AWAY:
                at += 1  # nothing is taken away from a core that idles
                continue
            if time > now:
                slept = time - now
                chosen = [idle for idle in idles if slept >= idle[0]][-1]
                begun = made.begin(chosen[2], now)
                made.stretch(now, time + chosen[1], begun)
                now = time + chosen[1]
            if place >= 0:  # mostly nothing comes until this packet has left
                works = [work for _, _, work in waking[:-1]] + [service[place]]
                if now + sum(works) <= events[at + 1][0]:
                    at += 1
                    for (woken, _, _), work in zip(waking, works, strict=True):
                        made.stretch(now, now + work, made.begin(woken, now))
                        now += work
                    made.left[place] = now
                    continue
        while events[at][0] <= now:
            _, place = events[at]
            at += 1
            if place < 0:
                start, dur, what = jobs[~place]
                idled = made.job and made.table[made.what[made.job[-1]]].level == QUOTA
                if what.level == AWAY and idled and made.end[-1] == now:
                    continue
                if what.level == QUOTA:
                    if made.short and start < made.short[-1][1]:
                        continue
                    dur += start  # the time at which it ends, whoever has the core meanwhile
                    made.short.append((start, dur))
                add(made.place(what), what.level, dur)
                continue
            queue.append(place)
            if not awake:
                awake = True
                wake(0)
        if not ready:
            continue
        top = ready[0]
        job = top[3]
        if made.table[made.what[job]].locks:
            top[0] = -LOCKED
        lacks = top[0] == -QUOTA
        end = max(now, top[2]) if lacks else now + top[2]
        if events[at][0] < end:
            made.stretch(now, events[at][0], job)
            top[2] = end if lacks else end - events[at][0]
            now = events[at][0]
            continue
        made.stretch(now, end, job)
        now = end
        if job not in step:
            heappop(ready)
        elif step[job] < len(waking) - 1:
            heappop(ready)
            wake(step[job] + 1)
        else:
            made.left[queue.popleft()] = now
            while events[at][0] <= now and events[at][1] >= 0:
                queue.append(events[at][1])
                at += 1
            if queue:
                top[2] = service[queue[0]]
            else:
                heappop(ready)
                awake = False
    return made

"""A device that was there before is observed: its packets are stamped and its cores are traced, and
nothing is changed.

`interfaces.py` finds where an interface is, and what it is. `look.py` looks at packets for a
moment: in which order they pass both interfaces, and by what they are known again. `prepared.py`
adds who serves them, by `serving.py`, and is what can begin. `at_work.py` has the taps and the
tracer, and what they cost. Here a run is made of it; `recorder.py` does so for as long as it takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import structs

from tailtap.analysis.evaluation.evaluate import SECOND_NS, Settings
from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.evaluation.sources import source_of
from tailtap.analysis.evaluation.transactions import transactions_by
from tailtap.analysis.live.numbers import Numbers, Watched
from tailtap.analysis.live.written import Growing
from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder, are_requests, main_kind
from tailtap.base.errors import InputError, Interrupted, TailtapError
from tailtap.base.files import name_again, remove
from tailtap.base.units import format_count
from tailtap.host.cpu.cpus import away_from
from tailtap.host.facts import environment
from tailtap.lab.instruments.kernel_counters import Counters, warnings_of
from tailtap.lab.instruments.taps.inline import of_tap
from tailtap.lab.instruments.tracer import EVENTS
from tailtap.lab.instruments.tracer import RECORD as TRACE
from tailtap.measure.beside import Beside, kept_to, other_measurements
from tailtap.measure.campaign import Campaign, now
from tailtap.measure.flow import FlowRun, why_failed
from tailtap.measure.observe.at_work import MARKS, SIDES, AtWork, Stopped
from tailtap.measure.observe.interfaces import xdp_words
from tailtap.measure.observe.look import PACKETS, Options, Way
from tailtap.measure.observe.prepared import SLUGS, Prepared, prepare
from tailtap.measure.observe.serving import cpus_at
from tailtap.records.datapath import Tap, Tapped
from tailtap.records.live import Observed
from tailtap.records.record import Notice, opened
from tailtap.records.run import Facts, Instrument, Node, Parameters, RunRecord
from tailtap.records.stamps import MARK, keep, read_marks, write

NAME = "observed"
DEVICE = "device"
KEY_OF_REQUESTS = "packet"
"""What the keys of requests are taken for in files of marks: all are unlike each other."""
MOST_REQUESTS = 1 << 21
"""Of more, the slowest are kept."""
BACK = "back"


class ObservedRun(FlowRun):
    """The run of one way through a device."""

    @classmethod
    def of(cls, prepared: Prepared, number: int, way: Way, folder: RunFolder) -> ObservedRun:
        """One of which nothing is known yet but how it is observed."""
        options, serving = prepared.options, prepared.serving
        settings = {"key": prepared.looked.key, "match": prepared.looked.match}
        trace = options.trace if prepared.traced else "none"
        cpus = list(serving.cpus)
        record = RunRecord(
            number=number,
            slug=folder.path.name,
            repeat=1,
            variables={"direction": "reverse" if number > 1 else "forward"} if options.both else {},
            parameters=opened(
                "what was asked for", {"evaluation": settings, "trace": trace}, Parameters
            ),
            name=NAME,
            status="running",
            started=now(),
            warnings=[],
            traits=prepared.traits,
            nodes=[Node(name=DEVICE, task="dut", kind=NAME, cpus=cpus)],
            environment=environment.describe(),
            observed=Observed(
                points=prepared.points(way),
                servers=list(serving.rows),
                traced=cpus if prepared.traced else [],
                found=list(serving.found),
                unknown=list(serving.unknown),
                looked_ns=prepared.looked.took_ns,
                filter=options.filter,
                sample=options.sample,
            ),
        )
        return cls(folder, record)

    def take(self, stopped: Stopped, facts: Facts) -> None:
        """Enter what taps, tracer and counters left."""
        record, taps = self.record, stopped.taps[self.folder.path.name]
        record.taps = {name: opened(name, tap.whole, Tap) for name, tap in taps.items()}
        known = {side: tap.known for side, tap in taps.items()}
        record.warnings += [*stopped.warnings, *_of_taps(known)]
        record.instruments["taps"] = Instrument(
            facts=["taps"], files=sorted(tap.file for tap in known.values())
        )
        record.softnet, record.steal_ns, record.cpu_ns = facts.softnet, facts.steal_ns, facts.cpu_ns
        record.elapsed_ns = facts.elapsed_ns
        record.instruments["kernel-counters"] = Instrument(
            facts=["softnet", "steal_ns", "cpu_ns", "elapsed_ns"], files=[]
        )
        if stopped.trace is not None:
            record.trace = stopped.trace
            record.instruments["trace"] = Instrument(facts=["trace"], files=[EVENTS, TRACE])
        if record.observed is not None:
            record.observed.cost = stopped.cost
            for point in record.observed.points:
                if point.at == "arrival" and (xdp := stopped.xdp.get(point.target)):
                    point.xdp, point.xdp_dropped = list(xdp.programs), xdp.dropped
            if stopped.trace is None:
                record.observed.traced = []

    def evaluate(self, span_ns: tuple[int, int] | None = None) -> None:
        """Evaluate the stamps, enter the warnings about them, and store that it is done.

        With `span_ns` only packets count that came between these moments, where files say which
        these are. Raises `TailtapError`.
        """
        record, folder = self.record, self.folder
        if span_ns is not None and folder.ingress.suffix == f".{MARKS}":
            came, left = cut(folder.ingress, folder.egress, *span_ns, below=folder.top)
            if not came or not left:
                raise InputError(
                    f"nothing can be matched: {format_count(came, 'packet')} came, and {left:,} "
                    "left; observe while traffic passes both interfaces"
                )
        found, settings = self.evaluated()
        if are_requests(record.parameters.known.evaluation):
            record.warnings += _unstamped(record)
            self._mark_requests(settings, found.key)
        else:
            record.warnings += [*_elsewhere(found), *_unstamped(record, found)]
        found.write(folder.evaluation, below=folder.top)
        record.valid = True
        self.end("done")

    def _mark_requests(self, settings: Settings, kind: str) -> None:
        """Leave marks of requests and answers in place of the heads of their packets.

        A request and its answer have the same key. Where there is a trace, an answer has the CPU on
        which what serves was at work then.
        """
        record, folder = self.record, self.folder
        captures = folder.ingress, folder.egress
        whole = transactions_by(
            replace(settings, worst=MOST_REQUESTS), *(source_of(path) for path in captures)
        )
        worst = main_kind(whole, kind).worst_packets
        files = []
        for path, times in zip(captures, (worst.ingress_ns, worst.egress_ns), strict=True):
            marks = np.zeros(len(times), MARK)
            marks["time_ns"], marks["key"] = times, np.arange(len(times))
            if path is captures[1] and record.trace is not None and record.observed is not None:
                pids = [int(pid) for one in record.observed.servers for pid in one.threads]
                marks["cpu"] = cpus_at(folder.path, marks["time_ns"], pids)
            target = path.with_suffix(f".{MARKS}")
            write(target, marks, link=path.stem, key=KEY_OF_REQUESTS, below=folder.top)
            remove(path, below=folder.top)
            files.append(target.name)
        record.instruments["taps"].files = sorted(files)


def _elsewhere(found: Evaluation) -> Iterator[Notice]:
    """That packets which did not leave may have gone elsewhere. Nobody knows that they were lost:
    they count as packets that were not read behind the device.
    """
    lost = found.counts.lost
    if lost:
        found.inputs.egress.unread["elsewhere"] = lost
        yield Notice(
            "observed-elsewhere",
            f"{format_count(lost, 'packet')} of {found.counts.ingress:,} came and did not leave "
            "through the second interface: they were lost, or were not for it",
        )


def _unstamped(record: RunRecord, found: Evaluation | None = None) -> Iterator[Notice]:
    """That XDP programs ran before stamps. What they dropped before the device was not read there,
    so that a verdict knows how many may be lost.
    """
    for place, point in enumerate(() if record.observed is None else record.observed.points):
        if not point.xdp:
            continue
        dropped = "an unknown number of packets"
        if point.xdp_dropped is not None:
            dropped = format_count(point.xdp_dropped, "packet")
        if found is not None and not place and point.xdp_dropped:
            found.inputs.ingress.unread["dropped-by-xdp"] = point.xdp_dropped
        fate = "count as lost, whoever dropped them" if place else "are in no count, not as lost"
        ran = xdp_words(point.xdp, point.interface)
        message = f"{ran} before packets are stamped there, and dropped {dropped}: these {fate}"
        yield Notice("dropped-before-stamp", message)


def _of_taps(taps: Mapping[str, Tapped]) -> Iterator[Notice]:
    for side, tap in taps.items():
        yield from of_tap(side, tap)
        if tap.dropped:
            yield Notice(
                "tap-drops",
                f"the kernel dropped {format_count(tap.dropped, 'packet')} before the {side} tap, "
                "as a queue of its CPUs was full (net.core.netdev_max_backlog)",
            )


WAY_NS = 5_000_000_000
"""No packet is in the device for longer: the window of an evaluation."""


def cut(
    ingress: Path, egress: Path, since_ns: int, until_ns: int, *, below: Path
) -> tuple[int, int]:
    """Leave of two files of marks the packets that came before the device between two moments, and
    what came of them.

    Both taps were there from `since_ns` on, and for a while after `until_ns`. Returns how many are
    left of each. Raises `InputError`.
    """
    before, behind = read_marks(ingress), read_marks(egress)
    came, left = before["time_ns"], behind["time_ns"]
    kept = (came >= since_ns) & (came <= until_ns)
    early, late = came < since_ns, kept & (came > max(0, until_ns - WAY_NS))
    chosen = left >= since_ns
    # What was in the device already, and what came into it too late to be seen to the end.
    first = chosen & (left < since_ns + WAY_NS)
    last = left > until_ns
    own = before["key"][kept & (came < since_ns + WAY_NS)]
    others = np.setdiff1d(before["key"][early], own)
    chosen[first] &= ~np.isin(behind["key"][first], others)
    chosen[last] &= np.isin(behind["key"][last], before["key"][late])
    keep(ingress, before, kept, below=below)
    keep(egress, behind, chosen, below=below)
    return int(kept.sum()), int(chosen.sum())


def observe(options: Options, campaign: Campaign) -> list[RunFolder]:
    """Observe packets that pass a device which is there already.

    Ends when it has lasted as long as was `asked`, when so many packets have passed, and at SIGINT,
    SIGTERM or SIGHUP, which end it like the others. Returns the run folders: of the way there and,
    where it was asked for, of the way back. Nothing on the machine is changed.

    Raises what `opened_for` raises.
    """
    with opened_for(options, campaign) as prepared:
        for sentence in prepared.sentences():
            campaign.note(sentence)
        return observe_prepared(prepared, campaign.folder)


@contextlib.contextmanager
def opened_for(
    options: Options, campaign: Campaign, *, packets_alone: bool = False
) -> Iterator[Prepared]:
    """All that is prepared, in a folder that was empty.

    With `packets_alone` there must be two interfaces, and no requests. Raises what
    `Campaign.opened` raises, `InputError` for interfaces and packets that cannot be found, and
    `MachineError` when this machine cannot do it.
    """
    with campaign.opened():
        campaign.require_empty()
        is_heard = any(one.wants_numbers for one in campaign.listeners)
        hearing = replace(
            options,
            on_step=lambda step: campaign.note(f"observe: {step}"),
            on_numbers=campaign.measured if is_heard else None,
        )
        prepared = prepare(hearing)
        if packets_alone and prepared.looked.match != PACKETS:
            raise InputError(
                "a flight recorder follows packets from one interface to another: name both"
            )
        campaign.prepare("", {})
        try:
            yield prepared
        finally:
            for one in campaign.listeners:
                one.ended()


WINDOW_NS = SECOND_NS
"""A packet that has not left after this time counts as lost meanwhile."""


def _counting(prepared: Prepared, work: AtWork) -> Callable[[float | None], object]:
    """What counts the marks that are written so far, and tells of them."""
    settings, flows = Settings(key=prepared.looked.key, window_ns=WINDOW_NS), []
    for slug, _ in zip(SLUGS, prepared.ways if prepared.hashed else (), strict=False):
        came, left = (Growing(work.folder / slug / f"{side}.{MARKS}") for side in SIDES)
        flows.append(Watched(slug, came, left, settings, work.began_ns))
    numbers = Numbers(work.folder.parent.name, flows)
    tell = prepared.options.on_numbers
    assert tell is not None

    def look(left_s: float | None) -> None:
        now_ns = time.monotonic_ns()
        with contextlib.suppress(TailtapError, OSError):  # the observation goes on
            numbers.look(now_ns)
            elapsed_s = (now_ns - work.began_ns) / SECOND_NS
            tell(structs.replace(numbers.record(now_ns), elapsed_s=elapsed_s, left_s=left_s))

    return look


def observe_prepared(
    prepared: Prepared, folder: ExperimentFolder, *, ends_early: bool = True
) -> list[RunFolder]:
    """The same of what is prepared, into a folder that is there and locked.

    With `ends_early` false an interruption leaves no result: it raises `Interrupted`.
    """
    early = contextlib.suppress(KeyboardInterrupt) if ends_early else contextlib.nullcontext()
    runs = [
        ObservedRun.of(prepared, number, way, folder.run(slug))
        for number, (slug, way) in enumerate(zip(SLUGS, prepared.ways, strict=False), 1)
    ]
    for run in runs:
        run.begin()
    try:
        beside, before, began = Beside.look(), Counters.read(), time.monotonic_ns()
        with contextlib.closing(AtWork.start(prepared, folder.runs)) as work:
            look = None if prepared.options.on_numbers is None else _counting(prepared, work)
            with early, kept_to(away_from(prepared.serving.cpus)):  # no other one reaches us
                work.watch(look)
            elapsed, after = time.monotonic_ns() - began, Counters.read()
            stopped = work.stop()
        others = [
            *other_measurements(beside, Beside.look()),
            *warnings_of(after.since(before), elapsed, prepared.serving.cpus),
        ]
        for run in runs:
            run.take(stopped, after.since(before).facts(elapsed))
            run.record.warnings += others
        for run in runs[1:] if stopped.trace is not None else ():
            for name in (EVENTS, TRACE):
                first = runs[0].folder.path / name
                name_again(first, run.folder.path / name, below=folder.path)
    except KeyboardInterrupt:
        for run in runs:
            run.end("interrupted", "stopped by the user")
        raise Interrupted("interrupted before anything was measured") from None
    except Exception as error:
        for run in runs:
            run.end("failed", why_failed(error, run.folder))
    else:
        for run in runs:
            try:
                run.evaluate(stopped.span_ns)
            except Exception as error:  # the other way may have a result
                run.end("failed", why_failed(error, run.folder))
    return [run.folder for run in runs]

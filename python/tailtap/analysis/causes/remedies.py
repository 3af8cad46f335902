"""Candidate remedies: knobs that answer a cause of this run and can be set where it was measured.

A knob is a candidate until a measurement with and without it showed what it does here. It must be
made for this very cause (its thread, vector, function or interface), be settable, and the run's own
audit must say that it is not met: what does not apply to the machine is none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tailtap.analysis.causes.taxonomy import Named, is_of, is_of_generator, own_detail
from tailtap.analysis.evaluation.values import label
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.registry import Registry
from tailtap.base.units import format_time
from tailtap.records.causes import ProvenKnob, Without
from tailtap.records.knobs import KNOBS, KnobFacts
from tailtap.records.record import Notice, read

if TYPE_CHECKING:
    from tailtap.records.search import KnobTrial

IN_GUEST = "guest: "
IN_GENERATOR = "generator: "
MOST_KNOBS = 5
LEAST_SHARE = 0.01
"""A knob whose causes have less than this share of the late packets is not named."""
NOT_MET = "not-met"

THREADS = ("kernel-threads", "isolated-cpus")
"""Keep threads away that are bound to no core."""
_MAINTENANCE = "|".join((
    "apt", "dnf", "dpkg", "e2scrub", "fstrim", "fwupd", "logrotate", "mandb", "mdcheck",
    "raid-check", "sadc", "systemd-tmpfile", "updatedb",
))  # fmt: skip
"""Programs that timers of systemd start."""
MADE_FOR: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("timer", r"local timer|tick_", ("nohz-full", "nohz-full-patience", "skew-tick")),
    ("timer", r"watchdog_timer_fn", ("soft-watchdog", "watchdog-cores")),
    ("timer", r"clocksource_watchdog", ("tsc-reliable",)),
    ("timer", r"mce", ("corrected-errors",)),
    ("timer", r"dl_", ("fair-server",)),
    ("function-call-ipi", r"rcu", ("rcu-normal",)),
    ("softirq", r"RCU", ("rcu-nocbs",)),
    ("softirq", r"SCHED", ("isolated-cpus",)),
    ("kernel-thread", r"vmstat", ("stat-interval",)),
    ("kernel-thread", r"kworker", ("workqueues", "workqueues-default")),
    ("kernel-thread", r"kdamond", ("damon", "damon-modules", *THREADS)),
    ("kernel-thread", r"khugepaged", ("transparent-huge-pages", *THREADS)),
    ("kernel-thread", r"kcompactd", ("compaction", *THREADS)),
    ("kernel-thread", r"ksmd", ("same-pages", *THREADS)),
    ("kernel-thread", r"khungtaskd", ("hung-task", *THREADS)),
    ("kernel-thread", r"kauditd", ("kernel-audit", *THREADS)),
    ("kernel-thread", r"kvm-nx-lpage", ("huge-page-recovery", *THREADS)),
    ("kernel-thread", r"watchdog/", ("soft-watchdog", "watchdog-cores")),
    ("kernel-thread", r"migration/", ("isolated-cpus",)),
    ("kernel-thread", r"rcuo|rcu_", ("rcu-threads", *THREADS)),
    ("kernel-thread", r"/\d+$", ()),  # of one core: nothing moves it
    ("kernel-thread", r".", THREADS),
    (
        "task",
        rf"^({_MAINTENANCE})",
        ("maintenance", "isolated-cpus", "groups"),
    ),
    ("task", r".", ("isolated-cpus", "groups")),
    ("page-fault", r"reclaim", ("watermarks", "zone-reclaim")),
    ("page-fault", r"compaction", ("huge-page-defrag", "transparent-huge-pages")),
    (
        "idle-exit",
        r"",
        (
            "deep-idle-states", "resume-latency", "intel-idle-limit", "acpi-idle-limit",
            "wake-up-time", "idle-poll", "guest-halt-polling",
        ),
    ),
    ("nmi", r"", ("nmi-watchdog", "watchdog-cores")),
    (
        "frequency",
        r"",
        (
            "governor", "energy-preference", "energy-bias", "uncore-frequency", "turbo", "boost",
            "lowest-frequency", "frequency-driver", "amd-frequency-driver",
        ),
    ),
    ("foreign-net-rx", r"", ("other-steering",)),
    ("device-interrupt", r"^(thermal|platform|other vector)$", ()),
    ("device-interrupt", r".", ("device-interrupts", "interrupt-default", "isolated-cpus")),
)  # fmt: skip
"""A cause, what its detail looks like, and the knobs that answer it: the first that fits holds, and
what none fits has no known knob."""
OF_CARDS: Mapping[str, tuple[str, ...]] = {
    "device-interrupt": ("card-interrupts", "adaptive-receive", "deferred-interrupts",
                         "card-queues"),
    "foreign-net-rx": ("card-interrupts", "receive-spread", "card-queues"),
    "link": ("flush-timeout", "adaptive-receive", "receive-coalescing", "card-power", "link-power",
             "card-merging", "pause-frames", "link-sleep"),
}  # fmt: skip
"""What more answers a cause where packets pass network cards; of an interrupt, where it is one of
theirs."""


TABLE: Registry[KnobFacts] = Registry("knob", "tailtap.knobs", KnobFacts, lambda: KNOBS)


def known_knobs() -> tuple[KnobFacts, ...]:
    """The knobs of `tailtap host`, those of other packages included."""
    return tuple(
        KnobFacts(
            knob.name, tuple(knob.removes), knob.risk, knob.settable, knob.recommended,
            knob.disruptive, knob.details,
        )
        for _, knob in TABLE.working()
    )  # fmt: skip


def rank(knob: KnobFacts) -> tuple[bool, int, bool, str]:
    """What is cheaper comes first."""
    return (not knob.recommended, knob.risk, knob.settable == "boot", knob.name)


@dataclass(frozen=True)
class Situation:
    """Where a run was measured, as it says itself."""

    answers: Mapping[str, str] | None = None
    """Of the audit during the run, by knob; those that do not apply are missing. None where the run
    has no audit: then nobody knows."""
    in_guest: Mapping[str, str] | None = None
    """The same of its virtual machine's kernel."""
    cards: frozenset[str] = frozenset()
    """The network cards that packets pass."""
    purpose: str = ""
    """Options of `tailtap host` that say what the machine is for, such as ``--cpus 1``."""
    of_generator: str = ""
    """The same for the CPUs that hand packets over, of which the audit says nothing."""
    trials: tuple[KnobTrial, ...] = ()
    """What was tried here, with and without."""
    p: float = 0.0
    """The percentile that the trials tell of."""
    knobs: Sequence[KnobFacts] = field(default_factory=known_knobs)
    """What may be named."""

    def allows(self, knob: KnobFacts) -> bool:
        """Whether it can be set there, is not yet as it should be, and was not tried yet."""
        guest = knob.name.startswith(IN_GUEST)
        answers = self.in_guest if guest else self.answers
        if knob.name.startswith(IN_GENERATOR):
            answers = None
        name = _plain(knob.name)
        if knob.name in decided(self.trials):
            return False
        return knob.settable != "no" and (answers is None or answers.get(name) == NOT_MET)

    def lines(self, knobs: Sequence[KnobFacts]) -> list[str]:
        """What to type for these knobs."""
        ours = [knob for knob in knobs if knob.name == _plain(knob.name)]
        theirs = [knob for knob in knobs if knob.name.startswith(IN_GENERATOR)]
        found = [*_lines(ours, self.purpose), *_lines(theirs, self.of_generator)]
        if len(ours) + len(theirs) < len(knobs):
            found.append("tailtap run EXPERIMENT --set dut.tuning=full")
        return found


def _lines(knobs: Sequence[KnobFacts], purpose: str) -> Iterator[str]:
    now = [knob for knob in knobs if knob.settable == "runtime"]
    boot = [_plain(knob.name) for knob in knobs if knob.settable == "boot"]
    if now:
        disruptive = any(knob.disruptive for knob in now)
        names = [_plain(knob.name) for knob in now]
        yield " ".join(
            filter(None, ("sudo tailtap host apply", *names, purpose, "--disruptive" * disruptive))
        )
    if boot:
        yield " ".join(filter(None, ("tailtap host bootline", *boot, purpose)))


@dataclass(frozen=True)
class Remedy:
    """Candidates, and the causes that they answer."""

    knobs: tuple[KnobFacts, ...]
    packets: int
    """Late packets with these causes."""
    share: float
    causes: frozenset[Named] = field(default_factory=frozenset)


def knobs_for(name: Named, here: Situation) -> list[KnobFacts]:
    """The candidates for a cause, the cheapest first; none where no knob is known.

    A guest has its kernel's line and nothing else that could be set for it: knobs of a guest's
    cause are called ``guest: NAME``. Those of a generator's CPU are called ``generator: NAME``.
    """
    detail = own_detail(name)
    for machine in ("host", "guest"):
        detail = "" if detail == machine else detail.removeprefix(f"{machine}: ")
    made: tuple[str, ...] = next(
        (made for cause, words, made in MADE_FOR if cause == name.cause
         and re.search(words, detail)),
        (),
    )  # fmt: skip
    theirs = name.cause != "device-interrupt" or any(card in detail for card in here.cards)
    if here.cards and theirs:
        made += OF_CARDS.get(name.cause, ())
    knobs = here.knobs
    if is_of_generator(name):
        knobs = [replace(knob, name=f"{IN_GENERATOR}{knob.name}") for knob in knobs]
    if is_of("guest", name):
        knobs = [replace(knob, name=f"{IN_GUEST}{knob.name}") for knob in knobs
                 if knob.settable == "boot"]  # fmt: skip
    found = [
        knob
        for knob in knobs
        if (_plain(knob.name) in made or _answers(knob, name.cause, detail)) and here.allows(knob)
    ]
    return sorted(found, key=rank)


def _answers(knob: KnobFacts, cause: str, detail: str) -> bool:
    """Whether a knob of another package says that it is made for this cause."""
    return (
        knob.details is not None
        and cause in knob.removes
        and re.search(knob.details, detail) is not None
    )


def _plain(name: str) -> str:
    """What a knob is called, wherever it is to be set."""
    return name.removeprefix(IN_GUEST).removeprefix(IN_GENERATOR)


def remedy(
    packets: Mapping[Named, int],
    late: int,
    here: Situation,
    without: Callable[[Collection[Named]], Without] | None = None,
) -> Remedy | None:
    """The candidates that a greedy rule names for causes of so many of the `late` packets.

    `without` is what the tail would be without the time of causes: a knob that takes nothing off
    what those before it leave is not named.
    """
    left = dict(packets)
    by_knob: dict[KnobFacts, set[Named]] = {}
    for name in left:
        for knob in knobs_for(name, here):
            by_knob.setdefault(knob, set()).add(name)
    chosen: list[KnobFacts] = []
    answered: set[Named] = set()

    def gain(knob: KnobFacts) -> int:
        return sum(left.get(name, 0) for name in by_knob[knob])

    def lowers(knob: KnobFacts) -> bool:
        if without is None:
            return True
        before, after = without(answered), without(answered | by_knob[knob])
        return after.below(before.percentile_ns, before.worst_ns)

    while len(chosen) < MOST_KNOBS:
        enough = [knob for knob in by_knob if gain(knob) >= max(1, LEAST_SHARE * late)]
        enough.sort(key=lambda knob: (-gain(knob), rank(knob)))
        best = next(filter(lowers, enough), None)
        if best is None:
            break
        chosen.append(best)
        for name in by_knob.pop(best):
            answered.add(name)
            left.pop(name, None)
    count = sum(packets[name] for name in answered)
    return Remedy(tuple(chosen), count, count / late, frozenset(answered)) if chosen else None


def trials_of(run: Run) -> tuple[tuple[KnobTrial, ...], float, list[Notice]]:
    """The trials of an improvement that this is a run of, and the percentile that they lowered.

    None where it is no such run, or where nobody can read what was shown, which a warning says.
    """
    path = run.home / "improve.json"
    if not os.path.lexists(path):
        return (), 0.0, []
    from tailtap.records.search import ImproveRecord

    try:
        found = read(path, ImproveRecord)
    except InputError as error:
        return (), 0.0, [Notice("file-damaged", f"{error}: what was tried here is not known")]
    return tuple(found.trials), found.p, []


def decided(trials: Iterable[KnobTrial]) -> frozenset[str]:
    """The knobs of which it is known what they do: they are no candidates any more."""
    return frozenset(one.knob for one in trials if one.answer != "not shown")


def proven(trials: Iterable[KnobTrial], p: float, causes: Iterable[Named]) -> list[ProvenKnob]:
    """Those that helped against some of these causes."""
    there = set(causes)
    return [
        ProvenKnob(knob=one.knob, p=p, before_ns=one.before.ns, after_ns=one.after.ns)
        for one in trials
        if one.kept and one.before is not None and one.after is not None
        if any(Named(cause.cause, cause.detail) in there for cause in one.causes)
    ]


def proven_words(knobs: Sequence[ProvenKnob]) -> str:
    """What they did; nothing without any."""
    told = ", ".join(
        f"{one.knob} ({label(one.p)} from {format_time(one.before_ns)} to "
        f"{format_time(one.after_ns)})"
        for one in knobs
    )
    return f"proven: {told}" if told else ""

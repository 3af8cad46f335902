"""The causes of late packets, and the knobs that remove them: what each costs, when it is set.

How a knob is read and set is its row in `tailtap.host.knobs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Settable = Literal["runtime", "boot", "no"]


class Cause(NamedTuple):
    """A cause: its letter in notes and figures, its name, and what it is in a few words."""

    letter: str
    name: str
    words: str


CAUSES: tuple[Cause, ...] = (
    Cause("T", "timer", "the tick or another timer"),
    Cause("R", "reschedule-ipi", "another core asked this one to schedule"),
    Cause("J", "function-call-ipi", "another core called a function on this one"),
    Cause("L", "tlb-flush", "another core had this one flush its TLB"),
    Cause("D", "device-interrupt", "a device's interrupt"),
    Cause("S", "softirq", "deferred work of the kernel"),
    Cause("N", "foreign-net-rx", "receive work for packets of others"),
    Cause("K", "kernel-thread", "a thread of the kernel had the core"),
    Cause("P", "task", "another task had the core"),
    Cause("W", "waiting", "the server was not notified, or not put on the core"),
    Cause("Q", "throttled", "the server could run and was not allowed to"),
    Cause("F", "page-fault", "memory was fetched, reclaimed or moved"),
    Cause("I", "idle-exit", "the core slept and had to wake up"),
    Cause("C", "frequency", "the core changed its frequency"),
    Cause("X", "steal", "the hypervisor had the core"),
    Cause("G", "gap", "the core was away and no software knows why"),
    Cause("M", "nmi", "a non-maskable interrupt"),
    Cause("O", "own-work", "the server itself took longer"),
    Cause("E", "link", "card or link"),
    Cause("B", "behind", "a queue of packets before it"),
    Cause("", "mixed", "several causes, none with half of the excess"),
    Cause("", "unexplained", "nothing that is known to be a cause"),
)
"""Every cause, in the words of `tailtap explain --json` and of the knobs' table."""


@dataclass(frozen=True)
class KnobFacts:
    """What is known of a knob without its machine; `tailtap.host.knobs.knob.Knob` says what each
    field means."""

    name: str
    removes: Sequence[str] = ()
    risk: int = 1
    settable: Settable = "runtime"
    recommended: bool = True
    disruptive: bool = False
    details: str | None = None


KNOBS = {
    facts.name: facts
    for facts in (
        KnobFacts("isolated-cpus", ("task", "kernel-thread", "device-interrupt"), settable="boot"),
        KnobFacts("nohz-full", ("timer",), risk=2, settable="boot", recommended=False),
        KnobFacts("rcu-nocbs", ("softirq",), settable="boot"),
        KnobFacts("rcu-nocb-poll", ("reschedule-ipi", "kernel-thread"), settable="boot"),
        KnobFacts("nohz-full-patience", ("timer",), settable="boot"),
        KnobFacts("skew-tick", ("timer",), risk=0, settable="boot"),
        KnobFacts("clock", ("own-work",)),
        KnobFacts("rcu-priority", ("waiting",), settable="boot"),
        KnobFacts(
            "interrupt-threads",
            ("device-interrupt", "waiting"),
            risk=2,
            settable="boot",
            recommended=False,
        ),
        KnobFacts("tsc-reliable", ("timer",), risk=2, settable="boot"),
        KnobFacts("corrected-errors", ("timer",), risk=2),
        KnobFacts("kernel-audit", ("own-work", "kernel-thread"), risk=2, settable="boot"),
        KnobFacts("ipi-broadcast", ("function-call-ipi",), settable="boot", recommended=False),
        KnobFacts("hyperthreads", ("own-work",), disruptive=True),
        KnobFacts("mitigations", ("own-work",), risk=3, settable="no", recommended=False),
        KnobFacts("iommu", ("own-work",), settable="boot"),
        KnobFacts("line-words", risk=0, settable="no"),
        KnobFacts("line-cores", risk=0, settable="no"),
        KnobFacts("line-refused", risk=0, settable="no"),
        KnobFacts("line-contradictions", risk=0, settable="no"),
        KnobFacts("boot-entry", risk=0, settable="no"),
        KnobFacts("interrupt-default", ("device-interrupt",)),
        KnobFacts("device-interrupts", ("device-interrupt",)),
        KnobFacts("card-interrupts", ("foreign-net-rx", "device-interrupt"), recommended=False),
        KnobFacts("workqueues-default", ("kernel-thread",)),
        KnobFacts("workqueues", ("kernel-thread",)),
        KnobFacts("firmware-interrupts", ("gap",), risk=0, settable="no"),
        KnobFacts("stat-interval", ("kernel-thread",), risk=0),
        KnobFacts("soft-watchdog", ("timer", "kernel-thread")),
        KnobFacts("nmi-watchdog", ("nmi",)),
        KnobFacts("watchdog-cores", ("timer", "kernel-thread", "nmi"), recommended=False),
        KnobFacts("hung-task", ("kernel-thread",), risk=0),
        KnobFacts("timer-migration", ("timer",), recommended=False),
        KnobFacts("rcu-normal", ("function-call-ipi",)),
        KnobFacts("transparent-huge-pages", ("page-fault", "tlb-flush")),
        KnobFacts("huge-page-defrag", ("page-fault",)),
        KnobFacts("same-pages", ("kernel-thread", "tlb-flush", "page-fault")),
        KnobFacts("numa-balancing", ("page-fault", "tlb-flush"), risk=0),
        KnobFacts("compaction", ("page-fault", "kernel-thread"), risk=0),
        KnobFacts("zone-reclaim", ("page-fault",), risk=0),
        KnobFacts("watermarks", ("page-fault",), recommended=False),
        KnobFacts("writeback", ("kernel-thread",), recommended=False),
        KnobFacts("swap", ("page-fault",), risk=2, settable="no"),
        KnobFacts("damon", ("kernel-thread", "page-fault")),
        KnobFacts("damon-modules", ("kernel-thread", "page-fault")),
        KnobFacts("cache-ways", ("own-work",)),
        KnobFacts("memory-bandwidth", ("own-work",), recommended=False),
        KnobFacts("governor", ("frequency",), risk=0),
        KnobFacts("energy-preference", ("frequency",), risk=0),
        KnobFacts("energy-bias", ("frequency",), risk=0),
        KnobFacts("turbo", ("frequency",), recommended=False),
        KnobFacts("boost", ("frequency",), recommended=False),
        KnobFacts("lowest-frequency", ("frequency",), recommended=False),
        KnobFacts("uncore-frequency", ("frequency", "own-work")),
        KnobFacts("wake-up-time", ("idle-exit",), recommended=False),
        KnobFacts("resume-latency", ("idle-exit",)),
        KnobFacts("deep-idle-states", ("idle-exit",)),
        KnobFacts("intel-idle-limit", ("idle-exit",), settable="boot"),
        KnobFacts("acpi-idle-limit", ("idle-exit",), settable="boot"),
        KnobFacts("frequency-driver", ("frequency",), settable="boot", recommended=False),
        KnobFacts("amd-frequency-driver", ("frequency",), settable="boot", recommended=False),
        KnobFacts("idle-poll", ("idle-exit",), risk=2, settable="boot", recommended=False),
        KnobFacts("receive-steering", ("foreign-net-rx", "own-work"), risk=0),
        KnobFacts("other-steering", ("foreign-net-rx",), risk=0),
        KnobFacts("threaded-napi", ("waiting",), recommended=False),
        KnobFacts("deferred-interrupts", ("device-interrupt", "link"), recommended=False),
        KnobFacts("flush-timeout", ("link",), recommended=False),
        KnobFacts("card-power", ("link",), risk=0),
        KnobFacts("link-power", ("link",)),
        KnobFacts("receive-budget", ("waiting", "behind"), recommended=False),
        KnobFacts("receive-backlog", recommended=False),
        KnobFacts("busy-poll", ("waiting",), recommended=False),
        KnobFacts("busy-read", ("waiting",), recommended=False),
        KnobFacts("adaptive-receive", ("link", "device-interrupt")),
        KnobFacts("adaptive-send", ("link", "device-interrupt")),
        KnobFacts("receive-coalescing", ("link",)),
        KnobFacts("send-coalescing", ("link",), recommended=False),
        KnobFacts("receive-spread", ("foreign-net-rx",), recommended=False),
        KnobFacts("card-queues", ("device-interrupt", "foreign-net-rx"), risk=2, disruptive=True),
        KnobFacts("receive-ring", recommended=False, disruptive=True),
        KnobFacts("receive-merging", ("own-work",), recommended=False),
        KnobFacts("card-merging", ("link",), disruptive=True),
        KnobFacts("card-splitting", ("behind",), recommended=False),
        KnobFacts("pause-frames", ("link",), disruptive=True),
        KnobFacts("link-sleep", ("link",), disruptive=True),
        KnobFacts("autogroup", ("waiting",), risk=0),
        KnobFacts("real-time-throttling", ("throttled",), risk=2, recommended=False),
        KnobFacts("fair-server", ("throttled", "timer"), risk=2, recommended=False),
        KnobFacts("preemption", ("waiting",), recommended=False),
        KnobFacts("slices", ("task",), recommended=False),
        KnobFacts("groups", ("task",), recommended=False),
        KnobFacts("rcu-threads", ("kernel-thread",)),
        KnobFacts("kernel-threads", ("kernel-thread", "waiting")),
        KnobFacts("softirq-priority", ("waiting", "softirq"), risk=2, recommended=False),
        KnobFacts("virtual-cores", ("steal", "waiting"), settable="no"),
        KnobFacts("emulator-threads", ("task", "waiting"), settable="no"),
        KnobFacts("steal", ("steal",), risk=0, settable="no"),
        KnobFacts("guest-halt-polling", ("idle-exit",), recommended=False),
        KnobFacts("host-halt-polling", ("idle-exit",), recommended=False),
        KnobFacts("huge-page-recovery", ("kernel-thread",), risk=2, recommended=False),
        KnobFacts("maintenance", ("task", "page-fault")),
        KnobFacts("counting-programs", ("nmi", "own-work"), risk=0, settable="no"),
        KnobFacts("wake-up-wishes", risk=0, settable="no"),
        KnobFacts("irqbalance", ("device-interrupt",), settable="no"),
        KnobFacts("tuned", risk=0, settable="no"),
        KnobFacts("thermald", ("frequency",), settable="no"),
    )
}
"""Those of tailtap, group by group."""

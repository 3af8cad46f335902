"""Every instrument that a run may have."""

from __future__ import annotations

from collections.abc import Mapping

from tailtap.lab.instruments.energy import count_energy
from tailtap.lab.instruments.interrupts import sample_interrupts
from tailtap.lab.instruments.kernel_counters import (
    KernelCounters,
    card_interrupts,
    forwarder_memory,
)
from tailtap.lab.instruments.observing import Instrument, Watching
from tailtap.lab.instruments.perf import processor_counters
from tailtap.lab.instruments.tracer import trace_device
from tailtap.lab.instruments.tracer.guest import trace_guest

INSTRUMENTS: Mapping[str, Instrument] = {
    # First and last: where QEMU emulates the CPU, it takes seconds to start.
    "trace-guest": trace_guest,
    "energy": count_energy,
    "links": Watching,
    "trace": trace_device,
    "memory": forwarder_memory,
    "processor-counters": processor_counters,
    "card-interrupts": card_interrupts,
    "kernel-counters": KernelCounters,
    "interrupts": sample_interrupts,
}
"""Every instrument by its name in ``run.json``, in the order in which they start. They stop in the
opposite order: what starts last is about the traffic and nothing else.
"""

"""What is observed during a run: one file for each instrument, one row in `INSTRUMENTS`.

Taps (`taps/`) are instruments too; as what they see is the measurement, the timestamper runs them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailtap.lab.instruments.energy import Energy
from tailtap.lab.instruments.interrupts import InterruptSampler
from tailtap.lab.instruments.kernel_counters import CardInterrupts, KernelCounters
from tailtap.lab.instruments.memory import Memory
from tailtap.lab.instruments.observing import (
    Guest,
    Instrument,
    LinkWatch,
    Observation,
    Reading,
    Scope,
    Tracing,
)
from tailtap.lab.instruments.perf import ProcessorCounters
from tailtap.lab.instruments.tracer import Tracer
from tailtap.lab.instruments.tracer.guest import GuestTracer

__all__ = ["INSTRUMENTS", "Guest", "Instrument", "Observation", "Reading", "Scope", "Tracing"]

INSTRUMENTS: Mapping[str, Instrument] = {
    # First and last: where QEMU emulates the CPU, it takes seconds to start.
    "trace-guest": GuestTracer(),
    "energy": Energy(),
    "links": LinkWatch(),
    "trace": Tracer(),
    "memory": Memory(),
    "processor-counters": ProcessorCounters(),
    "card-interrupts": CardInterrupts(),
    "kernel-counters": KernelCounters(),
    "interrupts": InterruptSampler(),
}
"""Every instrument by its name in ``run.json``, in the order in which they start. They stop in the
opposite order: what starts last is about the traffic and nothing else.
"""

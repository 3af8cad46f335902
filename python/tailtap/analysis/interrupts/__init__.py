"""Do the kernel's counters rise where packets are late? The way of the papers, with a test.

The way of a sample through the modules: `interrupt_samples` (the file) → `windows` (increments from
sample to sample, and the lateness in between) → `association` (a known offset of clocks: which
counters rise where packets are late) or `offset` (an unknown one: which fits, and how surely) →
`analysis` (one run) → `runs` (many).
"""

from __future__ import annotations

from tailtap.analysis.interrupts.analysis import Finding, Options, analyse
from tailtap.analysis.interrupts.runs import FoundRuns, interrupts_of

__all__ = ["Finding", "FoundRuns", "Options", "analyse", "interrupts_of"]

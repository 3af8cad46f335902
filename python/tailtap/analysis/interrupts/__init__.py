"""Do the kernel's counters rise where packets are late? The way of the papers, with a test.

`association` has increments from sample to sample, the lateness in between, which counters rise
where packets are late, and which offset of the clocks fits; `runs` looks at one run, and at many.
"""

from __future__ import annotations

from tailtap.analysis.interrupts.runs import Options, Sampled, analyse, interrupts_of

__all__ = ["Options", "Sampled", "analyse", "interrupts_of"]

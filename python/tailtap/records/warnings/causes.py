"""Warnings about traces, and about late packets that they do not explain."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "The causes of late packets"
ENTRIES = (
    Entry(
        "noise-unkept",
        "A core was taken so often that its later gaps have no names.",
        "Measure for a shorter time, or give a higher `--above`.",
    ),
    Entry(
        "trace-damaged",
        (
            "The file of the trace is cut off or damaged; what came later is not known, and "
            "packets of that time are unexplained."
        ),
        "Look for room on the disk, and measure again.",
    ),
    Entry(
        "trace-not-covering",
        "Late packets passed before the trace began or after it ended.",
        "Begin the trace before the traffic, as `tailtap run` does.",
    ),
    Entry(
        "served-elsewhere",
        (
            "Late packets left on cores that should not serve them, or nobody knows on which; they "
            "are unexplained."
        ),
        "Keep the forwarder on its cores (`dut.cpus`), or trace the others too.",
    ),
    Entry(
        "host-clock-coarse",
        (
            "Another machine than the DuT's stamped the packets, and the clocks are not known well "
            "enough for some late ones: these are unexplained."
        ),
        (
            "Give a higher `--late`; hosts that answer quickly make the interval "
            "narrow ([clocks](../howto/testbed.md#clocks))."
        ),
    ),
    Entry(
        "guest-clock-coarse",
        (
            "The clock of the virtual machine is not known well enough for some late packets: what "
            "the guest did counts as service for them."
        ),
        "Give a higher `--late`; packets that pass the guest quickly make the interval narrow.",
    ),
    Entry(
        "not-undisturbed",
        "What is left of the run without pauses from outside cannot be found out.",
        "Look at what the message says; the run's own percentiles stand.",
        note=True,
    ),
    Entry(
        "undisturbed",
        (
            "The percentiles leave out the time around pauses from outside: steal, a machine that "
            "was stopped, a generator that was late."
        ),
        "Nothing; the run's own percentiles stand beside them.",
        note=True,
    ),
)

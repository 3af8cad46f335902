"""Warnings about what was made of runs: tail models, comparisons, and causes."""

from __future__ import annotations

from tailtap.records.record import Entry

TAIL = (
    Entry(
        "invalid-run",
        "The generator did not send the requested load: the tail is that of another one.",
        "Measure again at a rate that the generator reaches.",
    ),
    Entry(
        "no-model",
        "No threshold gives a model. The sentence says why.",
        "Measure longer; the reasons say what else.",
    ),
    Entry(
        "no-tail",
        "A run has no stored tail, or too many packets exceed a threshold to be its tail.",
        "Evaluate the run again, or choose a higher `--threshold`.",
    ),
    Entry(
        "below-stored",
        "The threshold lies below the largest latencies, which alone are stored.",
        "Choose a higher `--threshold`, or a larger `--fit`.",
    ),
    Entry(
        "too-few",
        "Fewer clusters exceed the threshold than a model needs.",
        "Measure longer, or choose a lower `--threshold`.",
    ),
    Entry(
        "few-bursts",
        "So few clusters exceed the threshold that intervals hold less often than they say.",
        "Measure longer.",
    ),
    Entry(
        "coarse-stamps",
        "Clocks tick too slowly for the scale of the tail, or many packets share a latency.",
        "Stamp with a finer clock.",
    ),
    Entry(
        "coarse-clock",
        "Clocks tick more slowly than every nanosecond. Ties were spread within a tick.",
        "Nothing, while the tick is small compared with the latencies.",
    ),
    Entry(
        "loss",
        ("Packets were lost. The model or the percentile is of those that arrived."),
        "Measure where less is lost.",
    ),
    Entry(
        "no-maximum",
        "The likelihood has no maximum above xi = -1: there is no fit.",
        "Choose another `--threshold`.",
    ),
    Entry(
        "irregular",
        "xi is at most -0.5, where likelihood gives no intervals.",
        "Take the limit as an estimate without an interval.",
    ),
    Entry(
        "no-mean",
        "xi is at least 1: such a tail has no mean.",
        "Look for the cause of the largest latencies before predicting more.",
    ),
    Entry(
        "mixture",
        "The exceedances are of two populations.",
        "Choose a threshold above the first population, or remove its cause.",
    ),
    Entry(
        "misfit",
        "The exceedances do not follow a generalised Pareto distribution.",
        "Choose a higher `--threshold`, or measure longer.",
    ),
    Entry(
        "unstable",
        "xi contradicts that over a higher threshold: the tail begins higher up.",
        "Use the higher threshold.",
    ),
    Entry(
        "not-stationary",
        "The fitted part drifts: ADF and KPSS both say so.",
        "Leave out the start with a longer warm-up, or find what drifts.",
    ),
    Entry(
        "maybe-not-stationary",
        "ADF and KPSS disagree on whether the run is stationary.",
        "Look at the latencies over time.",
    ),
    Entry(
        "stationarity-unknown",
        "The fitted part is too short or too constant for ADF and KPSS.",
        "Measure longer.",
    ),
    Entry(
        "prediction-failed",
        "The rest of the run exceeds what the fitted part predicted.",
        "Measure longer: the first part had not seen every cause.",
    ),
    Entry(
        "uneven",
        "Clusters come unevenly over the fitted part.",
        "Measure longer, and look for what comes and goes.",
    ),
    Entry(
        "block-maxima-disagree",
        "Block maxima and peaks over threshold give levels outside each other's intervals.",
        "Trust neither level; measure longer.",
    ),
    Entry(
        "near",
        "The horizon is so short that no cluster over the threshold is expected in it.",
        "Read the percentiles instead.",
    ),
    Entry(
        "far",
        (
            "The horizon is more than a thousand times what was fitted. Causes that were not seen "
            "are in no interval."
        ),
        "Measure longer, or ask for a nearer horizon.",
    ),
    Entry(
        "endless",
        "The tail is so heavy that the level lies beyond any latency.",
        "Look for the cause of the largest latencies.",
    ),
    Entry(
        "imported",
        "Files of others that say how often latencies occurred, not when, have no model.",
        "Import the captures.",
    ),
)
COMPARISON = (
    Entry(
        "left-out",
        "A run is left out of the comparison. The sentence says why.",
        "Repeat the run.",
    ),
    Entry(
        "doubts",
        "Runs that are compared have a warning of their own.",
        "Look the other code up on this page.",
    ),
    Entry(
        "no-ranking",
        "Under one load nothing can be ranked. The sentence says why.",
        "Measure more configurations under this load, or longer.",
    ),
    Entry(
        "equal-repeats",
        "Repeats are equal to the nanosecond: they are copies, and say nothing more.",
        "Leave the copies out.",
    ),
    Entry(
        "few-samples",
        "Fewer than ten packets lie above the percentile.",
        "Choose a lower `--percentile`, or measure longer.",
    ),
    Entry(
        "unknown-samples",
        "Published percentiles do not say of how many packets they are.",
        "Nothing: their support is unknown.",
    ),
    Entry(
        "different-machines",
        "Configurations were measured on different machines, which may be what differs.",
        "Measure both on one machine.",
    ),
    Entry(
        "few-repeats",
        "Comparisons have too few repeats to be decided, whatever their latencies.",
        "Raise `repeat`; the advice says to how many.",
    ),
    Entry(
        "unpaired",
        "A configuration of a change has no partner in the baseline, or the other way round.",
        "Measure the same experiment file before and after.",
    ),
    Entry(
        "one-after-the-other",
        "All runs before a change were made before all runs after it.",
        "Measure both by turns, or add `wire` to both: where it moves, the machine changed.",
    ),
    Entry(
        "no-floor",
        "A history has no runs of `wire`, which would say when the machine changed.",
        "Measure `wire` with each commit, for a second or two.",
    ),
)
CAUSES = (
    Entry(
        "noise-unkept",
        "A core was taken so often that its later gaps have no names.",
        "Measure for a shorter time, or give a higher `--above`.",
    ),
    Entry(
        "trace-damaged",
        ("The file of the trace is cut off or damaged; later packets are unexplained."),
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
            "Late packets left on cores that do not serve the device, or on unknown ones; they are "
            "unexplained."
        ),
        "Keep the forwarder on its cores (`dut.cpus`), or trace the others too.",
    ),
    Entry(
        "host-clock-coarse",
        (
            "Another machine than the DuT's stamped the packets, and the clocks are too coarse for "
            "some late ones: these are unexplained."
        ),
        (
            "Give a higher `--late`; hosts that answer quickly make the interval "
            "narrow (docs/howto/testbed.md#clocks)."
        ),
    ),
    Entry(
        "guest-clock-coarse",
        ("The clock of the virtual machine is too coarse: what the guest did counts as service."),
        "Give a higher `--late`; packets that pass the guest quickly make the interval narrow.",
    ),
    Entry(
        "not-undisturbed",
        "The latencies without pauses from outside are not shown.",
        "Nothing, or what the message says; the run's own percentiles stand.",
        note=True,
    ),
    Entry(
        "undisturbed",
        ("The percentiles leave out the time around pauses from outside."),
        "Nothing; the run's own percentiles stand beside them.",
        note=True,
    ),
)

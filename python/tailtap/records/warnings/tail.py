"""Warnings about the extreme value model of a run's largest latencies."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "The tail model"
ENTRIES = (
    Entry(
        "invalid-run",
        (
            "The generator did not send what was asked of it: the tail is that of another load. "
            "Summaries over repeats leave the run out."
        ),
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
        (
            "Packets were lost, and nobody knows how late they would have been. The model or the "
            "percentile is of those that arrived."
        ),
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
            "The horizon is more than a thousand times what was fitted. Causes too rare to "
            "have been seen are in no interval."
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
        "Imported result files say how often latencies occurred, not when: they have no model.",
        "Evaluate the captures themselves.",
    ),
)

"""Warnings about results that tailtap did not measure."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "Imported results"
ENTRIES = (
    Entry(
        "file-missing",
        "A published run lacks some of its nine files.",
        "Nothing: what its other files say was imported.",
    ),
    Entry(
        "name-unlikely",
        "The names of a published run's files say a rate or a repeat that no run has.",
        "Rename the files, and import the tree again; until then it counts as unknown.",
    ),
    Entry(
        "file-twice",
        "Two files say the same of a run; one was skipped.",
        "Remove one of them.",
    ),
    Entry(
        "run-twice",
        "A published run is a copy of another one and was left out.",
        "Nothing.",
    ),
    Entry(
        "no-latencies",
        "Runs of a result tree of pos hold no latencies, but something else, such as throughput.",
        "Copy their captures or result files into the tree too, and import it again.",
    ),
    Entry(
        "loop-failed",
        "A command of a run did not finish, as pos says: its results may be incomplete.",
        "Look at what the command printed; leave the run out, or measure it again.",
    ),
    Entry(
        "loop-shared",
        "Several loops of a result tree of pos number their runs alike, so that a file's run is "
        "not certain.",
        "Import each loop from a tree of its own: leave the `.loop` files of the others out.",
    ),
    Entry(
        "crate-incomplete",
        "A crate names files that are not there.",
        "Copy the whole crate, and import it again.",
    ),
    Entry(
        "imports-unreadable",
        "The folder's database cannot be read: imported runs are left out of the report.",
        "Close the database in other programs, or remove it and import again.",
    ),
    Entry(
        "closed-loop",
        "A tool waited for each answer before its next request. While one is late, those that "
        "would have been late with it are not sent: percentiles are too low.",
        "Measure at a rate: wrk2 -R, iperf2 with --trip-times, or sockperf under-load.",
    ),
    Entry(
        "coarse-buckets",
        "A tool counted latencies in buckets wider than 2 % of them. A percentile counts as the "
        "upper end of its bucket, and its interval has the whole bucket.",
        "Ask the tool for finer buckets: fortio -r, iperf --histograms, or ghz with its details.",
    ),
    Entry(
        "percentiles-only",
        "A tool kept some percentiles and no distribution.",
        "Keep more: wrk2 --latency, or sockperf --full-log.",
    ),
    Entry(
        "half-round-trip",
        "A tool halves round trips and calls the half a latency.",
        "Use sockperf --full-rtt, or stamp packets on both sides.",
    ),
    Entry(
        "beyond-buckets",
        "Packets were later than the last bucket of a tool reaches.",
        "Give iperf --histograms more buckets.",
    ),
    Entry(
        "unit-unknown",
        "A file of HdrHistogram does not say its unit.",
        "Import it with `--unit`.",
    ),
    Entry(
        "requests-failed",
        "Requests failed, by their status or without an answer, or a tool does not say which did.",
        "Require `errors < 0.1 %`; let the tool keep single requests, as vegeta encode does.",
    ),
    Entry(
        "negative-times",
        "Packets came before they were sent: the clocks of a tool's two ends differ.",
        "Synchronise the clocks (PTP), or measure round trips.",
    ),
    Entry(
        "read-in-part",
        "A file was cut off, holds parts that are not read, or keeps a part of what was measured.",
        "Nothing, where what was read stands for all; else measure again.",
    ),
    Entry(
        "file-unknown",
        "Files of an imported folder are of no known tool.",
        "Nothing, or look up in docs/howto/other-tools.md what each tool must be asked for.",
    ),
)

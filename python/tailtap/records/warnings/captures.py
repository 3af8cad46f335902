"""Warnings about captures, imported and published results, and what was matched."""

from __future__ import annotations

from tailtap.records.record import Entry

CAPTURES = (
    Entry(
        "few-packets",
        "Too few packets were matched for the 99.9th percentile to have ten above it.",
        "Measure longer, or at a higher rate.",
    ),
    Entry(
        "both-hold-requests",
        "Each capture holds requests and answers: waits are from the place of the first to "
        "that of the second.",
        "Give one capture alone, or captures of one direction each.",
    ),
    Entry(
        "several-places",
        "One capture shows packets at several places, each of which has its own counts and waits.",
        "Nothing is wrong. Capture at one interface for the waits of one place.",
    ),
    Entry(
        "open-requests",
        "Requests had no answer yet when the capture ended, within their window. A verdict "
        "that they could change is not shown.",
        "Let the capture run on for a window after the last request, or give a shorter `--window`.",
    ),
    Entry(
        "requests-given-up",
        "Packets of connections are missing, or too many requests waited at once. A verdict "
        "that requests without a known answer could change is not shown.",
        "Capture without drops and with a longer snap length.",
    ),
    Entry(
        "capture-damaged",
        "A capture is damaged or cut off. What can be read was evaluated.",
        "Copy the capture again, or repeat the measurement.",
    ),
    Entry(
        "unread-packets",
        "Packets of a capture were not read. A verdict that they could change is not shown.",
        "Capture on an interface of Ethernet or IP, into pcap or into pcapng with enhanced packet "
        "blocks.",
    ),
    Entry(
        "payload-changed",
        "Packets were matched by addresses and IP ids, as their payloads differ behind the "
        "device. What it merged with others looks lost.",
        "Turn merging (GRO, LRO) off where the capture behind the device was taken.",
    ),
    Entry(
        "sampled",
        "A capture holds marks of a sample of the packets. Losses and latencies are those of "
        "the sample, of two samples of the thinner one.",
        "Nothing where the sample is large enough; else a denser `--sample`, or a larger "
        "`--budget`.",
    ),
    Entry(
        "capture-drops",
        "The program that captured dropped packets. They look lost or unmatched and may not be.",
        "Give the capturing program larger buffers or a shorter snap length, or lower the rate.",
    ),
    Entry(
        "fcs-taken-off",
        "The frames of a capture end in their check sequences (FCS), which were left out of keys.",
        "Nothing; or capture both sides in the same way.",
    ),
    Entry(
        "copies",
        "Most packets of a capture are there twice, as a mirror port shows them that watches "
        "two ports. The first copy counts.",
        "Nothing; or mirror one port in one direction.",
    ),
    Entry(
        "both-directions",
        "Both captures hold packets of both directions, which are evaluated each by itself.",
        "Nothing; or ask for one of them with `--direction`.",
    ),
    Entry(
        "direction-unknown",
        "The direction of some packets is unknown. They were left out, and may be lost.",
        "Capture one direction at a time, if there are many.",
    ),
    Entry(
        "capture-growing",
        "A capture grew or shrank while it was read.",
        "Evaluate it again when the capture has ended.",
    ),
    Entry(
        "timestamps-backwards",
        "Stamps go backwards. The packets were sorted by time.",
        "Look at the clock of the capture: it may have been set while it ran.",
    ),
    Entry(
        "mscap-unwrapped",
        "MoonSniff's times jumped back by 2^32 ns, as they do, and were unwrapped.",
        "Nothing, unless the capture has gaps of seconds.",
    ),
    Entry(
        "snap-length",
        "The snap length cut the key off some packets, or the headers of requests and answers.",
        "Capture longer packets, or choose a key nearer to the start with `--key`.",
    ),
    Entry(
        "foreign-packets",
        "Packets do not carry the key and were left out.",
        "Nothing, if they are of others; else choose another `--key`.",
    ),
    Entry(
        "no-ethernet-header",
        "Packets without an Ethernet header, from which the key counts, were left out.",
        "Choose a key that follows IP with `--key`, such as `packet`.",
    ),
    Entry(
        "trailers-unused",
        "The frames of one capture end in stamps of a switch, and those of the other do not. The "
        "stamps of the records count.",
        "Nothing; or `--stamps trailer`, where the clock of the switch is that of the "
        "other capture.",
    ),
    Entry(
        "trailers-one-side",
        "The stamps of one capture are those of a switch's trailers, and those of the other "
        "of its records: these may be two clocks.",
        "Say how the clocks are to each other: docs/explanation/latency.md#two-clocks.",
    ),
    Entry(
        "tap-unclosed",
        "A tap still runs, or ended before it closed its file: its counts are unknown.",
        "Evaluate again when the tap has ended, or repeat the measurement.",
    ),
    Entry(
        "tap-lost",
        "A tap lost stamps. These packets look lost or unmatched and may not be.",
        "Lower the rate, or leave more CPU time to the tap's writer.",
    ),
    Entry(
        "two-clocks",
        "The captures are of two clocks. Every latency may be off by the clocks' interval, "
        "which all bounds include.",
        "Nothing, if the interval is narrow enough; else stamp both sides by one clock.",
    ),
    Entry(
        "stamp-resolution",
        "The stamps come in steps, such as 1 us. Every latency may be off by a step to either "
        "side, which all bounds include.",
        "Nothing, if the steps are short enough; else capture with nanoseconds (`tcpdump "
        "--time-stamp-precision=nano`), or by a card's clock.",
    ),
    Entry(
        "noncausal",
        "Packets were stamped after the device before they were stamped before it.",
        "Synchronise the clocks of both captures, or say how they are to each other: "
        "docs/explanation/latency.md#two-clocks.",
    ),
    Entry(
        "equal-packets",
        "Packets before the device are equal to others within the window, and were matched "
        "in their order where as many came out as went in.",
        "Nothing, if the device keeps their order; else send packets that differ, or shorten "
        "`--window`.",
    ),
    Entry(
        "duplicate-ingress",
        "Packets before the device share their key within the window and were left out.",
        "Send packets with unique ids, shorten `--window`, or choose another `--key`.",
    ),
    Entry(
        "outside-common-time",
        "The captures did not begin or end together. What came or left when the other capture "
        "may not have run is neither lost nor unmatched.",
        "Nothing, or `--throughout` if both ran all the time.",
    ),
    Entry(
        "unmatched-egress",
        "More than 0.1 % of the packets after the device match none before it.",
        "Check that both captures are of the same run and began before the traffic.",
    ),
)
IMPORTED = (
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
        "Several loops of a result tree of pos number their runs alike.",
        "Import each loop from a tree of its own.",
    ),
    Entry(
        "crate-incomplete",
        "A crate names files that are not there.",
        "Copy the whole crate, and import it again.",
    ),
    Entry(
        "closed-loop",
        "A tool waited for each answer before its next request: percentiles are too low.",
        "Measure at a rate: wrk2 -R, iperf2 with --trip-times, or sockperf under-load.",
    ),
    Entry(
        "coarse-buckets",
        "A tool counted latencies in buckets wider than 2 %. A percentile counts as the upper "
        "end of its bucket.",
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
        "Requests failed, or a tool does not say which did.",
        "Require `errors < 0.1 %`; let the tool keep single requests, as vegeta encode does.",
    ),
    Entry(
        "negative-times",
        "Packets came before they were sent: the clocks of a tool's two ends differ.",
        "Synchronise the clocks (PTP), or measure round trips.",
    ),
    Entry(
        "read-in-part",
        "A file was read in part: it was cut off, or holds what is not read.",
        "Nothing, where what was read stands for all; else measure again.",
    ),
    Entry(
        "file-unknown",
        "Files of an imported folder are of no known tool.",
        "Nothing, or look up in docs/howto/other-tools.md which options each tool needs.",
    ),
)
PUBLISHED = (
    Entry(
        "no-licence",
        "The site does not say under which licence it may be used.",
        "Choose one with `--license`.",
        note=True,
    ),
    Entry(
        "no-authors",
        "The site names no author.",
        "Name them with `--author`, or publish with `--anonymous`.",
        note=True,
    ),
    Entry(
        "imported-left-out",
        "Runs that were imported from others are not part of the site.",
        "Refer to where their authors published them.",
        note=True,
    ),
    Entry(
        "captures-nowhere",
        "The site does not say where captures are: they cannot be evaluated again.",
        "Name their place with `--captures refer=URL`, or publish them with `--captures embed`.",
        note=True,
    ),
    Entry(
        "packets",
        ("The site has captures with bytes of packets, in which nothing is replaced."),
        "Look whether these packets may be published, or leave the captures out.",
        note=True,
    ),
    Entry(
        "ambiguous-name",
        (
            "The name of a machine or person is also a word of the experiment. It was replaced "
            "only in the fields that hold names."
        ),
        "Name such texts with `--hide`, if they must not be published.",
        note=True,
    ),
    Entry(
        "large-site",
        "The site is larger than 1 GB, which hosts of static pages take.",
        "Put its captures into an archive and name it with `--captures refer=URL`.",
        note=True,
    ),
)

"""Warnings about captures, own and imported ones, and about what was matched in them."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "The captures and their evaluation"
ENTRIES = (
    Entry(
        "few-packets",
        "Too few packets were matched for the 99.9th percentile to have ten above it.",
        "Measure longer, or at a higher rate.",
    ),
    Entry(
        "both-hold-requests",
        "Requests were taken from the first capture and answers from the second, and each holds "
        "both. Waits are from the place of the first capture to that of the second.",
        "Give one capture alone, or captures of one direction each.",
    ),
    Entry(
        "several-places",
        "One capture shows packets at several places: at the interfaces of a router, in VLANs, or "
        "on links with hardware addresses of their own. Requests are matched with answers at the "
        "same place, and each place has its own counts and waits.",
        "Nothing is wrong. Capture at one interface for the waits of one place.",
    ),
    Entry(
        "open-requests",
        "Requests had no answer yet when the capture ended, and their window had not passed. They "
        "count as neither answered nor unanswered; a verdict that they could change is not shown.",
        "Let the capture run on for a window after the last request, or give a shorter `--window`.",
    ),
    Entry(
        "requests-given-up",
        "Packets of connections are missing in the capture, or too many requests waited at once. "
        "Requests whose answers nobody can tell count as neither answered nor unanswered; a "
        "verdict that they could change is not shown.",
        "Capture without drops and with a longer snap length.",
    ),
    Entry(
        "capture-damaged",
        "A capture is damaged or cut off. What can be read was evaluated: behind damage, from the "
        "next record on that makes sense.",
        "Copy the capture again, or repeat the measurement.",
    ),
    Entry(
        "unread-packets",
        "Packets of a capture were not read, for a stated reason. They look lost or unmatched and "
        "may not be; a verdict that they could change is not shown.",
        "Capture on an interface of Ethernet or IP, into pcap or into pcapng with enhanced packet "
        "blocks.",
    ),
    Entry(
        "payload-changed",
        "Packets were matched by addresses and IP ids, as their payloads differ behind the device. "
        "What it merged with others looks lost; of what it cut in pieces the first piece counts.",
        "Turn merging (GRO, LRO) off where the capture behind the device was taken.",
    ),
    Entry(
        "sampled",
        "A capture holds marks of a sample of the packets, which all taps choose by the same hash. "
        "The others are in no count: losses and latencies are those of the packets in the sample. "
        "Of two samples the thinner one counts.",
        "Nothing where the sample is large enough. Else tap with a denser `--sample`, "
        "or a larger `--budget`.",
    ),
    Entry(
        "capture-drops",
        "The program that captured dropped packets, as the pcapng file says. They look lost or "
        "unmatched and may not be.",
        "Give the capturing program larger buffers or a shorter snap length, or lower the rate.",
    ),
    Entry(
        "fcs-taken-off",
        "The frames of a capture end in their check sequences (FCS), of which its file says "
        "nothing. They were left out, so that keys are the same on both sides.",
        "Nothing; or capture both sides in the same way.",
    ),
    Entry(
        "copies",
        "Most packets of a capture are there again within moments, byte for byte, as a mirror port "
        "shows them that watches two ports. The first copy of each counts.",
        "Nothing; or mirror one port in one direction.",
    ),
    Entry(
        "both-directions",
        "Both captures hold packets of both directions. Each direction is evaluated by itself; if "
        "the clocks differ, they were aligned by the packets of both.",
        "Nothing; or ask for one of them with `--direction`.",
    ),
    Entry(
        "direction-unknown",
        "Captures hold both directions, and nothing tells in which of them some packets went. They "
        "have no pair and were left out; they may be lost.",
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
        "The snap length cut the key off some packets, or the headers of requests and answers. "
        "Such a request counts from the packet that was cut, and not from the end of its header.",
        "Capture longer packets, or choose a key nearer to the start with `--key`.",
    ),
    Entry(
        "foreign-packets",
        "Packets do not carry the key and were left out.",
        "Nothing, if they are of others; else choose another `--key`.",
    ),
    Entry(
        "no-ethernet-header",
        "Packets were captured without their Ethernet header, from which the key counts, and were "
        "left out.",
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
        "The stamps of one capture are those of a switch's trailers, and those of the other are of "
        "its records: these are two clocks, unless something keeps them the same.",
        "Say how the clocks are to each other: [two clocks](../explanation/latency.md#two-clocks).",
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
        "The captures are of two clocks. Every latency may be off, by as much as the clocks' "
        "interval is open to either side; all bounds and answers include that.",
        "Nothing, if the interval is narrow enough; else stamp both sides by one clock.",
    ),
    Entry(
        "stamp-resolution",
        "The stamps come in steps, such as 1 us: as the file says, or as they show. Every latency "
        "may be off by a step to either side; all bounds and answers include that.",
        "Nothing, if the steps are short enough; else capture with nanoseconds (`tcpdump "
        "--time-stamp-precision=nano`), or by a card's clock.",
    ),
    Entry(
        "noncausal",
        "Packets were stamped after the device before they were stamped before it.",
        "Synchronise the clocks of both captures, or say how they are to each other: "
        "[two clocks](../explanation/latency.md#two-clocks).",
    ),
    Entry(
        "equal-packets",
        "Packets before the device are equal to others within the window. They were told apart by "
        "their order, where as many came out as went in.",
        "Nothing, if the device keeps the order of equal packets; else send packets that differ, "
        "or shorten `--window`.",
    ),
    Entry(
        "duplicate-ingress",
        "Packets before the device share their key within the window and were left out.",
        "Send packets with unique ids, shorten `--window`, or choose another `--key`.",
    ),
    Entry(
        "outside-common-time",
        "The captures did not begin or end together. What came or left when the other capture may "
        "not have run counts as outside of the common time, and neither as lost nor as unmatched. "
        "A capture does not say whether it was stopped or nothing came any more: where the device "
        "failed, these packets are lost.",
        "Nothing, if a capture was begun later or stopped earlier; `--throughout` if "
        "both ran all the time.",
    ),
    Entry(
        "unmatched-egress",
        "More than 0.1 % of the packets after the device match none before it.",
        "Check that both captures are of the same run and began before the traffic.",
    ),
)

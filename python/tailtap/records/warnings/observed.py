"""Warnings about a device that was observed."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "What was observed"
ENTRIES = (
    Entry(
        "observed-elsewhere",
        (
            "Packets came by the first interface and did not leave through the second one. They "
            "count as lost, but may have been for the machine itself or for other interfaces: how "
            "many were lost is at most that."
        ),
        (
            "Observe with a `--filter` that has only what passes both interfaces, or "
            "take the number as an upper bound."
        ),
    ),
    Entry(
        "dropped-before-stamp",
        (
            "XDP programs ran on an observed interface before its packets were stamped. What they "
            "drop or redirect before the device is in no count, and not in `lost`; where the "
            "driver counts what they drop, a verdict takes that for packets that may be lost. "
            "Behind the device it counts as lost, though the device passed it on."
        ),
        (
            "Observe the other end of the cable or of the veth pair, with `@egress` in place of "
            "`@arrival`, or read the programs' own counts (`ethtool -S`, `bpftool prog`)."
        ),
    ),
    Entry(
        "serving-unknown",
        (
            "Something about who serves the packets could not be found out. What the message names "
            "is not part of what `tailtap explain` says."
        ),
        "Say it with `--cpus` and `--served`, where you know it.",
    ),
    Entry(
        "observing-cost",
        ("Observing took more of a core's time than `--budget`, or nobody could tell how much."),
        "Raise `--budget`, or observe fewer packets: `--filter`, `--sample`, `--trace none`.",
    ),
    Entry(
        "trace-thinned",
        (
            "To keep the budget, the cores were traced for a part of the time only. Packets that "
            "were late at other times have no causes; shares of causes are of what was seen."
        ),
        "Raise `--budget`, or observe for longer: causes come from more moments then.",
    ),
)

"""Warnings about runs: load, machine, taps, counters, other traffic, and searches."""

from __future__ import annotations

from tailtap.records.record import Entry

RUN = (
    Entry(
        "generator-slip",
        "One packet in a hundred left later than `traffic.slip_limit` after its time.",
        "Lower the rate, give the generator a CPU of its own with `traffic.cpu`, or several with "
        "`traffic.cpus`, or look for the program that had it (docs/howto/busy.md).",
        True,
    ),
    Entry(
        "generator-rate",
        (
            "The generator sent less than 99 % of `traffic.rate`; an external one may be off by "
            "10 % either way."
        ),
        (
            "Lower `traffic.rate`, or give the generator a CPU of its own. For an "
            "external generator, change `traffic.external.command`."
        ),
        True,
    ),
    Entry(
        "generator-count",
        (
            "An external generator says that it sent another number of packets than came to the "
            "tap before the device, or does not say it as `traffic.external.sent` expects."
        ),
        (
            "Look whether all its packets have ids, and for losses on the way to the device; or "
            "change `traffic.external.sent`."
        ),
    ),
    Entry(
        "failed-sends",
        "The kernel refused packets of the generator. They are in no capture.",
        "Lower the rate, or try another `traffic.generator`.",
    ),
    Entry(
        "forwarded-after",
        ("The device forwarded packets after the taps had ended: they count as lost."),
        ("Give the forwarder CPUs that nothing else uses (`dut.cpus`), and measure again."),
    ),
    Entry(
        "file-damaged",
        (
            "A file was skipped: it is damaged, too large, no regular file, or a link to a place "
            "outside of its folder."
        ),
        ("Do what the message says. Of the results of others, copy the tree again."),
    ),
    Entry(
        "written-meanwhile",
        (
            "The taps wrote their stamps while packets were sent, for `--live` or `--metrics`, "
            "which woke up a CPU that sends."
        ),
        "Nothing; measure without these options what must not be disturbed at all.",
        note=True,
    ),
    Entry(
        "without-id",
        ("Packets of a replayed capture are no UDP: they load the device and are not measured."),
        "Nothing, if the load is what matters; else replay a capture of UDP.",
    ),
    Entry(
        "rules-rejected",
        "Suricata rejected some of its rules.",
        ("Mend these rules or give their variables values (`dut.options.vars`)."),
    ),
    Entry(
        "shared-cpu",
        (
            "A generator runs on a CPU of the device or of the other generator, so that they delay "
            "each other."
        ),
        "Give each its own CPU with `traffic.cpu`, `traffic.reverse_cpu` and `dut.cpus`.",
    ),
    Entry(
        "other-measurement",
        "Another process of tailtap measured on this machine at the same time.",
        "Measure again while nothing else is measured; the message names the process.",
    ),
    Entry(
        "event-failed",
        "The command of an event (`events`) ended with an error, did not end, or was not "
        "begun before packets had ended; or the clocks of a testbed do not say when.",
        "Mend `events.run`; let chrony or ptp4l slew clocks.",
    ),
    Entry(
        "neighbour-short",
        "A neighbour (`dut.neighbours`) did less than nine tenths of its load.",
        (
            "Ask for less, or give it CPUs of its own. A CPU that it shares with the device "
            "leaves it less on purpose."
        ),
    ),
    Entry(
        "stamps-lost",
        ("A tap had no room for some stamps: these packets count as lost or unmatched."),
        "Lower the rate, or leave more CPU time to the tap's writer.",
    ),
    Entry(
        "tap-drops",
        ("The kernel dropped packets between the device and a tap. They count as lost."),
        "Raise `net.core.netdev_max_backlog`, or lower the rate.",
    ),
    Entry(
        "taps-within",
        ("Packets were stamped between the nodes of a line as well. That delays every packet."),
        "Nothing to find the slow hop; else measure with `dut.taps: ends`.",
    ),
    Entry(
        "egress-deferred",
        ("Packets were stamped later than they left the device, by an unknown time."),
        "Set `net.core.netdev_tstamp_prequeue` to 1; of cards, use those that stamp in hardware.",
    ),
    Entry(
        "stamped-on-interrupt",
        (
            "Packets were stamped behind splitters, when the interrupts of the cards were served: "
            "each stamp can be late by an unknown time."
        ),
        "Switch interrupt moderation off (`ethtool -C`), or use cards that stamp in hardware.",
    ),
    Entry(
        "trace-lost",
        ("The trace had no room for some events. Packets of that time are unexplained."),
        "Give `tailtap trace` more `--records`, or leave more CPU time to its writer.",
    ),
    Entry(
        "trace-blind",
        (
            "Late packets left a core outside of any recorded softirq: the kernel did not run the "
            "tracer's programs. These packets are unexplained."
        ),
        "Keep the task that the sentence names off the device's CPUs, or use another kernel "
        "(docs/howto/busy.md).",
    ),
    Entry(
        "trace-written",
        (
            "The trace was written while packets were sent, on a CPU that sends or serves them. "
            "That makes packets late."
        ),
        "Send for a shorter time, or leave a CPU unused; `tailtap run --check` says what fits.",
    ),
    Entry(
        "trace-incomplete",
        "This kernel does not record some of the events that a trace has.",
        "Use a newer kernel: Linux 6.5 records all of them.",
    ),
    Entry(
        "no-device",
        (
            "The platform `wire` has no device, so that the run was made without a trace or "
            "counters."
        ),
        "Nothing: explain a run that has a device.",
        note=True,
    ),
    Entry(
        "guest-untraced",
        ("The kernel in the virtual machine was not traced, or only in part."),
        "Take a guest's kernel with types of its own (CONFIG_DEBUG_INFO_BTF) and memory for them.",
    ),
    Entry(
        "guest-clock",
        (
            "The clock of the virtual machine cannot be aligned with its host's. Late packets are "
            "explained on the host alone."
        ),
        "Use a forwarder whose packets pass the guest's kernel; on a clock that stepped, repeat.",
    ),
    Entry(
        "clock-unsteady",
        (
            "On a testbed: a machine's clock changed its rate while packets were measured, or the "
            "machine slept. Its clock is not known during this run."
        ),
        "Let the program that disciplines the clock settle (`chronyc tracking`), or stop it.",
    ),
    Entry(
        "tap",
        "A tap reports something about itself.",
        "Do what the sentence says.",
    ),
    Entry(
        "steal",
        "A hypervisor took more than 1 % of the time of a CPU that measures.",
        "Measure on a machine without neighbours, or pin virtual CPUs (docs/howto/busy.md).",
    ),
    Entry(
        "backlog-drops",
        "The kernel dropped packets before a CPU could receive them.",
        "Raise `net.core.netdev_max_backlog`, or lower the rate.",
    ),
    Entry(
        "work-elsewhere",
        "The CPUs of `dut.irq` received fewer packets than arrived: others did part of the work.",
        "Give the device its CPUs with `dut.cpus`, and look at `dut.irq`.",
    ),
    Entry(
        "interrupts-elsewhere",
        "An interrupt of the device's cards was handled on other CPUs than those of `dut.irq`.",
        (
            "Stop what moves interrupts, such as irqbalance, or choose other CPUs: some "
            "interrupts cannot be moved."
        ),
    ),
    Entry(
        "numa-crossing",
        (
            "Packets or the forwarder's memory are on another NUMA node than the CPUs that work "
            "on them."
        ),
        "Choose `dut.cpus` and `dut.irq` of the card's node, and both cards of one node.",
    ),
    Entry(
        "counters-missing",
        "This machine does not count some of the events that `counters` asks for.",
        "Measure on a machine with hardware counters; the other counts are good.",
    ),
    Entry(
        "interrupts-late",
        "One sample of the interrupt counters in a hundred came half a period late, or not at all.",
        "Sample less often (`interrupts`), or leave a CPU to neither DuT nor generator.",
    ),
    Entry(
        "emulated",
        (
            "QEMU emulates the virtual machine's CPU (TCG), as KVM does not work here. Its "
            "latency is no statement about a virtual machine."
        ),
        "Run on a machine with KVM.",
    ),
    Entry(
        "heavy-loss",
        (
            "More than 0.1 % of the packets were lost, and their latency is unknown. The message "
            "says what they have in common."
        ),
        "Find out why they were lost: by flow, length and time.",
    ),
    Entry(
        "overload",
        "More than 0.1 % of the packets were lost, and loss comes with load.",
        "Lower the rate, or let `tailtap search` find the highest rate that holds.",
    ),
)
OBSERVED = (
    Entry(
        "observed-elsewhere",
        (
            "Packets came by the first interface and did not leave through the second one: how "
            "many were lost is at most that."
        ),
        (
            "Observe with a `--filter` for what passes both interfaces, or take the number as an "
            "upper bound."
        ),
    ),
    Entry(
        "dropped-before-stamp",
        (
            "XDP programs ran on an observed interface before its packets were stamped. What they "
            "drop before the device is in no count; behind the device it counts as lost."
        ),
        (
            "Observe the other end of the cable or of the veth pair, with `@egress` in place of "
            "`@arrival`."
        ),
    ),
    Entry(
        "serving-unknown",
        ("Some of what serves the packets could not be found: it is in no cause."),
        "Give it with `--cpus` and `--served`, where you know it.",
    ),
    Entry(
        "observing-cost",
        ("Observing took more of a core's time than `--budget`, or an unknown part."),
        "Raise `--budget`, or observe fewer packets: `--filter`, `--sample`, `--trace none`.",
    ),
    Entry(
        "trace-thinned",
        (
            "The cores were traced for a part of the time, to keep the budget: packets of other "
            "times are unexplained."
        ),
        "Raise `--budget`, or observe for longer.",
    ),
)
INTERRUPTS = (
    Entry(
        "no-interrupts",
        "A run has no samples of the interrupt counters.",
        "Measure it with `interrupts: counters`, or give samples with `--samples`.",
    ),
)
SEARCH = (
    Entry(
        "generator-limit",
        "The highest rate is a limit of the generator. The device may hold more.",
        "Give the generator a CPU of its own, or try another `traffic.generator`.",
    ),
    Entry(
        "generator-unsteady",
        "The generator reached a rate once, and later not even a lower one.",
        "Stop what else works on this machine, and search again.",
    ),
    Entry(
        "none-holds",
        "The device lost more than allowed even at the lowest rate.",
        "Lower `--from`, or allow more with `--loss`.",
    ),
    Entry(
        "range-end",
        "The highest rate that was tried holds.",
        "Raise `--to`.",
    ),
    Entry(
        "trials-disagree",
        "Some trials at the rate found lost more than allowed; `--exceed` permits that.",
        "Use `--exceed 0`, or longer trials.",
    ),
    Entry(
        "loss-below",
        "More than allowed was lost at a rate below the one that was found.",
        "Use longer trials with `--trial`.",
    ),
    Entry(
        "loss-inversion",
        "A rate above one that does not hold lost no more than allowed.",
        "Nothing: the lowest rate that does not hold counts. Longer trials tell more.",
    ),
    Entry(
        "loss-unproven",
        "The trials are too short to show that no more than allowed is lost.",
        "Use more or longer trials with `--trials` and `--trial`.",
    ),
)

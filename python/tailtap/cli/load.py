"""`tailtap load`: load a CPU as a neighbour does."""

from __future__ import annotations

import click

from tailtap.cli.command import SIZE, TIME, command, refuse
from tailtap.cli.terminal import beginning, say

KINDS = ("cpu", "cache", "memory", "interrupts", "packets")
BUSY, PERIOD_NS, SIZE_BYTES, BURST = 50, 10_000_000, 8 << 20, 64


@command()
@click.argument(
    "kind",
    type=click.Choice(KINDS),
    help="cpu, cache, memory, interrupts or packets.",
)
@click.option(
    "--cpu",
    type=click.IntRange(min=0),
    required=True,
    help="The CPU that it loads.",
)
@click.option(
    "--busy",
    type=click.IntRange(min=1, max=100),
    help=f"For cpu and cache: work so many per cent of each period. [default: {BUSY}]",
)
@click.option(
    "--period",
    type=TIME,
    help="The period, '10 ms'. [default: 10 ms]",
)
@click.option(
    "--size",
    type=SIZE,
    help="For cache: how much memory it reads, '32 MiB'. [default: 8 MiB]",
)
@click.option(
    "--per-second",
    type=click.IntRange(min=1),
    help="For memory: how many bytes it copies per second. For interrupts: how often it is woken. "
    "For packets: how many it receives.",
)
@click.option(
    "--burst",
    type=click.IntRange(min=1, max=64),
    help=f"For packets: how many come at once. [default: {BURST}]",
)
@click.option(
    "--nice",
    type=click.IntRange(min=-20, max=19),
    default=0,
    help="How much it gives way to others, from -20 to 19.",
)
@click.option(
    "--name",
    default="tt-load",
    help="What its thread is called, in 15 characters at most.",
)
def load(
    kind: str,
    cpu: int,
    busy: int | None,
    period: int | None,
    size: int | None,
    per_second: int | None,
    burst: int | None,
    nice: int,
    name: str,
    json: bool,
    quiet: bool,
) -> None:
    """Load a CPU in a way that is known in numbers, as a neighbour of a device under test does.

    cpu computes, and cache reads cache lines in a random order, both for a share of each period.
    memory copies memory at a rate. interrupts is woken by a timer at a rate. packets has the CPU's
    receive softirq deliver datagrams at a rate, in a network namespace of its own (needs root). One
    thread does it. Experiments do the same with dut.neighbours.

    Runs until SIGINT or SIGTERM. With --json it prints {"event": "ready"} and at the end
    {"event": "done", ...} with what was done (cpu: ns of CPU time; cache: lines; memory: bytes;
    interrupts: wake-ups; packets: datagrams), the CPU time cpu_ns and the time elapsed_ns.
    """
    import json as json_module

    from tailtap import _core

    shares = kind in ("cpu", "cache")
    fitting = (
        ("--busy", busy, shares),
        ("--period", period, shares),
        ("--size", size, kind == "cache"),
        ("--per-second", per_second, not shares),
        ("--burst", burst, kind == "packets"),
    )
    refuse(
        *(
            (value is not None and not fits, f"{kind} has no {option}: leave it out")
            for option, value, fits in fitting
        ),
        (not shares and per_second is None, f"{kind} needs a rate: give --per-second"),
        (period == 0, "--period 0 is no time to work in: give '10 ms'"),
    )
    period_ns = period or PERIOD_NS

    ready = beginning(f"loading CPU {cpu}; SIGINT (Ctrl-C) stops", json=json, quiet=quiet)

    done = _core.load(
        kind,
        ready,
        cpu=cpu,
        name=name,
        nice=nice,
        amount=size or SIZE_BYTES if kind == "cache" else per_second or 0,
        at_once=burst or BURST,
        busy_ns=period_ns * (BUSY if busy is None else busy) // 100,
        period_ns=period_ns,
    )
    if json:
        print(json_module.dumps({"event": "done", **done}), flush=True)
    else:
        say(", ".join(f"{count} {what}" for what, count in done.items()))

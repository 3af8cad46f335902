"""`tailtap trace`, `forward` and `load`: parts of the datapath alone."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import click

from tailtap.base.errors import InputError, TailtapError
from tailtap.base.units import format_count, format_time, ranges
from tailtap.cli.command import CPUS, RATE, SHARE, SIZE, TIME, command, refuse
from tailtap.cli.terminal import beginning, say, warn


@command()
@click.option(
    "--cpus",
    required=True,
    type=CPUS,
    help="The CPUs, '2-3,5'.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder of the files trace.events and trace.json.",
)
@click.option(
    "--mode",
    default="thin",
    type=click.Choice(("thin", "full")),
    help="thin: which context had a CPU; full, at a higher cost: also timers, page faults, "
    "reclaim, compaction, frequencies, exits of guests, every migration.",
)
@click.option(
    "--duration",
    "--for",
    type=TIME,
    help="Stop after this time, '10 s'.",
)
@click.option(
    "--served",
    multiple=True,
    metavar="[NODE=]BY[:PID,...][@CPUS]",
    help="By what packets are served: softirq; or task, poll or vcpu with the ids of its "
    "threads, 'task:812,813', whose waking and waiting is then recorded. Once for "
    "each node: 'dut1=softirq@2', 'dut2=task:812@3'.",
)
@click.option(
    "--networks",
    metavar="INODE,...",
    help="The network namespaces whose packets softirqs serve, as `stat -c %i /run/netns/NAME` "
    "prints them: what softirqs spend on others is then recorded.",
)
@click.option(
    "--senders",
    type=CPUS,
    help="CPUs that tell the traced ones of packets, as a generator's does: what holds them "
    "for 5 us or more is recorded.",
)
@click.option(
    "--steered",
    is_flag=True,
    help="Packets come to the CPUs by function calls of other CPUs alone (receive packet "
    "steering), and no XDP program passes them on: what else tells is left out.",
)
@click.option(
    "--floor",
    type=TIME,
    help="Interrupts and softirqs that are shorter are added up; thin: 1 us, full: 0 s.",
)
@click.option(
    "--records",
    type=int,
    help="Room for records in the kernel for each CPU, by default 1048576 (32 MiB). What finds "
    "no room is lost, and counted.",
)
@click.option(
    "--rotate",
    type=TIME,
    help="Go on to the next file after this time: trace-00001.events, ... Each is a trace with "
    "a .json of its own.",
)
@click.option(
    "--flush",
    default="1 s",
    type=TIME,
    help="Write at least this often. With '0 s' nothing is written while less than half of "
    "the room is used.",
)
@click.option(
    "--cpu",
    type=click.IntRange(min=0),
    help="The CPU of the thread that writes the file; one that is not traced.",
)
@click.option(
    "--budget",
    type=SHARE,
    help="The share of one core's time that the programs may take, '2 %'; above it they "
    "pause for a second at least.",
)
@click.option(
    "--cost",
    is_flag=True,
    help="Measure how long each program takes, at some tens of nanoseconds each.",
)
def trace(
    cpus: list[int],
    out: Path,
    mode: str,
    duration: int | None,
    served: tuple[str, ...],
    networks: str | None,
    senders: list[int] | None,
    steered: bool,
    floor: int | None,
    records: int | None,
    rotate: int | None,
    flush: int,
    cpu: int | None,
    budget: float | None,
    cost: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Record what the kernel does on chosen CPUs: who had them when, and what was in between.

    eBPF programs on the kernel's tracepoints store intervals, by the clock of `tailtap tap`. They
    wake nobody. docs/explanation/tracing.md says what is recorded, docs/reference/files.md in which
    form.

    The trace runs until SIGINT, SIGTERM or the duration; one without trace.json was cut off. With
    --json it prints {"event": "ready"} when it has begun, and at the end {"event": "done", "trace":
    ...} with the content of trace.json and what each tracepoint's program did.
    """

    from tailtap.base.files import make_folder, require_new
    from tailtap.base.writing import writing
    from tailtap.lab.instruments.tracer import EVENTS, RECORD, take, warnings_of
    from tailtap.lab.served import Server
    from tailtap.records.record import as_json

    if floor is not None and floor >= 1 << 32:
        raise InputError(f"--floor {format_time(floor)} is too long: give at most 4 s")
    if budget == 0:
        raise InputError("--budget 0 leaves nothing to measure with: give at least 0.1 %")
    ready = beginning(f"tracing CPUs {ranges(cpus)}; SIGINT (Ctrl-C) stops", json=json, quiet=quiet)

    with writing(out, doing="make the folder of the trace"):
        rotated = [] if rotate is None else out.glob(f"{Path(EVENTS).stem}-[0-9]*")
        require_new([out / EVENTS, out / RECORD, *rotated])
        is_new = not out.exists()
        make_folder(out)
    try:
        done = take(
            out,
            cpus,
            ready,
            senders=senders or [],
            mode=mode,
            floor_ns=floor,
            served=[Server.parse(text) for text in served],
            networks=[] if networks is None else parse_networks(networks),
            steered=steered,
            records=records,
            rotate_ns=rotate,
            flush_ns=flush or None,
            duration_ns=duration,
            cpu=cpu,
            budget=budget,
            measure_cost=cost,
        )
    except TailtapError:
        if is_new:  # and empty where the trace could not begin
            with suppress(OSError):
                out.rmdir()
        raise
    if json:
        print(json_module.dumps({"event": "done", "trace": as_json(done)}), flush=True)
        return
    seconds = (done.ended_ns - done.started_ns) / 1e9
    stored = format_count(done.records or 0, "record")
    say(f"{stored} of CPUs {ranges(cpus)} in {seconds:.1f} s -> {out}")
    for name, count in sorted(done.kinds.items(), key=lambda row: -row[1]):
        say(f"  {name:12} {count:10}  {count / seconds:12.1f}/s")
    for line in costs(done.hooks, seconds) if cost else ():
        say(line)
    if done.skipped:
        skipped = format_count(done.skipped, "event")
        say(f"not seen: {skipped} that interrupted the recording of one like it")
    for warning in warnings_of(done):
        warn(f"tailtap: warning: {warning.message}")


def costs(hooks: Mapping[str, tuple[int, int, int]], seconds: float) -> Iterator[str]:
    """What the programs cost, as lines; `hooks` has runs and ns of each."""
    runs = sum(row[0] for row in hooks.values())
    spent = sum(row[1] for row in hooks.values())
    yield (
        f"cost: {spent / max(1, runs):.0f} ns for each of {runs} runs, "
        f"{100 * spent / 1e9 / seconds:.2f} % of one CPU"
    )
    for name, (count, ns, _) in sorted(hooks.items(), key=lambda row: -row[1][1]):
        if count:
            print_name = f"{name} ({count})"
            yield f"  {print_name:40} {ns / count:6.0f} ns"


def parse_networks(text: str) -> list[int]:
    """Inodes of network namespaces; raises `InputError`."""
    found = [int(word) for word in text.split(",") if word.isascii() and word.isdigit()]
    if len(found) != len(text.split(",")) or not all(0 < inode < 1 << 32 for inode in found):
        raise InputError(
            f"--networks {text!r} does not name network namespaces: write their inodes, as "
            "`stat -c %i /run/netns/NAME` prints them, '4026532178,4026532289'"
        )
    return found


HOLD_FOR_NS = 1_000_000
QUEUE = 100
"""Packets that wait at a limit."""


@command()
@click.argument(
    "input",
    metavar="IN",
    help="Where packets arrive.",
)
@click.argument(
    "output",
    metavar="OUT",
    help="Where packets leave.",
)
@click.option(
    "--hold",
    help="Ids of packets to hold, '17,4711'.",
)
@click.option(
    "--hold-for",
    type=TIME,
    help="How long to hold them, '2 ms'. [default: 1 ms]",
)
@click.option(
    "--drop",
    help="Ids of packets to drop.",
)
@click.option(
    "--duplicate",
    help="Ids of packets to send twice.",
)
@click.option(
    "--limit",
    type=RATE,
    help="Let no more pass than this, '20 kpkt/s'; drop the rest.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=0, max=1_000_000),
    help=f"How many packets wait at the --limit. [default: {QUEUE}]",
)
@click.option(
    "--cpu",
    type=click.IntRange(min=0),
    help="The CPU that forwards.",
)
@click.option(
    "--xdp",
    metavar="MODE",
    type=click.Choice(("native", "generic")),
    help="Redirect in the kernel by an XDP program, in 'native' or 'generic' mode.",
)
@click.option(
    "--both-ways",
    is_flag=True,
    help="With --xdp: from OUT to IN too.",
)
def forward(
    input: str,
    output: str,
    hold: str | None,
    hold_for: int | None,
    drop: str | None,
    duplicate: str | None,
    limit: int | None,
    queue: int | None,
    cpu: int | None,
    xdp: str | None,
    both_ways: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Pass packets from one interface to another in user space, and inject known faults.

    Chosen packets are dropped, sent twice, or held while the others pass. --drop comes first; a
    packet that is held and duplicated leaves twice after its time. With --limit it is a device of
    known speed. With --xdp an XDP program redirects all packets, in the driver (native) or in the
    kernel's receive path (generic), without any fault.

    Runs until SIGINT or SIGTERM. With --json prints {"event": "ready"} and at the end {"event":
    "done", ...} with the counts: limited are packets that came when too many were waiting; lost are
    packets that found no room in the input's buffer, that the output did not take, or that were
    still held at the end.
    """

    from tailtap import _core

    ready = beginning(
        f"forwarding {input} -> {output}; SIGINT (Ctrl-C) stops", json=json, quiet=quiet
    )

    if xdp is not None:
        of_user_space = {"--hold": hold, "--hold-for": hold_for, "--drop": drop,
                         "--duplicate": duplicate, "--limit": limit, "--queue": queue,
                         "--cpu": cpu}  # fmt: skip
        refuse(
            *(
                (value is not None, f"--xdp redirects every packet in the kernel: leave out {name}")
                for name, value in of_user_space.items()
            )
        )
        _core.redirect(input, output, ready, mode=xdp, both_ways=both_ways)
        if json:
            print(json_module.dumps({"event": "done", "mode": xdp}))
        return
    refuse(
        (both_ways, "--both-ways is for --xdp: start another one for the way back"),
        (
            hold_for is not None and hold is None,
            "--hold-for holds nothing: name the packets with --hold",
        ),
        (
            queue is not None and limit is None,
            "--queue is of packets that wait at a limit: give --limit as well",
        ),
    )
    done = _core.forward(
        input,
        output,
        ready,
        hold=parse_ids(hold or "", "--hold"),
        hold_for_ns=HOLD_FOR_NS if hold_for is None else hold_for,
        drop=parse_ids(drop or "", "--drop"),
        duplicate=parse_ids(duplicate or "", "--duplicate"),
        limit=None if limit is None else (limit, QUEUE if queue is None else queue),
        cpu=cpu,
    )
    if json:
        print(json_module.dumps({"event": "done", **done}), flush=True)
    else:
        say(", ".join(f"{count} {name}" for name, count in done.items()))


def parse_ids(text: str, option: str) -> set[int]:
    """The packet ids of a list such as ``17,4711``; raises `InputError`, which names `option`."""
    ids: set[int] = set()
    for part in text.split(",") if text else []:
        if not re.fullmatch(r"\s*[0-9]{1,10}\s*", part) or int(part) >= 1 << 32:
            raise InputError(
                f"{part.strip()!r} is not a packet id: give {option} numbers below 2^32, '17,4711'"
            )
        ids.add(int(part))
    return ids


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
    help="Bytes that memory copies, wake-ups of interrupts, or packets received, per second.",
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

    cpu computes, cache reads cache lines in a random order, both for a share of each period. At a
    rate, memory copies memory, interrupts is woken by a timer, and packets (as root) has the CPU's
    receive softirq deliver datagrams in a network namespace of its own.

    Runs until SIGINT or SIGTERM. With --json it prints {"event": "ready"} and at the end {"event":
    "done", ...} with what was done (cpu: ns of CPU time; cache: lines; memory: bytes; interrupts:
    wake-ups; packets: datagrams), the CPU time cpu_ns and the time elapsed_ns.
    """

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

"""`tailtap forward`: forward packets and inject known faults."""

from __future__ import annotations

import re

import click

from tailtap.base.errors import InputError
from tailtap.cli.command import RATE, TIME, command, refuse
from tailtap.cli.terminal import beginning, say

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

    Chosen packets are dropped, sent twice, or held for a chosen time while the others pass. A
    measurement around this forwarder must find exactly those packets, that late. --drop comes
    before the other faults; a packet that is held and duplicated leaves twice after its time. With
    --limit it is a device of known speed: packets leave at that rate at most, up to --queue
    packets wait, and more are dropped.

    With --xdp no packet comes to user space: an XDP program redirects all of them, in the driver
    (native) or in the kernel's receive path (generic), without any fault.

    Runs until SIGINT or SIGTERM. With --json prints {"event": "ready"} and at the end
    {"event": "done", ...} with the counts: limited are packets that came
    when too many were waiting; lost are packets that found no room in the input's
    buffer, that the output did not take, or that were still held at the end.
    """
    import json as json_module

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

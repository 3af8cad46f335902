"""`tailtap tap`: stamp every packet that passes a link."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailtap.cli.options import Json, Quiet
from tailtap.errors import InputError


def tap(
    links: Annotated[
        list[str],
        typer.Argument(
            metavar="LINK...",
            help="[NAME=]INTERFACE[@egress][:FORWARD]. NAME defaults to the interface. FORWARD is "
            "another interface, through which every packet leaves after its stamp (inline tap), or "
            "'drop', which absorbs it. Without FORWARD the packet goes on its way (passive tap). "
            "With @egress the packets that leave through the interface are stamped (of a "
            "generator: with --no-bypass), which saves a pair of links, else those that arrive.",
        ),
    ],
    *,
    write: Annotated[
        str,
        typer.Option(
            help="The stamp file. With several links it must contain {link}, which stands for "
            "the link's name."
        ),
    ],
    records: Annotated[
        int,
        typer.Option(
            help="Room for stamps in the kernel for each link, 16 B each, rounded up to a power "
            "of two. While less than a quarter is used nothing is written, and nothing disturbs "
            "the measurement."
        ),
    ] = 4 << 20,
    duration: Annotated[str | None, typer.Option(help="Stop after this time, '10 s'.")] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop when every link has seen at least this many packets with an id."
        ),
    ] = None,
    cpu: Annotated[
        int | None, typer.Option(min=0, help="The CPU of the thread that writes the files.")
    ] = None,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="Measure how long the tap's program takes for a packet. While that runs the "
            "kernel times all eBPF programs, which itself costs some tens of nanoseconds.",
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Stamp every packet that passes a link, into a stamp file, with an eBPF program.

    Packets with an id are stamped: UDP over IPv4 or IPv6, also VLAN-tagged, whose payload starts
    with MoonSniff's layout, a little-endian 32-bit id and the byte 0x55. All others are counted.
    The links are interfaces of the current network namespace. Times are CLOCK_MONOTONIC.

    Runs until SIGINT, SIGTERM, the duration or the count. With --json prints one line when all
    links are tapped, {"event": "ready", ...}, and one at the end, {"event": "done", ...}, with the
    counts of each link: seen = stored + lost, always, and other for packets without an id.
    """
    import json as json_module
    import sys

    from tailtap import _core
    from tailtap.units import parse_time

    parsed = parse_links(links, write)
    names = [name for name, *_ in parsed]

    def ready() -> None:
        if json:
            print(json_module.dumps({"event": "ready", "links": names}), flush=True)
        elif not quiet:
            print(f"tapping {', '.join(names)}; SIGINT (Ctrl-C) stops", file=sys.stderr)

    done = _core.tap(
        parsed,
        records,
        ready,
        duration_ns=None if duration is None else parse_time(duration),
        count=count,
        cpu=cpu,
        measure_cost=cost,
    )
    if json:
        print(json_module.dumps({"event": "done", "links": done}, default=str), flush=True)
        return
    for name, link in done.items():
        print(
            f"{name}: {link['seen']} packets seen, {link['stored']} stored, {link['lost']} lost, "
            f"{link['other']} without an id -> {link['file']}"
        )
        if "cost_ns" in link:
            print(f"{name}: {link['cost_ns']:.0f} ns for a packet")
        for warning in link["warnings"]:
            print(f"tailtap: warning: {name}: {warning}", file=sys.stderr)


def parse_links(links: list[str], write: str) -> list[tuple[str, str, bool, str | None, Path]]:
    """Links as (name, interface, egress, forward, stamp file).

    Raises `InputError` for a malformed link, for a name or a file that occurs twice.
    """
    if len(links) > 1 and "{link}" not in write:
        raise InputError(
            f"--write {write!r} is one file for {len(links)} links: put {{link}} into its name"
        )
    parsed: dict[str, tuple[str, str, bool, str | None, Path]] = {}
    for link in links:
        name, equals, rest = link.rpartition("=")
        hook, colon, forward = rest.partition(":")
        interface = hook.removesuffix("@egress")
        egress = hook != interface
        if not interface or (equals and not name) or (colon and not forward):
            raise InputError(f"{link!r} is not a link: write [NAME=]INTERFACE[@egress][:FORWARD]")
        name = name or interface
        if "/" in name:
            raise InputError(f"link name {name!r} cannot be part of a file name: leave out the /")
        if name in parsed:
            raise InputError(f"two links are called {name!r}: name them, as in NAME=INTERFACE")
        if forward == interface:
            raise InputError(f"{link!r} sends packets back where they came from: that is a loop")
        parsed[name] = (
            name,
            interface,
            egress,
            forward or None,
            Path(write.replace("{link}", name)),
        )
    return list(parsed.values())

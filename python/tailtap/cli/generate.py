"""`tailtap generate`: send constant bit rate traffic with unique ids."""

from __future__ import annotations

from typing import Annotated

import typer

from tailtap.cli.options import Json, Quiet
from tailtap.errors import InputError, Interrupted


def generate(
    interface: Annotated[str, typer.Argument(help="The interface to send through.")],
    *,
    rate: Annotated[str, typer.Option(help="Packet rate, '10 kpkt/s'.")],
    size: Annotated[
        str, typer.Option(help="Size of each packet with its 4-byte FCS, at least '64 B'.")
    ] = "64 B",
    duration: Annotated[
        str | None, typer.Option(help="Send for this time, '10 s'; '0 s' sends the warm-up alone.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Send this many packets.")] = None,
    warm_up: Annotated[
        str,
        typer.Option(
            help="Before the measurement, send at the same rate for this time. These packets have "
            "the type byte 0x00 instead of 0x55; taps count them as other packets."
        ),
    ] = "0 s",
    flows: Annotated[
        int, typer.Option(help="Number of flows: source addresses from 10.0.0.1 on, in turn.")
    ] = 1,
    cpu: Annotated[
        int | None, typer.Option(min=0, help="The CPU that sends, and only that.")
    ] = None,
    no_bypass: Annotated[
        bool,
        typer.Option(
            "--no-bypass",
            help="Send through the interface's queueing discipline, and so past a tap at its "
            "egress, instead of straight to the device.",
        ),
    ] = False,
    src_mac: Annotated[str, typer.Option(help="Source hardware address.")] = "02:74:74:00:00:01",
    dst_mac: Annotated[
        str, typer.Option(help="Destination hardware address.")
    ] = "02:74:74:00:00:02",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Send UDP packets with unique ids at a constant rate, paced by the clock, in open loop.

    Each packet is due at a fixed time and leaves then, whatever became of the ones before. How
    late packets left against this schedule, their slip, is reported: the measurement is as good
    as the generator's slip is small. One thread spins on the clock; give it a CPU of its own.

    The packets are in MoonSniff's layout: Ethernet, IPv4 to 10.1.0.1, UDP from port 1024 to 53
    without checksum, and as payload the id (32 bits, little-endian, from 0) and the type byte
    0x55. SIGINT and SIGTERM end the traffic early; the report is printed all the same and the
    exit status is 4.
    """
    import json as json_module
    import sys

    from tailtap import _core
    from tailtap.units import format_rate, format_time, parse_rate, parse_size, parse_time

    if (duration is None) == (count is None):
        raise InputError("how much to send must be said once: give --duration or --count")
    report = _core.generate(
        interface,
        parse_rate(rate),
        parse_size(size),
        duration_ns=None if duration is None else parse_time(duration),
        count=count,
        warm_up_ns=parse_time(warm_up),
        flows=flows,
        cpu=cpu,
        bypass=not no_bypass,
        source_mac=parse_mac(src_mac),
        destination_mac=parse_mac(dst_mac),
    )
    if json:
        print(json_module.dumps(report), flush=True)
    else:
        print(
            f"{report['sent']} packets sent at {format_rate(round(report['achieved_rate']))}, "
            f"{report['failed']} failed, {report['warm_up']['sent']} before for warm-up"
        )
        if (slip := report["slip_ns"]) is not None:
            named = [(f"p{100 * entry['p']:.8g}", entry["value"]) for entry in slip["percentiles"]]
            named.append(("max", slip["max"]))
            values = ", ".join(f"{name} {format_time(value)}" for name, value in named)
            print(f"late against the schedule: {values}")
        if report["failed"] and not quiet:
            print(
                f"tailtap: warning: {interface} did not take {report['failed']} packets",
                file=sys.stderr,
            )
    if report["interrupted"]:
        raise Interrupted(
            "the traffic was ended early by a signal; the report covers what was sent"
        )


def parse_mac(text: str) -> bytes:
    """The six bytes of a hardware address such as ``02:74:74:00:00:01``.

    Raises `InputError` when the text is none.
    """
    parts = text.split(":")
    try:
        address = bytes(int(part, 16) for part in parts)
    except ValueError:
        address = b""
    if len(address) != 6 or any(len(part) != 2 for part in parts):
        raise InputError(f"{text!r} is not a hardware address: write it as 02:74:74:00:00:01")
    return address

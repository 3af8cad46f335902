"""`tailtap generate`: send traffic with unique ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.completing import captures, one_of
from tailtap.errors import InputError, Interrupted, naming


@command()
@click.argument(
    "interface",
    help="The interface to send through.",
)
@click.option(
    "--rate",
    help="Packet rate, '10 kpkt/s'. Without it a --replay keeps its own pace.",
)
@click.option(
    "--pattern",
    default="constant",
    shell_complete=one_of("constant", "burst", "poisson", "on-off", "ramp"),
    help="How packets follow each other: constant; burst:packets=32 (so many at once, at "
    "the same mean rate); poisson:seed=1 (independent exponential gaps); "
    "on-off:on_time=10 ms,off_time=90 ms (the rate, then silence, in turn); "
    "ramp:to=1 Mpkt/s,over=10 s (from the rate evenly to another one; without a time over "
    "the whole duration).",
)
@click.option(
    "--size",
    default="64 B",
    help="Size of each packet with its 4-byte FCS, at least '64 B'; several, '64 B,1518 "
    "B', are sent in turn; imix is seven of 64 B, four of 594 B and one of 1518 B.",
)
@click.option(
    "--duration",
    help="Send for this time, '10 s'; '0 s' sends the warm-up alone.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="Send this many packets.",
)
@click.option(
    "--warm-up",
    help="Before the measurement, send at the same rate for this time. These packets have "
    "the type byte 0x00 instead of 0x55; taps count them as other packets.",
)
@click.option(
    "--warm-up-packets",
    default=0,
    type=click.IntRange(min=0),
    help="The same for this number of packets.",
)
@click.option(
    "--pause",
    default="0 s",
    help="Silence between warm-up and measurement, '1 s'.",
)
@click.option(
    "--flows",
    type=int,
    help="Number of flows: that many source addresses. [default: 1]",
)
@click.option(
    "--src",
    help="Source addresses, '10.0.0.1-10.0.0.9'. All combinations of addresses "
    "and ports are flows, and take turns.",
)
@click.option(
    "--dst",
    help="Destination addresses.",
)
@click.option(
    "--sport",
    help="Source ports, '1024-2047'.",
)
@click.option(
    "--dport",
    help="Destination ports, '53'.",
)
@click.option(
    "--ip",
    default=4,
    type=click.IntRange(min=4, max=6),
    help="Version of IP: 4 or 6.",
)
@click.option(
    "--vlan",
    type=click.IntRange(min=1, max=4094),
    help="Tag packets with this VLAN id.",
)
@click.option(
    "--ttl",
    type=click.IntRange(min=1, max=255),
    help="Time to live of the packets, the hop limit of IPv6: each router takes one from it. "
    "[default: 64]",
)
@click.option(
    "--replay",
    type=PATH,
    shell_complete=captures,
    help="Send the packets of this capture (pcap or pcapng, whole packets) as they are; "
    "without --duration or --count once.",
)
@click.option(
    "--stamp-ids",
    is_flag=True,
    help="Write id and type byte over the first 5 bytes of the UDP payloads of a --replay, "
    "and correct the UDP checksums. Needed for a warm-up, and to send it more than once.",
)
@click.option(
    "--cpu",
    type=click.IntRange(min=0),
    help="The CPU of the thread that sends.",
)
@click.option(
    "--generator",
    default="af_packet",
    shell_complete=one_of("af_packet", "af_xdp"),
    help="How packets get to the interface: af_packet, by a system call for each; or af_xdp, "
    "through memory shared with the kernel, which is faster (packets up to 4100 B). It uses "
    "native mode where the driver has it, else generic mode: the report says which.",
)
@click.option(
    "--no-bypass",
    is_flag=True,
    help="Send through the interface's queueing discipline, and so past a tap at its "
    "egress, instead of straight to the device.",
)
@click.option(
    "--src-mac",
    default="02:74:74:00:00:01",
    help="Source hardware address.",
)
@click.option(
    "--dst-mac",
    default="02:74:74:00:00:02",
    help="Destination hardware address.",
)
def generate(
    interface: str,
    rate: str | None,
    pattern: str,
    size: str,
    duration: str | None,
    count: int | None,
    warm_up: str | None,
    warm_up_packets: int,
    pause: str,
    flows: int | None,
    src: str | None,
    dst: str | None,
    sport: str | None,
    dport: str | None,
    ip: int,
    vlan: int | None,
    ttl: int | None,
    replay: Path | None,
    stamp_ids: bool,
    cpu: int | None,
    generator: str,
    no_bypass: bool,
    src_mac: str,
    dst_mac: str,
    json: bool,
    quiet: bool,
) -> None:
    """Send UDP packets with unique ids on a fixed schedule, in open loop.

    Rate and pattern fix the time at which each packet is due. It leaves then, whatever happened
    to earlier packets. The report states the slip: how late packets left. A measurement is only as
    good as the slip is small. One thread spins on the clock; give it a CPU of its own.

    The packets are in MoonSniff's layout: Ethernet, with --vlan a tag, IPv4 from 10.0.0.1 to
    10.1.0.1 (or IPv6 from fd00::1 to fd00:0:0:1::1), UDP from port 1024 to 53, and as payload the
    id (32 bits, little-endian, from 0) and the type byte 0x55. SIGINT and SIGTERM end the traffic
    early; the report is still printed, and the exit status is 4.
    """
    import json as json_module
    import sys

    from tailtap import _core
    from tailtap.traffic.flows import DEFAULT_TTL, Flows, numbered
    from tailtap.traffic.own import BACK_ENDS
    from tailtap.traffic.pattern import parse_pattern
    from tailtap.traffic.sizes import least_size, parse_sizes, sizes_of
    from tailtap.units import format_rate, format_time, parse_rate, parse_time

    if duration is not None and count is not None:
        raise InputError("how much to send must be said once: give --duration or --count")
    if replay is None:
        if duration is None and count is None:
            raise InputError("how much to send must be said once: give --duration or --count")
        if rate is None or stamp_ids:
            raise InputError("without --replay, --rate is needed and --stamp-ids is not")
    else:
        ours = {"--flows": flows, "--src": src, "--dst": dst, "--sport": sport, "--dport": dport}
        ours |= {"--vlan": vlan, "--ttl": ttl, "--size": None if size == "64 B" else size}
        if given := [option for option, value in ours.items() if value is not None]:
            raise InputError(f"{given[0]} does not go with --replay: its packets are as they are")
        if rate is None and pattern != "constant":
            raise InputError("--pattern needs a --rate: without one, a --replay has its own pace")
    if warm_up is not None and warm_up_packets:
        raise InputError("the warm-up must be said once: give --warm-up or --warm-up-packets")
    if generator not in BACK_ENDS:
        raise InputError(f"there is no --generator {generator!r}: known: {', '.join(BACK_ENDS)}")
    if no_bypass and generator != "af_packet":
        raise InputError("--no-bypass is for --generator af_packet: the others pass no queue")
    if ip == 5:
        raise InputError("there is no IPv5: give --ip 4 or 6")
    version: Any = ip
    if flows is not None and src is not None:
        raise InputError("the source addresses must be said once: give --flows or --src")
    with naming("--flows"):
        sources = src if flows is None else numbered(flows, version).src
    ranges = Flows(src=sources, dst=dst, sport=sport, dport=dport).ranges(version)
    shape = parse_pattern(pattern)
    with naming("--size"):
        sizes = parse_sizes(size)
    length_ns = None if duration is None else parse_time(duration)
    length: Any = None if length_ns is None else ("ns", length_ns)
    if count is not None:
        length = ("packets", count)
    sent = _core.generate(
        interface,
        rate=None if rate is None else parse_rate(rate),
        pattern=shape.values(length_ns),
        sizes=sizes_of(sizes, least_size(ip, vlan is not None)),
        **ranges._asdict(),
        vlan=vlan,
        time_to_live=ttl or DEFAULT_TTL,
        source_mac=parse_mac(src_mac),
        destination_mac=parse_mac(dst_mac),
        replay=None if replay is None else (replay, stamp_ids),
        length=length,
        warm_up=("packets", warm_up_packets) if warm_up is None else ("ns", parse_time(warm_up)),
        pause_ns=parse_time(pause),
        cpu=cpu,
        back_end=generator,
        bypass=not no_bypass,
    )
    report = {**sent, "generator": generator}
    if replay is None:
        shown = {
            "size": sizes,
            "flows": ranges.flows,
            "ip": ip,
            "vlan": vlan,
            "ttl": ttl or DEFAULT_TTL,
        }
        report |= {"pattern": shape.model_dump(), **shown}
    else:
        own_pace = {"kind": "recorded"} if rate is None else shape.model_dump()
        report |= {"pattern": own_pace, "replay": str(replay), "stamp_ids": stamp_ids}
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
        if report["mode"]:
            print(f"handed over by {generator}, {report['mode']} mode")
        for warning in _warnings(report) if not quiet else ():
            print(f"tailtap: warning: {warning}", file=sys.stderr)
    if report["interrupted"]:
        raise Interrupted(
            "the traffic was ended early by a signal; the report covers what was sent"
        )


def _warnings(report: dict[str, Any]) -> Iterator[str]:
    """What the reader should know about traffic that was not sent as it was asked for."""
    from tailtap.units import format_rate

    if report["failed"]:
        yield f"{report['interface']} did not take {report['failed']} packets"
    wanted, achieved = report["scheduled_rate"], report["achieved_rate"]
    if achieved < 0.99 * wanted:
        yield (
            f"{format_rate(round(wanted))} is more than this machine can send here: it reached "
            f"{format_rate(round(achieved))}; lower --rate, give it a CPU of its own (--cpu), or "
            "try --generator af_xdp"
        )
    if report["with_id"] < report["sent"]:
        yield (
            f"{report['sent'] - report['with_id']} packets have no id: taps count them as other "
            "packets (--stamp-ids writes ids where there is UDP)"
        )
    if report["bunched"]:
        yield f"{report['bunched']} packets were overdue and left together with others"


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

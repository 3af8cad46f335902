"""`tailtap tap`: stamp or capture every packet that passes a link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.errors import InputError
from tailtap.base.units import format_count, format_share, parse_size, parse_time
from tailtap.cli.command import SHARE, TIME, command
from tailtap.cli.terminal import beginning, say, warn

if TYPE_CHECKING:
    from tailtap.records.datapath import TappedLink, TapsSoFar


@command()
@click.argument(
    "links",
    nargs=-1,
    required=True,
    metavar="LINK...",
    help="[NAME=][NETNS/]INTERFACE[@arrival|@egress|@receipt][:FORWARD]. NAME defaults to "
    "the interface. NETNS is a network namespace by name or path, by default the "
    "current one. FORWARD is the interface through which packets leave after the "
    "stamp (inline tap), or 'drop'; 'dev:drop' is an interface of that name. Without "
    "it the tap is passive. @egress: as packets leave (of a generator: with "
    "--no-bypass). @arrival: inline, as they were handed over to the interface. "
    "@receipt: passively, when the interface's receive work comes to them: tapped "
    "both ways, it tells how long packets waited.",
)
@click.option(
    "--write",
    required=True,
    help="The file; .stamps, .pcap or .marks decides the format. {link} in it is the "
    "link's name, required with several.",
)
@click.option(
    "--format",
    type=click.Choice(("stamps", "pcap", "marks")),
    help="stamps: time, id and length, 16 B each; pcap: the first bytes; marks: time, hash "
    "of the key and length, 24 B each. By default the suffix says it.",
)
@click.option(
    "--snap-length",
    help="Bytes to keep of each packet in a pcap, by default 128 B, at most 65535 B. Of "
    "marks, bytes to look at, by default 320 B.",
)
@click.option(
    "--hash",
    "hash_",
    multiple=True,
    metavar="[NAME=]KEY",
    help="Of marks, what their hashes are of: packet, packet-nat, packet-flow, "
    "packet-payload, packet-id, moonsniff or a number, as in `tailtap evaluate "
    "--key`, which finds one on pcaps of a moment. Again with the name of a link "
    "where it differs.",
)
@click.option(
    "--filter",
    "filter_",
    metavar="EXPRESSION",
    help="Stamp only packets of which this is true, in the words of libpcap (`man "
    "pcap-filter`): 'udp port 53'. A VLAN tag counts as in the frame.",
)
@click.option(
    "--sample",
    metavar="1/N",
    help="Stamp one packet of N, a power of two up to 65536, by a hash of the key: all "
    "links choose the same.",
)
@click.option(
    "--budget",
    type=SHARE,
    help="Of marks: thin the sample (from --sample) so that all links take no more than "
    "this share of one core's time, '2 %'.",
)
@click.option(
    "--behind",
    multiple=True,
    metavar="NAME",
    help="With --budget: a link behind the device, where a thinner sample is taken later; "
    "those with @egress are.",
)
@click.option(
    "--tell",
    type=TIME,
    help="Say so often counts, packets a second, and the share of a core's time.",
)
@click.option(
    "--key",
    default="moonsniff",
    help="Where packets carry the id that is stamped: moonsniff, or OFFSET:WIDTH:le|be, an "
    "integer of 1 to 4 bytes at that byte of the frame.",
)
@click.option(
    "--clock",
    type=click.Choice(("monotonic", "realtime", "hardware", "software")),
    help="Whose clock. monotonic (by default of stamps) or realtime (of pcap): the "
    "kernel's; realtime is put on the time of day once, at the start. hardware: the "
    "network card's, if it can stamp every packet that it receives; passive, stamps "
    "only. software: the kernel's when a packet socket receives, for comparison.",
)
@click.option(
    "--rotate",
    multiple=True,
    metavar="SIZE|TIME",
    help="Go on to the next file before one exceeds this size, '1 GB', or spans this time, '10 "
    "min'; give it twice for both. Files are numbered: x-00001.pcap, ...",
)
@click.option(
    "--records",
    multiple=True,
    metavar="[NAME=]NUMBER",
    help="Room in the kernel for each link, by default 64 MiB, 4194304 stamps. What finds "
    "no room is counted as lost. Again with the name of a link where it differs.",
)
@click.option(
    "--flush",
    default="1 s",
    type=TIME,
    help="Write at least this often. With '0 s' nothing is written while less than half of the "
    "room is used, so that nothing disturbs a measurement.",
)
@click.option(
    "--duration",
    type=TIME,
    help="Stop after this time, '10 s'.",
)
@click.option(
    "--packets",
    "--count",
    type=click.IntRange(min=1),
    help="Stop when every link has seen at least this many packets, of stamps those with an id.",
)
@click.option(
    "--cpu",
    type=click.IntRange(min=0),
    help="The CPU of the thread that writes the files.",
)
@click.option(
    "--cost",
    is_flag=True,
    help="Compare the time of the tap's program with one that only reads the clock, and "
    "one that does nothing.",
)
def tap(
    links: tuple[str, ...],
    write: str,
    format: str | None,
    snap_length: str | None,
    hash_: tuple[str, ...],
    filter_: str | None,
    sample: str | None,
    budget: float | None,
    behind: tuple[str, ...],
    tell: int | None,
    key: str,
    clock: str | None,
    rotate: tuple[str, ...],
    records: tuple[str, ...],
    flush: int,
    duration: int | None,
    packets: int | None,
    cpu: int | None,
    cost: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Stamp or capture every packet that passes a link.

    Inline (but for @arrival) and with @egress, packets are stamped as they leave, others when the
    interface gets them from the card's driver or the other end of a veth pair. The kernel then
    stamps all packets of the machine, as for tcpdump. The links must be up.

    A stamp file holds packets with an id: UDP in MoonSniff's layout, also VLAN-tagged, or with
    --key all with an id at that place. A pcap holds all packets, cut to the snap length. A file of
    marks holds no byte of a packet.

    The tap runs until SIGINT, SIGTERM, the duration or the number of packets. Files can be read
    even after a kill. With --json it prints {"event": "ready", ...} when all links are tapped, and
    at the end {"event": "done", ...} with the files and counts of each link: seen = stored + lost,
    always; other counts packets without an id or a key, filtered and unsampled those not to be
    stamped. A full disk ends the tap; its counts are exact.
    """
    import json as json_module

    from tailtap import _core
    from tailtap.base.files import require_new
    from tailtap.base.packet_filters import compile_filter, compile_filter_of_ip
    from tailtap.host.facts.timekeeping import require_kernel_clock
    from tailtap.lab.instruments.taps.hardware import STAMPERS, stamp
    from tailtap.lab.instruments.taps.links import (
        parse_links,
        with_hashes,
        with_rooms,
        with_sides,
    )
    from tailtap.records.datapath import TapsSoFar, of_core
    from tailtap.records.record import as_json, parsed

    kind = _format(write, format)
    snap = _snap(kind, snap_length)
    if hash_ and kind != "marks":
        raise InputError("--hash is of marks: write to a .marks file")
    room, asked = with_rooms(parse_links(links, write), records)
    asked = with_sides(with_hashes(asked, hash_), behind)
    level = 0 if sample is None else parse_sample(sample)
    if budget == 0:
        raise InputError("--budget 0 leaves nothing to measure with: give at least 0.1 %")
    filter = None if filter_ is None else compile_filter(filter_)
    names = [link.name for link in asked]
    tapped = [(link, link.file(write)) for link in asked]
    rotation = _rotation(rotate)
    require_new(_files([path for _, path in tapped], rotated=rotation != (None, None)))
    require_kernel_clock()

    text = f"tapping {', '.join(names)}; SIGINT (Ctrl-C) stops"
    ready = beginning(text, json=json, quiet=quiet, links=names)

    def told(measured: dict[str, object]) -> None:
        so_far = parsed("the taps", measured, TapsSoFar)
        if json:
            print(json_module.dumps({"event": "counts", **as_json(so_far)}), flush=True)
        elif not quiet:
            warn(_told(so_far))

    if clock in STAMPERS:
        ours = (rotate, records, cost, filter, sample, budget, tell)
        if snap is not None or key != "moonsniff" or any(ours):
            raise InputError(
                f"--clock {clock} stamps packets with MoonSniff's ids into one stamp file: pcaps, "
                "marks, --key, --rotate, --records, --cost, --filter, --sample, --budget and "
                "--tell are of the eBPF tap"
            )
        done = stamp(tapped, clock, ready, duration_ns=duration, count=packets, cpu=cpu)
        if not json and len({link.clock_device for link in done.values()}) > 1:
            warn(
                "tailtap: warning: these cards have a clock each: stamp with --json, keep what it "
                "prints, and give that to `tailtap evaluate --clocks`"
            )
    else:
        done = of_core(
            _core.tap(
                tapped,
                ready,
                snap=snap,
                marks=kind == "marks",
                key=key,
                clock=clock or ("realtime" if kind == "pcap" else "monotonic"),
                rotate=rotation,
                records=room,
                flush_ns=flush or None,
                duration_ns=duration,
                count=packets,
                cpu=cpu,
                measure_cost=cost,
                filter=filter,
                filter_of_ip=None if filter_ is None else compile_filter_of_ip(filter_),
                level=level,
                budget=budget,
                tell_ns=tell,
                on_tell=told,
            )
        )
        for one in asked:
            done[one.name].outside = one.stamped()
    if json:
        links_told = {name: as_json(link) for name, link in done.items()}
        print(json_module.dumps({"event": "done", "links": links_told}), flush=True)
        return
    for name, link in done.items():
        others = _others(kind, link)
        more = f" and {len(link.files) - 1} more" if len(link.files) > 1 else ""
        say(
            f"{name}: {format_count(link.seen, 'packet')} seen, {link.stored:,} stored, "
            f"{link.lost:,} lost{others} -> {link.file}{more}"
        )
        for text in _shortfalls(link):
            warn(f"tailtap: warning: {name}: {text}")
        if link.cost_ns is not None:
            say(
                f"{name}: {link.cost_ns:.0f} ns for a packet; a program that only reads the "
                f"clock takes {link.cost_clock_ns:.0f} ns, one that does nothing "
                f"{link.cost_floor_ns:.0f} ns"
            )
        for warning in link.warnings:
            warn(f"tailtap: warning: {name}: {warning}")


def _others(kind: str, link: TappedLink) -> str:
    """Packets that are not in the file, and should not be."""
    what = {"stamps": "without an id", "marks": "without a key", "pcap": None}[kind]
    counts = (
        (link.other, what),
        (link.filtered, "filtered out"),
        (link.unsampled, "not in the sample"),
    )
    always = {"without an id"}
    return "".join(f", {count:,} {what}" for count, what in counts if what in always or count)


def _told(measured: TapsSoFar) -> str:
    """What is said while the tap runs."""
    links = (
        f"{name}: {one.stored} stored, {one.rate:.0f} pkt/s"
        + (f", 1/{one.sample}" if one.sample > 1 else "")
        + ("" if one.ns is None else f", {one.ns:.0f} ns for a packet")
        for name, one in measured.links.items()
    )
    return f"{'; '.join(links)}; {format_share(measured.share, 3)} of a core"


def parse_sample(sample: str) -> int:
    """The binary logarithm of N in 1/N."""
    one, slash, of = sample.partition("/")
    if one.strip() != "1" or not slash or not of.strip().isascii() or not of.strip().isdecimal():
        raise InputError(f"--sample {sample!r} is no share of packets: write 1/16")
    number = int(of)
    if number < 1 or number & (number - 1):
        raise InputError(
            f"--sample {sample!r}: {number} is no power of two, so that thinner samples would not "
            "be part of denser ones: write 1/16"
        )
    # What is too thin is told by who knows the thinnest.
    return min(number.bit_length() - 1, 63)


def _shortfalls(link: TappedLink) -> Iterator[str]:
    """What stamps of a link lack; stamps of cards have no such counts."""
    if link.late:
        yield (
            f"the tap stamped {format_count(link.late, 'packet')} on receipt, as the kernel did "
            "not record the arrival at the interface"
        )
    if link.dropped:
        yield (
            f"the kernel dropped {format_count(link.dropped, 'packet')} before the stamp: its "
            "queue was full (net.core.netdev_max_backlog)"
        )


FORMATS = ("stamps", "pcap", "marks")
SNAP_LENGTHS = {"pcap": 128, "marks": 320}


def _format(write: str, format: str | None) -> str:
    if format is not None:
        return format
    suffix = Path(write).suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"--write {write!r} does not say a format: let it end in "
            f"{_any([f'.{suffix}' for suffix in FORMATS])}, or give --format"
        )
    return suffix


def _any(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _snap(format: str, length: str | None) -> int | None:
    """Bytes to keep of each packet, or to look at; None for stamps."""
    if format in SNAP_LENGTHS:
        # What does not fit into 32 bits is as wrong as the largest that does.
        return SNAP_LENGTHS[format] if length is None else min(parse_size(length), 2**32 - 1)
    if length is not None:
        raise InputError(
            "--snap-length is for a pcap or marks: stamps are made without the bytes of packets"
        )
    return None


def _files(paths: Sequence[Path], *, rotated: bool) -> Iterator[Path]:
    """What is there of the files that links write; with a rotation they are numbered."""
    for path in paths:
        if rotated:
            names = f"{escape(path.stem)}-[0-9][0-9][0-9][0-9][0-9]{escape(path.suffix)}"
            yield from path.parent.glob(names)
        else:
            yield path


def _rotation(limits: Sequence[str]) -> tuple[int | None, int | None]:
    """Bytes and nanoseconds of the options ``--rotate``."""
    size: int | None = None
    time: int | None = None
    for limit in limits:
        try:
            value, is_size = parse_size(limit), True
        except InputError:
            try:
                value, is_size = parse_time(limit), False
            except InputError:
                raise InputError(
                    f"--rotate {limit!r} is neither a size nor a time: write '1 GB' or '10 min'"
                ) from None
        if value == 0 or (size if is_size else time) is not None:
            raise InputError(f"--rotate {limit!r}: give one size and one time at most, above zero")
        if is_size:
            size = value
        else:
            time = value
    return size, time

"""`tailtap generate`: send traffic with unique ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tailtap.base.errors import InputError, Interrupted
from tailtap.base.units import format_count, format_rate, format_time
from tailtap.cli.command import CPUS, PATH, RATE, TIME, Answer, Command, command, refuse
from tailtap.cli.terminal import say, unless, warn

if TYPE_CHECKING:
    from tailtap.cli.flow import FlowOptions
    from tailtap.records.datapath import GeneratorRecord

NEXT = "--next"
COMMON = ("cpu", "how_fast", "json", "quiet")
"""Options of all flows together."""


class Several(Command):
    """A command whose words are those of several flows, with `NEXT` between them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of each flow alone; the flows behind the first go into ``ctx.meta``."""
        flows: list[list[str]] = [[]]
        for word in args:
            if word == NEXT:
                flows.append([])
            else:
                flows[-1].append(word)
        first, *others = flows
        resilient = ctx.resilient_parsing
        ctx.meta[NEXT] = [
            self.make_context(ctx.info_name, one, ctx.parent, resilient_parsing=resilient).params
            for one in others
        ]
        return super().parse_args(ctx, first)


@command(
    cls=Several,
    examples=(
        (
            "tailtap generate eth0 --rate '10 kpkt/s' --duration '10 s'",
            "send 10 kpkt/s for ten seconds",
        ),
        (
            "tailtap generate a --rate '1 kpkt/s' --count 9 --next b --rate '2 kpkt/s' --count 9",
            "send a flow into each of two interfaces",
        ),
        (
            "tailtap generate eth0 --how-fast --generator af_xdp --cpu 2-3",
            "measure how fast two threads send",
        ),
    ),
)
@click.argument(
    "interface",
    help="The interface to send through.",
)
@click.option(
    "--rate",
    type=RATE,
    help="Packet rate, '10 kpkt/s'. Without it a --replay keeps its own pace.",
)
@click.option(
    "--pattern",
    default="constant",
    help="How packets follow each other: constant; burst:packets=32 (at once, at the same "
    "mean rate); poisson:seed=1; on-off:on_time=10 ms,off_time=90 ms; ramp:to=1 "
    "Mpkt/s,over=10 s.",
)
@click.option(
    "--size",
    default="64 B",
    help="Size of each packet with its 4-byte FCS, at least '64 B'; several, '64 B,1518 "
    "B', are sent in turn; imix is seven of 64 B, four of 594 B and one of 1518 B.",
)
@click.option(
    "--duration",
    type=TIME,
    help="Send for this time, '10 s'; '0 s' sends the warm-up alone.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="Send this many packets.",
)
@click.option(
    "--warm-up",
    type=TIME,
    help="Before the measurement, send at the same rate for this time, with the type byte "
    "0x00: taps count them as other packets.",
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
    type=TIME,
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
    help="Send the packets of this capture (pcap or pcapng, whole packets) as they are; "
    "without --duration or --count once.",
)
@click.option(
    "--stamp-ids",
    is_flag=True,
    help="Write id and type byte over the first 5 bytes of a --replay's UDP payloads, and "
    "correct checksums: for a warm-up, and to send it more than once.",
)
@click.option(
    "--cpu",
    type=CPUS,
    help="The CPU of the thread that sends all flows; of several, '2-3', a thread on each, which "
    "sends its share through a queue of its own.",
)
@click.option(
    "--generator",
    default="af_packet",
    type=click.Choice(("af_packet", "af_xdp")),
    help="af_packet: a system call for each packet. af_xdp: faster, through shared memory "
    "(packets up to 4100 B), in native mode where the driver has it.",
)
@click.option(
    "--how-fast",
    is_flag=True,
    help="Measure how many packets a second leave by frame size (of --size, or those of RFC 2544), "
    "and how late they leave at 10, 50 and 90 % of it; with --rate at this rate as well. "
    "Some three seconds a size.",
)
@click.option(
    "--no-bypass",
    is_flag=True,
    help="Send through the interface's queueing discipline, and so past a tap at its egress.",
)
@click.option(
    NEXT,
    is_flag=True,
    expose_value=False,
    help="What follows is another flow: its interface and all its options. --cpu, --json "
    "and --quiet stand before the first --next.",
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
@click.pass_context
def generate(
    context: click.Context,
    /,
    *,
    cpu: list[int] | None,
    how_fast: bool,
    json: bool,
    quiet: bool,
    **flow: Any,
) -> Answer | None:
    """Send UDP packets with unique ids on a fixed schedule, in open loop.

    Rate and pattern fix when each packet is due, whatever happened to earlier ones. The report
    states the slip: how late packets left. A thread spins on the clock; give it a CPU of its own.
    Of several threads each sends its share of one schedule: ids stay unique, and those of a queue
    in order; packets of different queues may pass each other.

    The packets are in MoonSniff's layout: Ethernet, IPv4 from 10.0.0.1 to 10.1.0.1 (or IPv6 from
    fd00::1 to fd00:0:0:1::1), UDP from port 1024 to 53, and as payload the id (32 bits,
    little-endian, from 0) and the type byte 0x55. SIGINT and SIGTERM end it early, with a report
    and exit status 4.

    With --next the same thread sends several flows, each with ids and a report of its own. Flow k
    of n begins k/n of the shortest gap later.
    """
    from tailtap import _core
    from tailtap.cli.flow import FlowOptions
    from tailtap.lab.generators.rates import SIZES
    from tailtap.records.datapath import SeveralRecord
    from tailtap.records.record import printed

    cpus = cpu or []
    if how_fast:
        if context.get_parameter_source("size") is ParameterSource.DEFAULT:
            flow["size"] = ",".join(f"{size} B" for size in SIZES)
        return _how_fast(FlowOptions(**flow), cpus, context.meta[NEXT], unless(json or quiet))
    asked = [FlowOptions(**flow)]
    for other in context.meta[NEXT]:
        if given := [name for name in COMMON if other.pop(name) not in (None, False)]:
            raise InputError(
                f"--{given[0].replace('_', '-')} is of all flows: give it before the first {NEXT}"
            )
        asked.append(FlowOptions(**other))
    sent = _core.generate([one.sending() for one in asked], cpus=cpus)
    reports = [one.report(told) for told, one in zip(sent, asked, strict=True)]
    several = len(reports) > 1
    if json:
        print(printed(SeveralRecord(flows=reports) if several else reports[0]), flush=True)
    for report in () if json else reports:
        place = f"{report.interface}: " if several else ""
        for line in _lines(report):
            say(f"{place}{line}")
        for warning in _warnings(report) if not quiet else ():
            warn(f"tailtap: warning: {place}{warning}")
    if any(report.interrupted for report in reports):
        raise Interrupted(
            "the traffic was ended early by a signal; the report covers what was sent"
        )
    return None


def _how_fast(
    flow: FlowOptions, cpus: list[int], others: Sequence[Any], tell: Callable[[str], None]
) -> Answer:
    """How fast the generator sends by frame size, and how late."""
    from tailtap.cli.console import print_section
    from tailtap.lab.generators.rates import measure_rates
    from tailtap.show.sections.machine import rates_section

    refuse(
        (bool(others), f"--how-fast measures one interface: leave {NEXT} out"),
        (flow.replay is not None, "--how-fast sends packets of its own: leave --replay out"),
        (
            any((flow.duration, flow.count, flow.warm_up, flow.warm_up_packets, flow.pause)),
            "--how-fast sends each rate for half a second: leave lengths and warm-ups out",
        ),
    )
    rate, flow.count = flow.rate, 1
    flow.rate = flow.rate or 1
    sending = flow.sending()
    sizes = sorted(set(sending["sizes"]))
    found = measure_rates(sending, cpus=cpus, sizes=sizes, rate=rate, tell=tell)
    return Answer(found, lambda: print_section(rates_section(found)))


def _lines(report: GeneratorRecord) -> Iterator[str]:
    """What a person reads of a flow."""
    from tailtap.analysis.evaluation.values import label

    warm_up = 0 if report.warm_up is None else report.warm_up.sent
    yield (
        f"{format_count(report.sent or 0, 'packet')} sent at "
        f"{format_rate(report.achieved_rate or 0)}, {report.failed} failed, {warm_up} before for "
        "warm-up"
    )
    if (slip := report.slip_ns) is not None:
        named = [(label(entry.p), entry.value) for entry in slip.percentiles]
        named.append(("max", slip.max or 0))
        values = ", ".join(f"{name} {format_time(value)}" for name, value in named)
        yield f"late against the schedule: {values}"
    if report.mode:
        yield f"handed over by {report.generator}, {report.mode} mode"


def _warnings(report: GeneratorRecord) -> Iterator[str]:
    """What the reader should know about traffic that was not sent as it was asked for."""
    if report.failed:
        yield f"{report.interface} did not take {format_count(report.failed, 'packet')}"
    wanted, achieved = report.scheduled_rate or 0, report.achieved_rate or 0
    if achieved < 0.99 * wanted:
        yield (
            f"{format_rate(wanted)} is more than this machine can send here: it reached "
            f"{format_rate(achieved)}; lower --rate, give it a CPU of its own or several (--cpu), "
            "or try --generator af_xdp"
        )
    if without := report.without_id:
        yield (
            f"no id in {format_count(without, 'packet')}: taps count them as others (--stamp-ids "
            "writes ids where there is UDP)"
        )
    if report.bunched:
        yield f"{format_count(report.bunched, 'overdue packet')} left together with others"

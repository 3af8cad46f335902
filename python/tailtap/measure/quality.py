"""The quality of a measurement: warnings that are stored with the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tailtap.analysis.evaluation.flows import heavy_loss
from tailtap.base.units import format_count, format_rate, format_time, ranges
from tailtap.experiment.model import Experiment
from tailtap.lab.generators.model import Traffic
from tailtap.lab.topology.graph import EGRESS, INGRESS
from tailtap.measure.roles import Brought, OfFlow
from tailtap.records.datapath import Generator, GeneratorRecord, Tapped
from tailtap.records.evaluation import Counts, LossPattern, Side
from tailtap.records.record import Notice, Open
from tailtap.records.run import Found

SLIP_P = 0.99
"""One packet in a hundred leaving later than ``traffic.slip_limit``: that was not the load."""
RATE_SHARE = 0.99
"""Less of the asked rate than this was another experiment."""
FOLLOWING = frozenset(("generator-slip", "stamps-lost", "tap-drops", "backlog-drops"))
"""Warnings that say once more, each in its place, that a generator did not reach its rate."""
EXTERNAL_SHARE = 0.1
"""How far the rate of another generator may be from the asked one, either way."""


@dataclass(frozen=True)
class Sent:
    """What generator and taps of one flow said in the end."""

    generator: Open[GeneratorRecord]
    stamped: OfFlow
    cpus: str | None = None
    """The CPUs that the taps' process might run on."""

    @property
    def taps(self) -> dict[str, Tapped]:
        """What each tap counted."""
        return {name: tap.known for name, tap in self.stamped.taps.items()}


@dataclass(frozen=True)
class Measured:
    """What one run left behind besides its stamps."""

    sent: Mapping[str, Sent]
    """By the names of the experiment's flows, in their order."""
    found: Found
    warnings: Sequence[Notice] = ()
    """What platform and instruments say against measurements in it."""
    brought: Mapping[str, Brought] = field(default_factory=dict)
    """By instrument, which `facts` and `files` are its."""
    own_kernel: bool = False
    """Whether the DuT has a kernel of its own, so that `softnet` does not show its work."""


def warnings_of(experiment: Experiment, measured: Measured, flow: str) -> list[Notice]:
    """The warnings about one flow of a measurement."""
    sent, traffic = measured.sent[flow], experiment.traffic_of(flow)
    found = [
        *measured.warnings,
        *_setup(experiment, measured),
        *_generator(sent.generator.known, traffic.slip_limit),
        *_counted(traffic, sent),
        *sent.stamped.warnings,
        *_elsewhere(experiment, measured),
    ]
    if not too_slow(sent.generator.known):
        return found
    return [
        _unreached(sent, measured, traffic),
        *(one for one in found if one.code not in FOLLOWING),
    ]


def external_rate(traffic: Traffic, ingress: Side, requests: int | None = None) -> list[Notice]:
    """Whether the generator of others sent what was asked, by the evaluation's `ingress` input.

    What it says of itself could not be compared, so the tap counts for it. Of clients it is
    `requests` that count, if a rate was asked for: they may ask as fast as they are answered.
    """
    asked = requests is None or "rate" in traffic.model_fields_set
    if traffic.external is None or not asked:
        return []
    packets = ingress.packets if requests is None else requests
    seconds = (ingress.last_ns - ingress.first_ns) / 1e9
    rate = (packets - 1) / seconds if seconds > 0 else 0.0
    if abs(rate - traffic.rate) <= EXTERNAL_SHARE * traffic.rate:
        return []
    what = "packets with an id" if requests is None else "requests"
    return [
        Notice(
            "generator-rate",
            f"the ingress tap saw {packets} {what} at {format_rate(rate)} where "
            f"traffic.rate is {format_rate(traffic.rate)}: the run is invalid; change "
            "traffic.external.command",
        )
    ]


def lost_heavily(
    experiment: Experiment,
    sent: Sent,
    counts: Counts,
    patterns: Sequence[LossPattern] | None,
    softnet: Mapping[str, Mapping[str, int]],
    lost_around_events: int = 0,
) -> list[Notice]:
    """Whether too much was lost, by the `counts` of the evaluation, and what that has in common.

    Stamps that the taps at both ends had no room for make packets seem lost; so many are left out,
    and those that were lost around events.
    """
    unknown = sum(sent.taps[side].lost for side in (INGRESS, EGRESS) if side in sent.taps)
    unknown += lost_around_events
    found = heavy_loss(
        counts.lost - unknown, counts.matched + counts.lost, patterns, generated=True,
        has_dut=experiment.traits.has_dut,
        dropped=_dropped(sent, softnet),
    )  # fmt: skip
    return [] if found is None else [found]


def _setup(experiment: Experiment, measured: Measured) -> Iterator[Notice]:
    shared = {*experiment.dut.cpus, *_receiving(measured)} & set(experiment.senders)
    if experiment.traits.has_dut and shared:
        yield Notice(
            "shared-cpu",
            f"generator and DuT share CPU {ranges(shared)}: the latency includes the generator's "
            "work; give them different CPUs with traffic.cpu, dut.cpus and dut.irq",
        )


def too_slow(generator: Generator) -> bool:
    """Whether a generator did not reach the rate of its schedule."""
    rate, achieved = generator.scheduled_rate, generator.achieved_rate
    return rate is not None and (achieved or 0) < RATE_SHARE * rate


def shortfall(generator: Generator) -> str:
    """How far a generator came that did not reach its rate, a clause."""
    both = (generator.achieved_rate, generator.scheduled_rate)
    reached, wanted = (round(rate or 0) for rate in both)
    return f"the generator reached {format_rate(reached)} of {format_rate(wanted)}"


def slipped(generator: Generator, slip_limit: int) -> str | None:
    """How late packets left that were to be on time, a clause; None when they were."""
    late = _late(generator)
    if late is None or late <= slip_limit:
        return None
    return (
        f"the generator sent 1 % of the packets more than {format_time(late)} late "
        f"(traffic.slip_limit: {format_time(slip_limit)})"
    )


def _late(generator: Generator) -> int | None:
    """After how many ns the last 1 % of the packets left; None when nothing was sent."""
    return None if generator.slip_ns is None else generator.slip_ns.at(SLIP_P)


def _unreached(sent: Sent, measured: Measured, traffic: Traffic) -> Notice:
    """The one warning of a generator that did not reach its rate, and what followed from that."""
    generator = sent.generator.known
    reached = format_rate(generator.achieved_rate or 0)
    text = shortfall(generator)
    if generator.interrupted:
        text += (
            f" and was ended long after its time, with {generator.sent:,} of "
            f"{traffic.packets:,} packets sent"
        )
    text += (
        f": the run is invalid; set traffic.rate below {reached}, or give the generator its own CPU"
    )
    followed = list(_followed(sent, measured))
    return Notice("generator-rate", text + (f"; {', '.join(followed)}" if followed else ""))


def _followed(sent: Sent, measured: Measured) -> Iterator[str]:
    """What a generator without a pause does to the rest of the measurement."""
    late = _late(sent.generator.known)
    if late is not None:
        yield f"it sent 1 % of the packets more than {format_time(late)} late"
    if lost := sum(tap.lost for tap in sent.taps.values()):
        yield f"the taps had no room for {format_count(lost, 'stamp')}"
    if dropped := _dropped(sent, measured.found.softnet):
        packets = format_count(dropped, "packet")
        yield f"the kernel dropped {packets} in full queues (net.core.netdev_max_backlog)"


def _dropped(sent: Sent, softnet: Mapping[str, Mapping[str, int]]) -> int:
    """Packets that the kernel dropped in full queues, before taps and before CPUs got them."""
    before_taps = sum(tap.dropped or 0 for tap in sent.taps.values())
    return before_taps + sum(row.get("dropped", 0) for row in softnet.values())


def _generator(generator: Generator, slip_limit: int) -> Iterator[Notice]:
    if generator.failed:
        yield Notice(
            "failed-sends",
            f"the generator could not send {format_count(generator.failed, 'packet')}: the "
            "ingress capture lacks them",
        )
    if without := generator.without_id:
        yield Notice(
            "without-id",
            f"the generator sent {without:,} of {format_count(generator.sent or 0, 'packet')} "
            "without an id, being no UDP: such packets load the DuT and are not measured",
        )
    slip = slipped(generator, slip_limit)
    if slip is not None:
        yield Notice(
            "generator-slip",
            f"{slip}: the run is invalid; lower traffic.rate, or give the generator its own CPU",
        )


def _counted(traffic: Traffic, sent: Sent) -> Iterator[Notice]:
    """Whether a generator of others counts as many packets as came to the taps."""
    if traffic.external is None or traffic.external.sent is None:
        return
    said, tap = sent.generator.known.sent, sent.taps[INGRESS]
    if said is None:
        yield Notice(
            "generator-count",
            f"the generator printed nothing that fits {traffic.external.sent!r}: change "
            "traffic.external.sent, or leave it out",
        )
    elif said != tap.seen:
        yield Notice(
            "generator-count",
            f"the generator says that it sent {said:,} packets, and the ingress tap saw "
            f"{tap.seen:,} with an id: the others were lost before the device, have no "
            "id, or were not counted by it",
        )


def _elsewhere(experiment: Experiment, measured: Measured) -> Iterator[Notice]:
    """Whether the DuT's packets were received on other CPUs than they should be."""
    dut = experiment.dut
    if not experiment.traits.has_dut or measured.own_kernel:
        return
    if experiment.cables():
        yield from _interrupted_elsewhere(dut.cpus, measured)
        return
    softnet = measured.found.softnet
    arrived = sum(sent.taps["ingress"].seen for sent in measured.sent.values())
    cpus = sorted(_receiving(measured) or dut.cpus)
    processed = sum(softnet.get(str(cpu), {}).get("processed", 0) for cpu in cpus)
    if processed < arrived:
        yield Notice(
            "work-elsewhere",
            f"CPUs {cpus} received {processed} of {arrived} packets: the rest of the DuT's work "
            "ran on other CPUs",
        )


def _interrupted_elsewhere(cpus: Sequence[int], measured: Measured) -> Iterator[Notice]:
    """The same of network cards: a driver, or a program in it, may take packets before the kernel
    counts them. An interrupt that was sent somewhere is the instrument's to judge.
    """
    left = [row for row in measured.found.card_interrupts.values() if not row.cpus]
    handling = {int(cpu) for row in left for cpu in row.handled}
    if not handling <= set(cpus):
        yield Notice(
            "work-elsewhere",
            f"the cards interrupted CPUs {sorted(handling)}, where the kernel let them, and "
            f"dut.cpus are {sorted(cpus)}: the rest of the DuT's work ran on other CPUs",
        )


def _receiving(measured: Measured) -> set[int]:
    """Where the DuT's packets are received; empty where that is left to the kernel."""
    placement = measured.found.placement
    ports = () if placement is None else placement.ports.values()
    return {cpu for port in ports for cpu in port.cpus or ()}

"""What makes one doubt a measurement: warnings that are stored with the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailtap import platform
from tailtap.capture.inline import stamps_after_queueing
from tailtap.evaluation.overload import overload
from tailtap.experiment.counters import Counters
from tailtap.experiment.model import Experiment
from tailtap.units import format_rate, format_time

SLIP_P = 0.99
"""One packet in a hundred leaving later than ``traffic.slip_limit``: that was not the load."""
RATE_SHARE = 0.99
"""Less of the asked rate than this was another experiment."""
INVALIDATING = ("generator-slip", "generator-rate")
"""Warnings that make a run invalid: what was sent is not what the experiment asks for."""
EXTERNAL_SHARE = 0.1
"""How far the rate of another generator may be from the asked one, either way."""
STEAL_SHARE = 0.01
"""A hypervisor that took more of a measuring CPU than this had a hand in the tail."""


Doubt = dict[str, str]
"""A warning: its `code` for programs, its `message` for people."""


@dataclass(frozen=True)
class Sent:
    """What generator and taps of one direction counted."""

    generator: Mapping[str, Any]
    taps: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Measured:
    """What one run left behind besides its stamps."""

    generator: Mapping[str, Any]
    taps: Mapping[str, Mapping[str, Any]]
    counters: Counters
    """Counted between the start of the generator and the end of the run."""
    elapsed_ns: int
    forwarder: Mapping[str, Any]
    platform: Mapping[str, Any]
    counts: Mapping[str, Any]
    """What the DuT's processors counted of themselves, by the window of time; see `host.perf`."""
    reverse: Sent | None = None
    """The other direction of bidirectional traffic."""
    forwarder_memory: int | None = None
    """Bytes of memory that the forwarder's processes have; None where it has none."""
    own_kernel: bool = False
    """Whether the DuT has a kernel of its own, so that `counters` do not show its work."""
    doubts: Sequence[Mapping[str, str]] = ()
    """What the platform says against measurements of it."""


def warnings_of(experiment: Experiment, measured: Measured) -> list[Doubt]:
    """Every reason to doubt the run, as ``{"code", "message"}``."""
    limit = experiment.traffic.slip_limit
    found = [dict(doubt) for doubt in measured.doubts]
    found += [*_setup(experiment), *_generator(measured, limit), *_taps(measured)]
    found += _deferral(experiment)
    return [*found, *_cpus(experiment, measured), *_counts(measured)]


def reverse_warnings(experiment: Experiment, back: Sent, measured: Measured) -> list[Doubt]:
    """Every reason to doubt the other direction of bidirectional traffic."""
    limit = experiment.traffic.slip_limit
    there = replace(measured, generator=back.generator, taps=back.taps)
    return [*_setup(experiment), *_generator(there, limit), *_taps(there), *_deferral(experiment),
            *_cpus(experiment, measured)]  # fmt: skip


def external_rate(experiment: Experiment, ingress: Mapping[str, Any]) -> list[Doubt]:
    """Whether the generator of others sent what was asked, by the evaluation's `ingress` input.

    What it says of itself could not be compared, so the tap counts for it.
    """
    traffic = experiment.traffic
    if traffic.external is None:
        return []
    packets, seconds = ingress["packets"], (ingress["last_ns"] - ingress["first_ns"]) / 1e9
    rate = (packets - 1) / seconds if seconds > 0 else 0.0
    if abs(rate - traffic.rate) <= EXTERNAL_SHARE * traffic.rate:
        return []
    return [
        _warning(
            "generator-rate",
            f"the ingress tap saw {packets} packets with an id at {format_rate(round(rate))} where "
            f"traffic.rate is {format_rate(traffic.rate)}, so the run is invalid: change "
            "traffic.external.command",
        )
    ]


def overloaded(experiment: Experiment, sent: Sent, counts: Mapping[str, int]) -> list[Doubt]:
    """Whether the device could not keep up, by the `counts` of the evaluation.

    Stamps that the taps had no room for make packets seem lost; so many are left out.
    """
    unknown = sum(tap["lost"] for tap in sent.taps.values())
    has_dut = platform.PLATFORMS[experiment.dut.platform].has_dut
    found = overload(counts["lost"] - unknown, counts["matched"] + counts["lost"], has_dut=has_dut)
    return [] if found is None else [_warning(found.code, found.message)]


def is_valid(warnings: Iterable[Doubt]) -> bool:
    """Whether the generator sent what was asked of it."""
    return not any(warning["code"] in INVALIDATING for warning in warnings)


def _warning(code: str, message: str) -> Doubt:
    return {"code": code, "message": message}


def _setup(experiment: Experiment) -> Iterator[Doubt]:
    dut, traffic = experiment.dut, experiment.traffic
    if platform.PLATFORMS[dut.platform].has_dut and traffic.cpu in dut.cpus:
        yield _warning(
            "shared-cpu",
            f"generator and DuT share CPU {traffic.cpu}: the latency includes the generator's "
            "work; give them different CPUs with traffic.cpu and dut.cpus",
        )
    if traffic.bidirectional and traffic.reversed().cpu in (traffic.cpu, *dut.cpus):
        yield _warning(
            "shared-cpu",
            f"the generator of the other direction shares CPU {traffic.reversed().cpu} with the "
            "first one or with the DuT, so that they delay each other; give it another one with "
            "traffic.reverse_cpu",
        )


def _generator(measured: Measured, slip_limit: int) -> Iterator[Doubt]:
    generator = measured.generator
    if generator["failed"]:
        yield _warning(
            "failed-sends",
            f"{generator['failed']} packets could not be sent: they are not in the ingress capture",
        )
    if generator.get("with_id") is not None and generator["with_id"] < generator["sent"]:
        without = generator["sent"] - generator["with_id"]
        yield _warning(
            "without-id",
            f"{without} of the {generator['sent']} packets sent have no id, as they are no UDP: "
            "they load the DuT and are not measured",
        )
    rate, achieved = generator["scheduled_rate"], generator["achieved_rate"]
    if rate is not None and achieved < RATE_SHARE * rate:
        yield _warning(
            "generator-rate",
            f"the generator reached {format_rate(round(achieved))} of {format_rate(round(rate))}, "
            "so the run is invalid: lower traffic.rate or give it a CPU of its own",
        )
    slip = generator["slip_ns"]  # None when nothing was sent
    for row in slip["percentiles"] if slip else ():
        if row["p"] == SLIP_P and row["value"] > slip_limit:
            yield _warning(
                "generator-slip",
                f"1 % of the packets left more than {format_time(row['value'])} after their time "
                f"(traffic.slip_limit {format_time(slip_limit)}), so the run is invalid: the load "
                "was not the one that was asked for",
            )


def _taps(measured: Measured) -> Iterator[Doubt]:
    for link, counts in measured.taps.items():
        if counts["lost"]:
            yield _warning(
                "stamps-lost",
                f"the {link} tap had no room for {counts['lost']} of {counts['seen']} stamps: "
                "these packets count as lost or unmatched though they may have passed",
            )
        if counts.get("dropped"):
            yield _warning(
                "tap-drops",
                f"the kernel dropped {counts['dropped']} packets between the DuT and the {link} "
                "tap, warm-up included, as a queue of the DuT's CPUs was full "
                "(net.core.netdev_max_backlog): they count as lost though the DuT sent them",
            )
        if counts.get("late"):
            yield _deferred(
                f"the kernel did not say when {counts['late']} packets were handed over to the "
                f"{link} tap: they were stamped on receipt, later by an unknown time"
            )
        for message in counts.get("warnings", ()):
            yield _warning("tap", f"the {link} tap says: {message}")


def _deferral(experiment: Experiment) -> Iterator[Doubt]:
    """Whether egress stamps are later than the moment at which packets leave the DuT."""
    if experiment.cables() is not None:
        yield _deferred(
            "packets are stamped when the interrupt of the card behind the DuT is served: the "
            "cable, the card's interrupt moderation (`ethtool -c`) and the interrupt count as the "
            "DuT's latency, which no clock here could tell apart"
        )
    if stamps_after_queueing():
        yield _deferred(
            "packets are stamped when they are received, and not when the DuT hands them over: "
            "set net.core.netdev_tstamp_prequeue to 1"
        )


def _deferred(message: str) -> Doubt:
    return _warning("egress-deferred", message)


def _counts(measured: Measured) -> Iterator[Doubt]:
    events = measured.counts.get("run", {}).get("events", {})
    missing = [name for name, count in events.items() if count is None]
    if missing:
        yield _warning(
            "counters-missing",
            f"this machine does not count {', '.join(missing)} (a virtual machine often has no "
            "hardware counters): they are stored as missing",
        )


def _cpus(experiment: Experiment, measured: Measured) -> Iterator[Doubt]:
    dut, traffic, counters = experiment.dut, experiment.traffic, measured.counters
    has_dut = platform.PLATFORMS[dut.platform].has_dut
    generators = {traffic.cpu, *([traffic.reversed().cpu] if traffic.bidirectional else [])}
    for cpu in sorted({*generators, *(dut.cpus if has_dut else ())}):
        share = counters.steal_ns.get(cpu, 0) / max(1, measured.elapsed_ns)
        if share > STEAL_SHARE:
            yield _warning(
                "steal",
                f"the hypervisor took {100 * share:.1f} % of CPU {cpu}'s time "
                f"(limit {100 * STEAL_SHARE:g} %): late packets may be its work",
            )
    for cpu, counts in counters.softnet.items():
        if counts.get("dropped"):
            yield _warning(
                "backlog-drops",
                f"the kernel dropped {counts['dropped']} packets before CPU {cpu} could receive "
                "them (net.core.netdev_max_backlog)",
            )
    if has_dut and not measured.own_kernel:
        taps = [measured.taps] + ([measured.reverse.taps] if measured.reverse else [])
        arrived = sum(tap["ingress"]["seen"] for tap in taps)
        processed = sum(counters.softnet.get(cpu, {}).get("processed", 0) for cpu in dut.cpus)
        if processed < arrived:
            yield _warning(
                "work-elsewhere",
                f"the DuT's CPUs {list(dut.cpus)} received {processed} of {arrived} packets: "
                "the rest of its work ran on other CPUs",
            )

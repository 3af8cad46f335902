"""`dut.line`, `dut.taps`: what keeps an experiment from a line of several nodes, and from taps
between them, found out on reading it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailtap.document import Misfit
from tailtap.forwarder import FORWARDERS
from tailtap.platform import PLATFORMS, Platform
from tailtap.registry import Registry, Row
from tailtap.topology.placement import CORE

if TYPE_CHECKING:
    from tailtap.experiment.model import Dut
    from tailtap.traffic.model import Traffic

LONGEST_LINE = 64
"""Nodes, as in hardware-supported-containers."""


HOPS = "hops"
"""The value of `dut.taps` by which packets are stamped between the nodes."""


def check_hops(dut: Dut) -> None:
    """Raises `Misfit` unless packets can be stamped between nodes, if that is asked for."""
    if dut.taps != HOPS:
        return
    leave = "leave dut.taps out, or the combination with exclude"
    if not PLATFORMS[dut.platform].traits.has_dut:
        reason = f"platform {dut.platform} has no nodes, so there are no hops: {leave}"
        beside = "platform"
    elif dut.given("ports") is not None:
        reason = f"hops are between the nodes of a line, and network cards form none: {leave}"
        beside = "ports"
    elif dut.line == 1:
        reason = f"a single device is one hop: make dut.line 2 or more; else {leave}"
        beside = "line"
    elif dut.placement.threads:
        reason = (
            "a thread that polls a port receives packets long after they were handed over, and "
            f"nothing tells when that was: choose napi: softirq; else {leave}"
        )
        beside = "napi"
    else:
        return
    raise Misfit(("dut", "taps"), reason, [("dut", beside)])


def check_line(dut: Dut, traffic: Traffic) -> None:
    """Raises `Misfit` unless packets can pass all nodes of the line."""
    platform, forwarder = PLATFORMS[dut.platform], FORWARDERS[dut.forwarder]
    if not platform.traits.has_dut:
        return
    routers = dut.line if forwarder.routes else 0
    if traffic.replay is None and traffic.external is None and traffic.ttl <= routers:
        raise Misfit(
            ("traffic", "ttl"),
            f"packets with a time to live of {traffic.ttl} end before the end of a line of "
            f"{routers} routers: it must be {routers + 1} or more",
            [("dut", "line"), ("dut", "forwarder")],
        )
    if dut.line == 1:
        return
    if not _joins(platform):
        raise Misfit(
            ("dut", "line"),
            f"platform {dut.platform} cannot form a line: take {_named(PLATFORMS, _joins)}, or "
            "leave dut.line out",
            [("dut", "platform")],
        )
    if not forwarder.in_line:
        raise Misfit(
            ("dut", "line"),
            f"forwarder {dut.forwarder} cannot form a line, as it needs CPUs of its own at each "
            f"node: take {_named(FORWARDERS, lambda row: row.in_line)}, or leave dut.line out",
            [("dut", "forwarder")],
        )
    if dut.given("ports") is not None:
        raise Misfit(
            ("dut", "ports"),
            "a line is made of virtual links: leave the network cards out, or dut.line",
            [("dut", "line")],
        )
    if dut.placement.irq == CORE and dut.line > len(dut.cpus):
        raise Misfit(
            ("dut", "irq"),
            f"core gives each node a core of its own, and a line of {dut.line} has "
            f"{len(dut.cpus)} of dut.cpus: name {dut.line}, choose node, none or a list of CPUs, "
            "or leave the combination out with exclude",
            [("dut", "line"), ("dut", "cpus")],
        )


def _joins(platform: Platform) -> bool:
    """Whether links can join two nodes of a platform."""
    return platform.ports_in in ("namespace", "container")


def _named(kinds: Registry[Row], able: Callable[[Row], bool]) -> str:
    return " or ".join(name for name, row in kinds.working() if able(row))

"""What an experiment asks a trace for, as far as that is known before anything is made."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tailtap.experiment.model import Experiment
from tailtap.host.cpu.cpus import Numa
from tailtap.lab import forwarders as forwarder
from tailtap.lab.instruments.tracer import spare_cpu
from tailtap.lab.topology.compiler import placed
from tailtap.lab.topology.graph import Graph

_BY_DRIVERS = ("xdp",)
"""Forwarders of the kernel whose packets are not received, as drivers pass them on."""


def packets_of(experiment: Experiment) -> int:
    """How many packets are sent, those of all flows."""
    return sum(experiment.traffic_of(flow).packets for flow in experiment.flows)


def is_steered(experiment: Experiment, graph: Graph, numa: Numa) -> bool:
    """Whether packets come to the device's CPUs by function calls of other CPUs alone.

    That is receive packet steering: the kernel forwards on one node without cards, whose softirqs
    are not threads, and nobody sends from its CPUs.
    """
    nodes = [node for node in graph.nodes if node.task == "dut"]
    members = experiment.dut.members
    if len(nodes) != 1 or len(members) != 1 or experiment.traits.own_kernel:
        return False
    [node], kind = nodes, members[0].dut.forwarder
    if kind in _BY_DRIVERS or not forwarder.FORWARDERS[kind].in_kernel or node.placement.threads:
        return False
    where = placed(graph, node.name, numa)
    steered = bool(where.receiving) and all(where.receiving.values())
    return steered and not where.cards and not set(experiment.senders) & set(where.cpus)


def spare_of(experiment: Experiment, available: Sequence[int] | None = None) -> int | None:
    """A CPU on which nobody sends, serves, or loads what is measured."""
    on = os.sched_getaffinity(0) if available is None else available
    neighbours = {cpu for one in experiment.neighbours for cpu in one.options.cpus}
    return spare_cpu(on, {*experiment.senders, *experiment.dut.cpus, *neighbours})

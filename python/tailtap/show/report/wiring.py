"""How a run was wired and where its packets were received, in words."""

from __future__ import annotations

from typing import Any

from tailtap.analysis.runs.run import Run
from tailtap.base.units import format_share, ranges
from tailtap.records.live import Observed
from tailtap.records.run import AskedPlacement, Placement, RunRecord


def topology(run: Run) -> dict[str, Any]:
    """Nodes, links and flows in words; nothing of a bare evaluation."""
    record = run.record
    if record is None:
        return {}
    links, flows = record.links, record.flows
    told: dict[str, str] = {}
    for node in record.nodes:
        cpus = f", CPUs {', '.join(map(str, node.cpus))}" if node.cpus else ""
        told[f"node {node.name}"] = f"{node.task}, {node.kind}{cpus}{_asked(node.placement)}"
    if record.observed is not None:
        told |= _observed(record.observed)
    told |= _placement(record)
    own = [flow for flow in flows if flow.name == run.variables.get("flow")]
    if own:  # what other flows pass belongs to their runs
        flows, passed = own, {port for flow in own for port in flow.path}
        others = [link for link in links if not passed.issuperset(link.ends)]
        links = [link for link in links if link not in others]
        told["links of other flows"] = str(len(others))
    if links:
        told["links"] = ", ".join(" – ".join(link.ends) for link in links)
    for flow in flows:
        told[f"flow {flow.name}"] = " → ".join(
            f"{port} (tap)" if port in flow.stamped else port for port in flow.path
        )
    return {"wiring": told} if told else {}


def _observed(observed: Observed) -> dict[str, str]:
    """Where a device was stamped that was there before, who served, and what observing took."""
    told: dict[str, str] = {}
    for place, point in zip(("before", "behind"), observed.points, strict=False):
        told[f"{place} the device"] = f"{point.target}: {point.kind}, in {point.namespace}"
        told[f"stamped {place} the device"] = point.stamped
    for number, server in enumerate(observed.servers, 1):
        names = ", ".join(f"{name} ({pid})" for pid, name in server.threads.items())
        share = "" if server.share is None else f", {format_share(server.share)} of the packets"
        where = f"CPUs {ranges(server.cpus)}"
        told[f"server {number}"] = f"{server.by} {names} on {where}{share}".replace("  ", " ")
    for name, sentences in (("found", observed.found), ("not known", observed.unknown)):
        if sentences:
            told[name] = "; ".join(sentences)
    if (cost := observed.cost) is not None:
        told["observing took"] = (
            f"of the serving cores' time, {format_share(cost.taps)} for the taps and "
            f"{format_share(cost.trace)} for the trace"
        )
    return told


def _asked(asked: AskedPlacement | None) -> str:
    """How the packets of a node were to be received."""
    if asked is None:
        return ""
    irq = asked.irq if isinstance(asked.irq, str) else f"CPUs {', '.join(map(str, asked.irq))}"
    queues = "" if asked.queues is None else f", {asked.queues} queues"
    return f", irq {irq}, by {asked.napi}{queues}"


def _placement(record: RunRecord) -> dict[str, str]:
    """Where the packets of each port were received, and what crossed NUMA nodes."""
    placement = record.placement or Placement()
    told: dict[str, str] = {}
    for name, port in placement.ports.items():
        words = [] if port.card is None else [f"card {port.card}"]
        if port.numa_node is not None:
            words.append(f"NUMA node {port.numa_node}")
        if port.cpus is not None:
            cpus = ", ".join(map(str, port.cpus))
            words.append(
                f"received on CPUs {cpus}" if cpus else "received where the kernel puts it"
            )
        told[f"port {name}"] = ", ".join(words)
    for number, sentence in enumerate(placement.crossings, 1):
        told[f"NUMA crossing {number}"] = sentence
    for interrupt, fact in record.card_interrupts.items():
        handled = ", ".join(f"CPU {cpu}: {count}" for cpu, count in fact.handled.items())
        told[f"interrupt {interrupt} of {fact.port}"] = handled or "never came"
    return told

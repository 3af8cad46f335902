"""How a run was wired and where its packets were received, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailtap.results.run import Run


def topology(run: Run) -> dict[str, Any]:
    """Nodes, links and flows in words; nothing of runs before these were stored."""
    nodes, links, flows = (run.record.get(key) or () for key in ("nodes", "links", "flows"))
    told: dict[str, str] = {}
    for node in nodes:
        cpus = f", CPUs {', '.join(map(str, node['cpus']))}" if node["cpus"] else ""
        told[f"node {node['name']}"] = f"{node['task']}, {node['kind']}{cpus}{_asked(node)}"
    told |= _placement(run)
    own = [flow for flow in flows if flow["name"] == run.variables.get("flow")]
    if own:  # what other flows pass belongs to their runs
        flows, passed = own, {port for flow in own for port in flow["path"]}
        others = [link for link in links if not passed.issuperset(link["ends"])]
        links = [link for link in links if link not in others]
        told["links of other flows"] = str(len(others))
    if links:
        told["links"] = ", ".join(" – ".join(link["ends"]) for link in links)
    for flow in flows:
        told[f"flow {flow['name']}"] = " → ".join(
            f"{port} (tap)" if port in flow["stamped"] else port for port in flow["path"]
        )
    return {"wiring": told} if told else {}


def _asked(node: Mapping[str, Any]) -> str:
    """How the packets of a node were to be received."""
    asked = node.get("placement")
    if not asked:
        return ""
    irq = (
        asked["irq"]
        if isinstance(asked["irq"], str)
        else f"CPUs {', '.join(map(str, asked['irq']))}"
    )
    queues = f", {asked['queues']} queues" if "queues" in asked else ""
    return f", irq {irq}, by {asked['napi']}{queues}"


def _placement(run: Run) -> dict[str, str]:
    """Where the packets of each port were received, and what crossed NUMA nodes."""
    placement = run.record.get("placement") or {}
    told: dict[str, str] = {}
    for port, facts in placement.get("ports", {}).items():
        words = [f"card {facts['card']}"] if "card" in facts else []
        if facts.get("numa_node") is not None:
            words.append(f"NUMA node {facts['numa_node']}")
        if "cpus" in facts:
            cpus = ", ".join(map(str, facts["cpus"]))
            words.append(
                f"received on CPUs {cpus}" if cpus else "received where the kernel puts it"
            )
        told[f"port {port}"] = ", ".join(words)
    for number, sentence in enumerate(placement.get("crossings", ()), 1):
        told[f"NUMA crossing {number}"] = sentence
    for number, fact in (run.record.get("card_interrupts") or {}).items():
        handled = ", ".join(f"CPU {cpu}: {count}" for cpu, count in fact["handled"].items())
        told[f"interrupt {number} of {fact['port']}"] = handled or "never came"
    return told

"""What a configuration consists of, as far as is known: platform, kernel, tuning, interrupts, NIC,
machine.

Own runs have it in `run.json`, published runs in the names of their folders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from tailtap.analysis.runs.run import Run

#: Parameters of the traffic that are no part of the load: generator, duration, limits.
NO_LOAD = frozenset(
    ("generator", "options", "external", "cpu", "reverse_cpu", "slip_limit", "duration", "warm_up",
     "warm_up_packets", "pause")
)  # fmt: skip
#: Variables that tell runs apart that were measured at the same time.
TOGETHER = ("direction", "flow")
#: Variables that describe the load of a configuration, not the configuration.
ASKED = ("traffic.", "evaluation.", *TOGETHER)
#: The last part of a variable's path, by the aspect that it decides.
_DECIDES = {"platform": "platform", "forwarder": "forwarder", "kernel": "kernel",
            "boot": "tuning", "irq": "irq", "nic": "nic", "driver": "nic", "interface": "nic",
            "interfaces": "nic", "ports": "nic"}  # fmt: skip
#: Variables of the other ends of the DuT's cables, which change with the DuT's cards.
BESIDE = "tap."
#: The name of the DuT's first port in the platform's facts about cards.
INGRESS = "tt-in"
_PUBLISHED_PLATFORMS = {"bare-metal": "bare-metal", "vm": "vm", "container": "container"}
_TUNED = re.compile(r"(vanilla|rt|nohz)[-/](non-optimized|optimized)(?:/|$)")
_SCENARIO = re.compile(r"scenario(\d)(-l3)?(?:/|$)")
_CGROUP = re.compile(r"(?:^|/)v([12])(?:/|$)")


def load_of(run: Run) -> dict[str, Any]:
    """The load of the device, as far as it is known; runs are compared where it is the same."""
    traffic = run.parameters.traffic
    whole = traffic.whole if traffic else {}
    asked = {name: value for name, value in whole.items() if name not in NO_LOAD}
    if run.offered_rate is not None:
        asked.setdefault("rate", run.offered_rate)
    # Each flow is a run; which one it is is no property of the device.
    for name in ("evaluation.trim", *TOGETHER):
        if value := run.variables.get(name):
            asked[name.removeprefix("evaluation.")] = value
    return asked


def device_variables(run: Run) -> dict[str, str]:
    """The varied values that make the configuration."""
    return {k: v for k, v in run.variables.items() if not k.startswith(ASKED)}


def aspects_of(run: Run) -> dict[str, str]:
    """What is known of the configuration, by aspect; what is not known is left out."""
    return _published(run) if run.origin else _own(run)


def _own(run: Run) -> dict[str, str]:
    dut, host, facts = run.dut, run.environment, run.platform_facts
    known: dict[str, Any] = {"platform": dut.platform, "forwarder": dut.forwarder}
    kernel = [host.kernel.release, host.kernel.preemption]
    if run.traits is not None and run.traits.own_kernel:
        guest = facts.kernel
        kernel = [guest.release, guest.kind] if guest else []
    known["kernel"] = dut.kernel or " ".join(part for part in kernel if part)
    known["tuning"] = dut.boot
    observed = run.record is not None and run.record.observed is not None
    if not observed and (run.traits is None or run.traits.has_dut):
        known["irq"] = dut.irq
    known["machine"] = ", ".join(part for part in (host.hostname, host.cpu.model) if part)
    card = facts.cards.get(INGRESS)
    known["nic"] = card.driver if card else None
    for name, value in device_variables(run).items():
        if name.startswith(BESIDE):
            continue
        known[_DECIDES.get(name.rpartition(".")[2], name)] = value
    return {name: str(value) for name, value in known.items() if value}


def _published(run: Run) -> dict[str, str]:
    assert run.origin is not None  # asked before
    place = run.origin.place
    parts = PurePath(place).parts
    found = {"machine": f"that of {run.origin.tree}"}
    for part in parts:
        if part in _PUBLISHED_PLATFORMS:
            found |= {"platform": _PUBLISHED_PLATFORMS[part], "networking": "user space"}
        elif part == "kernel":
            found |= {"platform": "container", "networking": "kernel space"}
    if tuned := _TUNED.search(place):
        found |= {"kernel": tuned[1], "tuning": tuned[2]}
    if scenario := _SCENARIO.search(place):
        found["machine"] += f", scenario {scenario[1]}"
        if scenario[2]:
            found["forwarder"] = "l3"
    if cgroup := _CGROUP.search(place):
        found["cgroup"] = cgroup[1]
    return found | device_variables(run)


def differs_only_in(one: Mapping[str, str], other: Mapping[str, str], aspect: str) -> bool:
    """Whether two configurations are known to differ in this aspect and in nothing else."""
    return (
        aspect in one
        and aspect in other
        and one[aspect] != other[aspect]
        and {**one, aspect: ""} == {**other, aspect: ""}
    )

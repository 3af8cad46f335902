"""What a configuration is made of, as far as anybody says: platform, kernel, tuning, NIC, machine.

Runs of our own say it in `run.json`; of published runs the folders' names tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from tailtap.compare.reading import Sample
from tailtap.report.values import mapping

#: Parameters of the traffic that are no part of the load: who sends it, how long, how patient.
NO_LOAD = frozenset(
    ("generator", "external", "cpu", "reverse_cpu", "slip_limit", "duration", "warm_up",
     "warm_up_packets", "pause")
)  # fmt: skip
#: Variables that say what is asked of a configuration, not what it is.
ASKED = ("traffic.", "evaluation.", "direction")
#: The last part of a variable's path, by the aspect that it decides.
_DECIDES = {"platform": "platform", "forwarder": "forwarder", "kernel": "kernel",
            "boot": "tuning", "nic": "nic", "driver": "nic", "interface": "nic",
            "interfaces": "nic", "ports": "nic"}  # fmt: skip
#: Variables of the other ends of the DuT's cables, which change with the DuT's cards.
BESIDE = "tap."
#: What the DuT's first port is called where the platform tells of its cards.
INGRESS = "tt-in"
_PUBLISHED_PLATFORMS = {"bare-metal": "bare-metal", "vm": "vm", "container": "container"}
_TUNED = re.compile(r"(vanilla|rt|nohz)[-/](non-optimized|optimized)(?:/|$)")
_SCENARIO = re.compile(r"scenario(\d)(-l3)?(?:/|$)")
_CGROUP = re.compile(r"(?:^|/)v([12])(?:/|$)")


def load_of(sample: Sample) -> dict[str, Any]:
    """What was asked of the device, as far as it is known; runs are compared where this agrees."""
    asked = {
        name: value
        for name, value in mapping(sample.parameters, "traffic").items()
        if name not in NO_LOAD
    }
    if sample.rate is not None:
        asked.setdefault("rate", sample.rate)
    # Both directions of bidirectional traffic are runs; which it is, is no property of the device.
    for name in ("evaluation.trim", "direction"):
        if value := sample.variables.get(name):
            asked[name.removeprefix("evaluation.")] = value
    return asked


def device_variables(sample: Sample) -> dict[str, str]:
    """The varied values that make the configuration."""
    return {k: v for k, v in sample.variables.items() if not k.startswith(ASKED)}


def aspects_of(sample: Sample) -> dict[str, str]:
    """What is known of the configuration, by aspect; what is not known is left out."""
    return _published(sample) if sample.origin else _own(sample)


def _own(sample: Sample) -> dict[str, str]:
    dut = mapping(sample.parameters, "dut")
    known = {name: dut.get(name) for name in ("platform", "forwarder")}
    host = mapping(sample.environment, "kernel")
    kernel = [host.get("release"), host.get("preemption")]
    if dut.get("platform") == "vm":
        guest = mapping(mapping(sample.record, "platform"), "kernel")
        kernel = [guest.get("release"), guest.get("kind")]
    known["kernel"] = dut.get("kernel") or " ".join(str(part) for part in kernel if part)
    known["tuning"] = dut.get("boot")
    cpu = mapping(sample.environment, "cpu")
    machine = [sample.environment.get("hostname"), cpu.get("model")]
    known["machine"] = ", ".join(str(part) for part in machine if part)
    cards = mapping(mapping(sample.record, "platform"), "cards")
    known["nic"] = mapping(cards, INGRESS).get("driver")
    for name, value in device_variables(sample).items():
        if name.startswith(BESIDE):
            continue
        known[_DECIDES.get(name.rpartition(".")[2], name)] = value
    return {name: str(value) for name, value in known.items() if value}


def _published(sample: Sample) -> dict[str, str]:
    assert sample.origin is not None  # asked before
    place = sample.origin.place
    parts = PurePath(place).parts
    found = {"machine": f"that of {sample.origin.tree}"}
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
    return found | device_variables(sample)


def differs_only_in(one: Mapping[str, str], other: Mapping[str, str], aspect: str) -> bool:
    """Whether two configurations are known to differ in this aspect and in nothing else."""
    return (
        aspect in one
        and aspect in other
        and one[aspect] != other[aspect]
        and {**one, aspect: ""} == {**other, aspect: ""}
    )

"""Programs that poll the ports of a virtual machine themselves, by DPDK's driver of virtio devices,
and the switch of this machine that polls their other end (vhost-user).

Each case boots a machine: a minute where QEMU emulates the CPU (TCG).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forwarders import require
from labtools import own_machine, record, stamps, statuses, write_experiment

from tailtap.lab.platforms.vm import kernels

PACKETS = 400
BOOT_SECONDS = 600
EXPERIMENT = """\
name: polling
dut: {platform: vm, cpus: [1], memory: 1 GiB}
traffic: {rate: 200 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0, flows: {dport: 53-54}}
"""
DROPPING = "udp,tp_dst=54,actions=drop\npriority=1,in_port=1,actions=output:2\n"
OWN = (
    "dpdk-testpmd --lcores 0@{cpu},1@{cpu} -m 256 --no-huge --no-telemetry --no-shconf"
    " --allow {ingress} --allow {egress} -- --auto-start --no-flush-rx --total-num-mbufs=16384"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module", autouse=True)
def downloaded() -> None:
    """What guests boot with, got by this machine's own network."""
    kernels.shell()
    kernels.kernel(kernels.DEFAULT)


def run(folder: Path, *cases: dict[str, Any]) -> list[tuple[dict[str, Any], list[int], str]]:
    """The record of each case's run, the ids behind its DuT, and the forwarder's log."""
    out = folder / "out"
    text = EXPERIMENT + f"cases: {json.dumps(cases)}\n"
    with own_machine() as machine:
        running = machine.start("run", str(write_experiment(folder, text)), "--out", str(out))
        _, said = running.communicate(timeout=BOOT_SECONDS * len(cases))
        assert machine.namespaces() == []
    assert statuses(out) == ["done"] * len(cases), said
    return [
        (
            record(made),
            [row["id"] for row in stamps(made / "egress.stamps")],
            log.read_text() if (log := made / "forwarder.log").exists() else "",
        )
        for made in sorted((out / "runs").iterdir())
    ]


def polled(log: str) -> bool:
    """Whether DPDK's driver of virtio devices had both ports."""
    return log.count("Probe PCI driver: net_virtio") == 2


def test_programs_poll_virtio_ports_with_an_iommu_and_without(tmp_path: Path) -> None:
    for name in ("testpmd", "dpdk-l2fwd", "dpdk-l3fwd"):
        require(name)
    uio, vfio = {"driver": "uio_pci_generic"}, {"driver": "vfio-pci"}
    own = {"external": {"command": OWN, **vfio}}
    asked = [
        ({"testpmd": uio}, False), ({"dpdk-l2fwd": vfio}, True), ({"dpdk-l3fwd": uio}, False),
        (own, True),
    ]  # fmt: skip
    cases = [{"dut.forwarder": forwarder, "dut.iommu": iommu} for forwarder, iommu in asked]
    for (made, ids, log), (_, iommu) in zip(run(tmp_path, *cases), asked, strict=True):
        assert ids == list(range(PACKETS))
        assert polled(log)
        told = made["forwarder"]
        assert told["driver"] == ("vfio-pci" if iommu else "uio_pci_generic")
        assert (told["iommu"], made["platform"]["iommu"]) == (iommu, iommu)


def test_a_switch_that_polls_them_drops_what_its_rules_say(tmp_path: Path) -> None:
    require("ovs-dpdk")
    rules = tmp_path / "rules"
    rules.write_text(DROPPING)
    options = {"driver": "vfio-pci", "rules": str(rules)}
    [(made, ids, _)] = run(tmp_path, {"dut.forwarder": {"ovs-dpdk": options}, "dut.iommu": True})
    # Flows take turns: every other packet goes to the port whose packets are dropped.
    assert ids == list(range(0, PACKETS, 2))
    told = made["forwarder"]
    drop, rest = sorted(told["rule_packets"], key=lambda row: "drop" not in row["rule"])
    assert drop["packets"] >= PACKETS // 2 <= rest["packets"]
    assert told["iommu"]


def test_a_switch_hands_packets_to_a_guest_without_a_kernel_between(tmp_path: Path) -> None:
    for name in ("testpmd", "ovs-dpdk"):
        require(name)
    rules = tmp_path / "rules"
    rules.write_text(DROPPING)
    polling: dict[str, Any] = {"driver": "uio_pci_generic"}
    asked: list[Any] = [
        "tc-mirred",
        {"testpmd": polling},
        {"ovs-dpdk": {**polling, "rules": str(rules)}},
    ]
    cases = [{"dut.platform": "vm-vhost", "dut.switch": [0], "dut.forwarder": one} for one in asked]
    found = run(tmp_path, *cases)
    expected = [range(PACKETS), range(PACKETS), range(0, PACKETS, 2)]
    for (made, ids, _), wanted in zip(found, expected, strict=True):
        assert ids == list(wanted)
        assert made["platform"]["switch"]["cpus"] == [0]
    assert [polled(log) for _, _, log in found[1:]] == [True, True]
    drop, _ = sorted(
        found[2][0]["forwarder"]["rule_packets"], key=lambda row: "drop" not in row["rule"]
    )
    assert drop["packets"] >= PACKETS // 2

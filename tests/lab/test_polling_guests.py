"""Programs that poll the ports of a virtual machine themselves, virtio devices and cards, and the
switch of this machine that polls the other end of the former (vhost-user).

Each case boots a machine: a minute where QEMU emulates the CPU (TCG).
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from emulated_cards import NAMES, machine_with_cards
from forwarders import require
from guest_programs import script
from labtools import ids_of, own_machine, record, statuses, write_experiment

from tailtap.base.errors import MachineError
from tailtap.host.changes.journal import Journal
from tailtap.host.net.pci import DRIVERS, PciDriver
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.forwarders.setting import Setting
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.graphs import FORWARD, smallest
from tailtap.lab.topology.lab import Lab

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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.usefixtures("guest_kernels"),
]


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
            ids_of(made),
            log.read_text() if (log := made / "forwarder.log").exists() else "",
        )
        for made in sorted((out / "runs").iterdir())
    ]


def polled(log: str) -> bool:
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


CARDS = {"net_e1000_em": ("eth1", "eth2", "eth0", "eth3"),
         "net_e1000_igb": ("eth0", "eth3", "eth1", "eth2")}  # fmt: skip
"""DPDK's driver of the DuT's cards, these, and the cards at the other ends of their cables."""
SEND = """
import json, select, socket, sys, time

before, behind = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3 << 8) for _ in "io")
for end, name in zip((before, behind), sys.argv[1:3]):
    end.bind((name, 0))
ids = []


def receive(seconds):
    until = time.monotonic() + seconds
    while select.select([behind], [], [], max(0, until - time.monotonic()))[0]:
        packet = behind.recv(2000)
        if packet[12:14] == bytes.fromhex("88b5"):
            ids.append(int.from_bytes(packet[14:18], "big"))


def send(number):
    before.send(bytes.fromhex("020000000001 020000000002 88b5") + number.to_bytes(4, "big")
                + bytes(60))


until = time.monotonic() + float(sys.argv[3])
while not ids and time.monotonic() < until:
    send(0)
    receive(1)
receive(1)
ids.clear()
for number in range(1, int(sys.argv[4]) + 1):
    send(number)
    receive(0.01)
receive(2)
print(json.dumps(ids))
"""
"""Sends packets with numbers once the first came through, and tells which came."""
BACK = """
for card in /sys/bus/pci/drivers/$1/0000:*; do
    echo > "$card/driver_override"
    echo "${card##*/}" > "$card/driver/unbind"
    echo "${card##*/}" > /sys/bus/pci/drivers_probe
done
for card in /sys/class/net/eth*; do ip link set dev "${card##*/}" down; done
"""
"""Gives the cards back to the kernel; those at the other ends of the cables are up till then."""


class Alone(Lab):
    """No lab is around the guest: cables join its cards."""

    @property
    def journal(self) -> Journal:
        """One in which nothing is entered."""
        return cast("Journal", SimpleNamespace(identity="abcdef"))


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_program_polls_the_cards_of_a_guest(driver: PciDriver, tmp_path: Path) -> None:
    """The guest is an emulated machine, whose cards are its own: none is passed through."""
    require("testpmd")
    iommu = driver == "vfio-pci"
    kind = FORWARDERS["testpmd"]
    options = kind.Options.model_validate({"driver": driver})
    setting = Setting(Alone(smallest("guest", [1])), tmp_path, {FORWARD: Traffic()})
    with machine_with_cards(tmp_path, iommu=iommu) as guest:
        for poller, (ingress, egress, before, behind) in CARDS.items():
            for end in (before, behind):
                guest.run(["ip", "link", "set", "dev", end, "up", "promisc", "on"])
            dut = Dut(guest, ((ingress, egress),), (1,), {"iommu": iommu})
            program = kind.start(dut, options, setting)
            try:
                sent = [before, behind, "120", str(PACKETS)]
                ids = script(guest, SEND, *sent)
            finally:
                told = program.stop()
            log = (tmp_path / told["log"]).read_text()
            assert ids == list(range(1, PACKETS + 1)), log
            assert (told["driver"], told["iommu"]) == (driver, iommu)
            assert log.count(f"Probe PCI driver: {poller}") == 2
            guest.run(["sh", "-ec", BACK + NAMES, "back", driver])
        if not iommu:
            dut = Dut(guest, ((ingress, egress),), (1,), {"iommu": True})
            with pytest.raises(MachineError, match="eth0 is behind no IOMMU"):
                kind.start(dut, options.model_copy(update={"driver": "vfio-pci"}), setting)

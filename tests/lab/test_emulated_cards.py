"""DuTs on cards of a PCI bus: in a virtual machine that has an IOMMU and four emulated cards.

tailtap runs inside of it, as it would on such a machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated_cards import machine_with_cards
from forwarders import require
from labtools import TAILTAP, stamps

from tailtap.stations.guest import GuestHost

PACKETS = 400
EXPERIMENT = """\
name: cards
dut: {{forwarder: {forwarder}, cpus: [1], ports: [eth1, eth2], options: {options}}}
tap: {{ports: [eth0, eth3]}}
traffic: {{rate: 200 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0}}
"""
STATE = """
for n in 0 1 2 3; do
    readlink /sys/class/net/eth$n/device/driver
    cat /sys/class/net/eth$n/mtu /sys/class/net/eth$n/flags /sys/class/net/eth$n/address
done
cat /proc/sys/vm/nr_hugepages
ip netns list
"""
AWAY = """
from tailtap.machine.cards import Card
from tailtap.machine.journal import Journal
import os
lent = Journal.create().held(Card("eth1", "tt-test-away", "tt-in", 1500))
lent.__enter__()
os._exit(0)
"""
"""Lends a card and ends without giving it back."""
MOUNT = "mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup"
SECONDS = 60.0

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    with machine_with_cards(tmp_path_factory.mktemp("guest")) as machine:
        machine.run(["sh", "-c", "mount -t bpf bpf /sys/fs/bpf; ip link set dev eth1 mtu 1600"])
        yield machine


def state(guest: GuestHost) -> str:
    return guest.run(["sh", "-c", STATE]).stdout


def run(guest: GuestHost, folder: Path, name: str, text: str) -> list[tuple[dict[str, Any], Any]]:
    """What ``run.json`` of each run says, and the stamps behind the DuT."""
    guest.run(["sh", "-c", 'cat > "$1"', "write", f"/root/{name}.yaml"], stdin=text)
    before = state(guest)
    command = [*TAILTAP, "run", f"/root/{name}.yaml", "--out", f"/root/{name}"]
    done = guest.run(command, check=False, seconds=SECONDS)
    assert state(guest) == before
    made: list[tuple[dict[str, Any], Any]] = []
    for place in guest.run(["sh", "-c", f"echo /root/{name}/runs/*"]).stdout.split():
        content: dict[str, Any] = json.loads(guest.run(["cat", f"{place}/run.json"]).stdout)
        if content["status"] != "done":
            made.append((content, done.stderr))
            continue
        guest.get(Path(place, "egress.stamps"), folder / "egress.stamps")
        made.append((content, stamps(folder / "egress.stamps")))
    return made


@pytest.fixture(scope="module")
def both(
    guest: GuestHost, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[dict[str, Any], Any]]:
    """A run by the kernel and one by DPDK, in one experiment: tailtap takes long to start."""
    forwarders = "vary: {dut.forwarder: [tc-mirred, {testpmd: {driver: vfio-pci}}]}\n"
    text = EXPERIMENT.replace("forwarder: {forwarder}, ", "").replace(", options: {options}", "")
    return run(guest, tmp_path_factory.mktemp("both"), "both", text.format() + forwarders)


def test_the_kernel_redirects_between_cards(both: list[tuple[dict[str, Any], Any]]) -> None:
    made, found = both[0]
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    cards = made["platform"]["cards"]
    card = cards["tt-in"]
    assert (card["interface"], card["driver"]) == ("eth1", "e1000e")
    # Its interrupts go to the CPU of the DuT, as its work does.
    assert card["interrupts"]
    assert set(card["interrupts"].values()) == {"1"}
    # Those of the taps keep off it, and off that of the generator.
    assert set(cards["tt-b0"]["interrupts"].values()) == {"2"}


def test_dpdk_drives_cards_by_vfio_and_they_come_back(
    guest: GuestHost, both: list[tuple[dict[str, Any], Any]]
) -> None:
    require("testpmd")
    made, found = both[1]
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    assert made["forwarder"]["driver"] == "vfio-pci"
    log = guest.run(["sh", "-c", "cat /root/both/runs/002-*/forwarder.log"]).stdout
    assert "Probe PCI driver: net_e1000_em" in log


@pytest.mark.slow
def test_dpdk_in_a_container_drives_cards_as_the_check_foresaw(
    guest: GuestHost, tmp_path: Path
) -> None:
    """As the papers' experiments at their own scale do."""
    require("dpdk-l2fwd")
    guest.run(["sh", "-c", MOUNT])
    text = EXPERIMENT.format(forwarder="dpdk-l2fwd", options="{driver: vfio-pci}")
    text = text.replace("dut: {", "dut: {platform: container, ")
    [(made, found)] = run(guest, tmp_path, "contained", text)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    assert made["forwarder"]["driver"] == "vfio-pci"
    check = [*TAILTAP, "run", "/root/contained.yaml", "--check", "--json"]
    before = state(guest)
    foreseen = json.loads(guest.run(check, seconds=SECONDS).stdout)
    assert (foreseen["can_run"], foreseen["problems"]) == (True, [])
    wrong = [*check, "--set", "dut.ports=[eth1, lo]"]
    [row] = json.loads(guest.run(wrong, check=False, seconds=SECONDS).stdout)["runs"]
    assert [found["message"].split(":")[0] for found in row["problems"]] == [
        "lo is not Ethernet",
        "lo is no network card",
    ]
    assert state(guest) == before


@pytest.mark.nested
def test_a_virtual_machine_has_cards_passed_through(guest: GuestHost, tmp_path: Path) -> None:
    text = EXPERIMENT.format(forwarder="tc-mirred", options="{}").replace("200", "50")
    text = text.replace("dut: {", "dut: {platform: vm, memory: 512 MiB, ")
    [(made, found)] = run(guest, tmp_path, "vm", text)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(100))
    facts = made["platform"]
    assert [len(address.split(":")) for address in facts["passed_through"]] == [3, 3]
    assert (facts["cards"].keys(), facts["interrupt_cpus"]) == ({"tt-a1", "tt-b0"}, "1")


def test_a_namespace_that_went_first_loses_no_card(guest: GuestHost) -> None:
    """The kernel brings the card home under the name that it had in the lab."""
    before = state(guest)
    guest.run(["ip", "netns", "add", "tt-test-away"])
    guest.run([sys.executable, "-P", "-c", AWAY])
    script = """
ip netns delete tt-test-away
for _ in $(seq 100); do ip link show tt-in > /dev/null 2>&1 && exit; sleep 0.1; done; exit 1
"""
    guest.run(["sh", "-ec", script])
    cleaned = guest.run([*TAILTAP, "clean", "--json"], seconds=SECONDS)
    kinds = {row["kind"] for row in json.loads(cleaned.stdout)["removed"]}
    assert "card" in kinds
    assert state(guest) == before


def test_version_2_of_control_groups_limits_a_container(guest: GuestHost, tmp_path: Path) -> None:
    """Most machines that run these tests have the controllers at version 1."""
    guest.run(["sh", "-c", MOUNT])
    text = """\
name: group
dut: {platform: container, cgroup: 2, cpus: [1], memory: 512 MiB, forwarder: tc-mirred}
traffic: {rate: 200 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0}
"""
    [(made, found)] = run(guest, tmp_path, "group", text)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    limits = made["platform"]["cgroup"]
    assert (limits["cpuset"]["version"], limits["memory"]["version"]) == (2, 2)
    assert limits["cpuset"]["cpuset.cpus"] == "1"
    # A scheduling domain of its own; Linux 6.1 has both kinds.
    assert limits["cpuset"]["cpuset.cpus.partition"] in ("isolated", "root")
    assert limits["memory"]["memory.max"] == 512 << 20

"""DuTs on cards of a PCI bus: in a virtual machine that has an IOMMU and emulated cards.

tailtap runs inside of it, as it would on such a machine.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from card_runs import (
    BY_KERNEL,
    EXPERIMENT,
    IN_DRIVER,
    PACKETS,
    SECONDS,
    came,
    handled,
    most,
    run,
    state,
)
from emulated_cards import machine_with_cards
from forwarders import require
from guest_cards import PLACED, THREADS, TUNING
from guest_programs import script, tailtaps
from killed_cards import cards_killed
from labtools import TAILTAP

from tailtap.base.units import parse_cpus
from tailtap.host.knobs import cards
from tailtap.host.net.pci import DRIVERS, PciDriver
from tailtap.remote.guest import GuestHost

AWAY = """
from tailtap.host.net.cards import Card
from tailtap.host.changes.journal import Journal
import os
lent = Journal.create().held(Card("eth1", "tt-test-away", "tt-in", 1500))
lent.__enter__()
os._exit(0)
"""
"""Lends a card and ends without giving it back."""
MOUNT = "mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    with machine_with_cards(tmp_path_factory.mktemp("guest")) as machine:
        machine.run(["sh", "-c", "mount -t bpf bpf /sys/fs/bpf; ip link set dev eth1 mtu 1600"])
        yield machine


@pytest.fixture(scope="module")
def kernel(
    guest: GuestHost, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[dict[str, Any], Any]]:
    """A run by the kernel that several tests look at: tailtap takes long to start."""
    return run(guest, tmp_path_factory.mktemp("kernel"), "kernel", BY_KERNEL)


def test_the_kernel_redirects_between_cards(kernel: list[tuple[dict[str, Any], Any]]) -> None:
    made, found = kernel[0]
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


def test_interrupts_come_where_the_experiment_says(
    guest: GuestHost, kernel: list[tuple[dict[str, Any], Any]]
) -> None:
    made, _ = kernel[0]
    # eth1 is on node 0, whose CPU 0 does the housekeeping, and eth2 on node 1.
    assert [came(made, port) for port in ("tt-in", "tt-out")] == [{1}, {2}]
    assert "interrupts-elsewhere" not in {row["code"] for row in made["warnings"]}
    assert made["placement"]["crossings"]
    # What the kernel counted by itself says so too.
    assert [most(run) for run in handled(guest, "tt-in-rx-0", 50)] == [1]
    assert [most(run) for run in handled(guest, "tt-out-tx-0", 50)] == [2]


PLACEMENTS = {
    # By hand they were sent to CPU 0 and to CPU 1.
    "none": (["none", [2]], {"tt-in": [{0}], "tt-out": [{1}]}),
    # eth1 is on node 0, whose CPU 0 does the housekeeping, and eth3 on node 1.
    "node": (["node", [2]], {"tt-in": [{1}], "tt-out": [{2}]}),
    "core": (["core", [2]], {"tt-in": [{2}], "tt-out": [{2}]}),
    "cores": (["core", [1, 2]], {"tt-in": [{1}, {2}], "tt-out": [{1}, {2}]}),
}
"""What is asked for, and where each card's interrupts may go, in turn: e1000e and igb."""


def test_every_placement_moves_the_interrupts_of_both_drivers(guest: GuestHost) -> None:
    asked = [placement for placement, _ in PLACEMENTS.values()]
    told = script(guest, PLACED, json.dumps(asked), seconds=SECONDS)
    for found, (_, expected) in zip(told, PLACEMENTS.values(), strict=True):
        for port, turns in expected.items():
            # e1000e has one queue, and packets are spread over igb's three.
            assert sum(any(went) for _, went in found[port]) >= (1 if port == "tt-in" else 3)
            for place, (allowed, went) in enumerate(found[port]):
                cpus = turns[place % len(turns)]
                assert set(parse_cpus(allowed)) == cpus
                assert {cpu for cpu, count in enumerate(went) if count} <= cpus


def test_a_program_in_the_driver_works_where_its_card_interrupts(
    guest: GuestHost, tmp_path: Path
) -> None:
    [(made, found)] = run(guest, tmp_path, "driver", IN_DRIVER)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    assert made["forwarder"]["mode"] == "native"
    assert [came(made, port) for port in ("tt-in", "tt-out")] == [{1}, {1}]
    elsewhere = {"interrupts-elsewhere", "work-elsewhere"}
    assert elsewhere.isdisjoint(row["code"] for row in made["warnings"])
    # No thread that nobody asked for is left behind.
    assert not [name for name, *_ in script(guest, THREADS) if name.startswith("napi/tt-")]


def test_threads_of_a_card_poll_it(
    guest: GuestHost, kernel: list[tuple[dict[str, Any], Any]]
) -> None:
    made, found = kernel[0]
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    assert made["nodes"][2]["placement"] == {"irq": "node", "napi": "threads"}
    # The kernel has kept the thread, which had the card's own name and woke up for packets.
    [thread] = [row for row in script(guest, THREADS) if row[0].startswith("napi/eth1-")]
    _, woken, run = thread
    assert woken > 50
    assert run == [0, [0, 1, 2]]


IMPOSSIBLE = {
    ("dut.irq=node", "dut.ports=[eth0, eth3]", "tap.ports=[eth1, eth2]"): (
        "dut.irq: node: eth0 does not say to which of the NUMA nodes 0-1 it belongs, as virtual "
        "cards do: choose core, or name the CPUs"
    ),
    ("dut.irq=[1, 7]",): "dut.irq: CPU 7 is not there or is off: choose from 0-2",
    ("dut.queues=2",): (
        "dut.irq: core has too few cores: 2 queues have an interrupt each, and dut has 1 of "
        "dut.cpus: take fewer in dut.queues, or choose node, none or a list of CPUs"
    ),
}
"""What the check foresees."""


def test_what_the_cards_cannot_do_is_refused_in_one_line(guest: GuestHost) -> None:
    text = BY_KERNEL.partition("cases")[0]
    guest.run(["sh", "-c", 'cat > "$1"', "write", "/root/one.yaml"], stdin=text)
    before = state(guest)
    calls = []
    for settings in IMPOSSIBLE:
        options = [word for setting in settings for word in ("--set", setting)]
        calls.append(["run", "/root/one.yaml", "--check", "--json", *options])
    one_queue = ["--set", "dut.queues=2", "--set", "dut.irq=node", "--out", "/root/queues"]
    *foreseen, refused = tailtaps(guest, *calls, ["run", "/root/one.yaml", *one_queue])
    for done, expected in zip(foreseen, IMPOSSIBLE.values(), strict=True):
        assert done["status"] == 3, done
        [row] = json.loads(done["out"])["runs"]
        assert [found["message"] for found in row["problems"]] == [expected]
    assert refused["status"] == 3, refused
    made = json.loads(guest.run(["sh", "-c", "cat /root/queues/runs/*/run.json"]).stdout)
    assert made["error"] == "dut.queues: 2: the card at tt-in has 1 at most: take fewer"
    assert state(guest) == before


BY_ETHTOOL = [row.name for row in cards.ROWS if "ethtool" in row.where.place]
KNOBS = [*BY_ETHTOOL, "interrupt-default", "card-interrupts", "receive-steering",
         "threaded-napi"]  # fmt: skip
LACKING = ["adaptive-receive", "adaptive-send", "send-coalescing", "receive-spread", "card-queues",
           "card-merging", "link-sleep"]  # fmt: skip
"""What e1000e cannot do."""


def test_cards_are_tuned_and_put_back(guest: GuestHost) -> None:
    told = script(guest, TUNING, json.dumps(KNOBS), json.dumps(LACKING), seconds=SECONDS)
    assert {(row["answer"], row["why"]) for row in told["lacking"]} == {
        ("not-applicable", "no card here lets anybody choose (eth1)")
    }
    planned = [change["name"] for change in told["applied"]["changes"]]
    assert told["applied"]["partly"] == []
    assert told["only"]["changes"] == []
    assert {row["why"] for row in told["only"]["left"]} == {"the default route is by eth0"}
    answers = {row["name"]: row["answer"] for row in told["second"] if row["name"] in planned}
    # A card with one queue has nothing to spread packets over.
    assert answers == dict.fromkeys(planned, "met") | {"receive-spread": "not-applicable"}
    assert told["reverted"]["left"] == []
    assert told["after"] == told["before"]


@pytest.mark.timeout(3600)
def test_cards_are_put_back_after_a_kill_at_any_step(guest: GuestHost) -> None:
    told = cards_killed(guest, KNOBS, lend=20, apply=15, revert=10)
    assert {"card", "card-interrupts", "namespace"} <= told.kinds
    assert {"threaded-napi", "card-queues", "card-interrupts", "receive-ring"} <= set(told.changes)
    tried = [*told.lend.values(), told.apply, told.revert]
    assert [len(steps) for steps in tried] == [20, 20, 15, 10]


def test_dpdk_in_a_container_drives_cards(guest: GuestHost, tmp_path: Path) -> None:
    """As the papers' experiments at their own scale do, which test_papers_testbed.py plans."""
    require("dpdk-l2fwd")
    guest.run(["sh", "-c", MOUNT])
    text = EXPERIMENT.format(forwarder="dpdk-l2fwd", options="{driver: vfio-pci}")
    text = text.replace("dut: {", "dut: {platform: container, ")
    [(made, found)] = run(guest, tmp_path, "contained", text)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    assert made["forwarder"]["driver"] == "vfio-pci"


CORES = """\
name: cores
dut:
  cpus: [1, 2]
  ports: [eth0, eth3]
  forwarder: {dpdk-l3fwd: {driver: vfio-pci, cpu_per_port: true, memory: 512 MiB}}
tap: {ports: [eth1, eth2]}
traffic: {rate: 100 pkt/s, duration: 4 s, warm_up: 0 s, cpu: 0, bidirectional: true}
"""
WATCHED = """
while sleep 2; do
    for thread in /proc/$(pidof dpdk-l3fwd)/task/*; do
        grep Cpus_allowed_list $thread/status; cut -d ' ' -f 14 $thread/stat
    done >> /root/cores.threads
done 2> /dev/null & watching=$!
"$@"
status=$?
kill $watching
exit $status
"""
"""Where the threads of a program may run, and how long they did, in ticks."""


def test_each_port_of_l3fwd_has_a_core_of_its_own(guest: GuestHost, tmp_path: Path) -> None:
    """Packets in both directions pass, so that both cores forward."""
    require("dpdk-l3fwd")
    watched = ["sh", "-c", WATCHED, "watched", *TAILTAP]
    made = run(guest, tmp_path, "cores", CORES, 4 * SECONDS, watched)
    assert [one["status"] for one, _ in made] == ["done", "done"], made
    assert [[row["id"] for row in found] for _, found in made] == [list(range(PACKETS))] * 2
    told = guest.run(["cat", "/root/cores.threads"]).stdout
    threads = dict(re.findall(r":\t(\S+)\n([0-9]+)", told))
    assert {cpus for cpus, ticks in threads.items() if int(ticks) > 100} == {"1", "2"}, threads
    log = guest.run(["sh", "-c", "cat /root/cores/runs/001-*/forwarder.log"]).stdout
    polled = re.findall(r"lcoreid=(.) portid=(.)", log)
    assert sorted(polled) == [("0", "0"), ("1", "1")]


OWN = """\
name: own
dut:
  cpus: [1]
  ports: [eth1, eth2]
  forwarder:
    external:
      driver: vfio-pci
      ready: 5 min
      command: >-
        dpdk-testpmd --lcores 0@{cpu},1@{cpu} -m 48 --no-huge --no-telemetry --no-shconf
        --allow {ingress} --allow {egress} -- --auto-start --no-flush-rx --total-num-mbufs=4096
tap: {ports: [eth0, eth3]}
traffic: {rate: 200 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0}
"""
KILLED = """
"$@" > /root/killed.log 2>&1 & running=$!
for _ in $(seq 1200); do
    [ "$(ls /sys/bus/pci/drivers/vfio-pci | grep -c ^0000)" != 2 ] || break
    sleep 0.1
done
kill -9 $running; wait $running
[ "$(ls /sys/bus/pci/drivers/vfio-pci | grep -c ^0000)" = 2 ] || { cat /root/killed.log; exit 1; }
"""
"""Kills a run once vfio-pci has both cards, which stay with it."""


def test_a_program_has_the_cards_to_its_end(guest: GuestHost, tmp_path: Path) -> None:
    """It is handed their PCI addresses by vfio-pci."""
    require("testpmd")
    [(made, found)] = run(guest, tmp_path, "own", OWN, 8 * SECONDS)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    assert made["forwarder"]["driver"] == "vfio-pci"
    log = guest.run(["sh", "-c", "cat /root/own/runs/001-*/forwarder.log"]).stdout
    assert log.count("Probe PCI driver: net_e1000_em") == 2


def test_cards_that_a_program_was_given_come_back_after_a_kill(guest: GuestHost) -> None:
    require("testpmd")
    guest.run(["sh", "-c", 'cat > "$1"', "write", "/root/own.yaml"], stdin=OWN)
    before = state(guest)
    run = [*TAILTAP, "run", "/root/own.yaml", "--out", "/root/killed"]
    guest.run(["sh", "-c", KILLED, "killed", *run], seconds=3 * SECONDS)
    cleaned = guest.run([*TAILTAP, "clean", "--json"], seconds=SECONDS)
    kinds = [row["kind"] for row in json.loads(cleaned.stdout)["removed"]]
    assert kinds.count("pci-driver") == 2
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


POLLED = """\
name: polled
dut: {{platform: vm, memory: 512 MiB, iommu: {iommu}, cpus: [1], ports: [eth1, eth2],
  forwarder: {{testpmd: {{driver: {driver}, memory: 64 MiB}}}}}}
tap: {{ports: [eth0, eth3]}}
traffic: {{rate: 50 pkt/s, duration: 4 s, warm_up: 0 s, cpu: 0}}
"""
UNDER_KVM = """
from tailtap.cli import main
from tailtap.lab.platforms import vm
from tailtap.lab.platforms.vm import kernels

kernels.PROBE_SECONDS = 200
vm._patience = lambda speed: vm.PATIENCE
main()
"""
"""`tailtap` on a machine that is emulated and has KVM: all takes longer there."""


@pytest.mark.nested
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_program_polls_cards_that_a_virtual_machine_has(
    guest: GuestHost, tmp_path: Path, driver: PciDriver
) -> None:
    """The emulated CPU has SVM: KVM there boots a guest much sooner than TCG would."""
    require("testpmd")
    guest.run(["sh", "-c", "modprobe kvm_amd && rm -f /var/cache/tailtap/kernels.json"])
    iommu = driver == "vfio-pci"
    text = POLLED.format(driver=driver, iommu=str(iommu).lower())
    program = [sys.executable, "-P", "-c", UNDER_KVM]
    [(made, found)] = run(guest, tmp_path, f"polled-{driver}", text, 4 * SECONDS, program)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(200))
    facts = made["platform"]
    assert (facts["accelerator"], facts["iommu"], len(facts["passed_through"])) == ("kvm", iommu, 2)
    assert (made["forwarder"]["driver"], made["forwarder"]["iommu"]) == (driver, iommu)
    log = guest.run(["sh", "-c", f"cat /root/polled-{driver}/runs/001-*/forwarder.log"]).stdout
    assert log.count("Probe PCI driver: net_e1000_em") == 2


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
vary: {dut.neighbours: [{}, {batch: {cpu: {cpus: [1], busy: 5}}}]}
"""
    runs = run(guest, tmp_path, "group", text)
    for made, found in runs:
        assert made["status"] == "done", made["error"]
        assert [row["id"] for row in found] == list(range(PACKETS))
        limits = made["platform"]["cgroup"]
        assert (limits["cpuset"]["version"], limits["memory"]["version"]) == (2, 2)
        assert limits["cpuset"]["cpuset.cpus"] == "1"
        assert limits["memory"]["memory.max"] == 512 << 20
    alone, shared = (made["platform"]["cgroup"]["cpuset"] for made, _ in runs)
    # A scheduling domain of its own; Linux 6.1 has both kinds. It would take the neighbour's CPU.
    assert alone["cpuset.cpus.partition"] in ("isolated", "root")
    assert "cpuset.cpus.partition" not in shared
    assert runs[1][0]["neighbours"]["batch"]["cpus"]["1"]["done"] > 0

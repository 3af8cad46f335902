"""Runs on the cards of an emulated machine: what is asked for, and what the kernel says of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labtools import TAILTAP, stamps

from tailtap.remote.guest import GuestHost

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
    # Drivers may show more queues than they use until the card is up.
    cat /sys/class/net/eth$n/threaded /sys/class/net/eth$n/queues/rx-[0-2]/rps_cpus
    for irq in /sys/class/net/eth$n/device/msi_irqs/*; do
        # One that was never requested, as after another driver had the card, goes anywhere near it.
        case $n in 1) near=0-1 ;; 2 | 3) near=2 ;; *) near=0-2 ;; esac
        cpus=$near
        read -r cpus 2> /dev/null < "/proc/irq/${irq##*/}/smp_affinity_list"
        [ "$cpus" = $near ] || echo "interrupt ${irq##*/}: $cpus"
    done
done
for thread in /proc/[0-9]*; do
    read -r name < "$thread/comm" && case $name in
        napi/*) run=$(ps -o ni= -p "${thread#/proc/}") cpus=$(taskset -c -p "${thread#/proc/}")
            [ $run = 0 ] && [ "${cpus##* }" = 0-2 ] || echo "$name $run $cpus" ;;
    esac
done
cat /proc/sys/vm/nr_hugepages
ip netns list
"""
SECONDS = 30.0
BY_KERNEL = """\
name: kernel
dut: {cpus: [1], ports: [eth1, eth2]}
tap: {ports: [eth0, eth3]}
traffic: {rate: 200 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0}
cases:
- {dut.forwarder: tc-mirred, dut.irq: node, dut.napi: threads}
"""
IN_DRIVER = """\
name: driver
dut: {cpus: [1], ports: [eth0, eth3], forwarder: xdp}
tap: {ports: [eth1, eth2]}
traffic: {rate: 200 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0}
"""
SAMPLES = """
cards=/root/cards.interrupts
while sleep 0.2; do echo; cat /proc/interrupts; done > "$cards" & sampling=$!
"$@"
status=$?
kill $sampling
exit $status
"""
"""Runs a command, and looks meanwhile who handles interrupts."""


def state(guest: GuestHost) -> str:
    return guest.run(["sh", "-c", STATE]).stdout


def run(
    guest: GuestHost,
    folder: Path,
    name: str,
    text: str,
    seconds: float = SECONDS,
    program: Sequence[str] = TAILTAP,
) -> list[tuple[dict[str, Any], Any]]:
    """What ``run.json`` of each run says, and the stamps behind the DuT."""
    guest.run(["sh", "-c", 'cat > "$1"', "write", f"/root/{name}.yaml"], stdin=text)
    before = state(guest)
    command = [*program, "run", f"/root/{name}.yaml", "--out", f"/root/{name}"]
    done = guest.run(["sh", "-c", SAMPLES, "run", *command], check=False, seconds=seconds)
    assert state(guest) == before
    made: list[tuple[dict[str, Any], Any]] = []
    places = guest.run(["sh", "-c", f"echo /root/{name}/runs/*"]).stdout.split()
    assert guest.run(["test", "-d", places[0]], check=False).status == 0, done.stderr
    for place in places:
        content: dict[str, Any] = json.loads(guest.run(["cat", f"{place}/run.json"]).stdout)
        if content["status"] != "done":
            made.append((content, done.stderr))
            continue
        guest.get(Path(place, "egress.stamps"), folder / "egress.stamps")
        made.append((content, stamps(folder / "egress.stamps")))
    return made


def handled(guest: GuestHost, interrupt: str, least: int) -> list[Counter[int]]:
    """How often each CPU handled an interrupt in each of the last experiment's runs, as the kernel
    counts it while a card has that name; only runs with `least` of them.
    """
    runs: list[Counter[int]] = []
    first: Counter[int] | None = None
    for sample in guest.run(["cat", "/root/cards.interrupts"]).stdout.split("\n\n"):
        rows = [line.split() for line in sample.splitlines() if line.endswith(f" {interrupt}")]
        if not rows:
            first = None
            continue
        now = Counter({cpu: int(count) for cpu, count in enumerate(rows[0][1:4])})
        if first is None:
            first = now
            runs.append(Counter())
        runs[-1] = now - first
    return [counts for counts in runs if counts.total() >= least]


def most(counts: Counter[int]) -> int:
    """The CPU that handled at least nine of ten; others may have had the first, or -1."""
    [(cpu, count)] = counts.most_common(1)
    return cpu if count >= 0.9 * counts.total() else -1


def came(made: dict[str, Any], port: str) -> set[int]:
    """The CPUs that handled interrupts of a port, each of which was sent nowhere else."""
    facts = [fact for fact in made["card_interrupts"].values() if fact["port"] == port]
    handling = {int(cpu) for fact in facts for cpu in fact["handled"]}
    assert all(handling <= set(fact["cpus"]) for fact in facts if fact["cpus"])
    return handling

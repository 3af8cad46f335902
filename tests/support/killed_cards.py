"""Work on the cards of an emulated machine that is killed, each time cleaned up after."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from guest_cards import LOOK
from guest_programs import script
from killed import KILLED

from tailtap.remote.guest import GuestHost

SECONDS = 120.0
"""What all of it may take on a machine that is as fast as this one."""
BEGIN = """
# The folder of journals is this machine's, where others have theirs.
mkdir -p /var/lib/tailtap/journals && mount -t tmpfs none /var/lib/tailtap/journals
for n in 0 1 2 3; do ip link set dev eth$n up; done
ip link set dev eth0 mtu 1600
ip link set dev eth1 promisc on address 52:54:00:74:75:99
ethtool -X eth3 weight 1 0 2
ethtool -C eth1 rx-usecs 20
ethtool -G eth3 rx 512
echo 5 > /sys/class/net/eth0/queues/rx-1/rps_cpus
echo 4 > /sys/class/net/eth0/queues/tx-2/xps_cpus
echo 2 > /sys/class/net/eth3/queues/rx-0/rps_cpus
set -- /sys/class/net/eth0/device/msi_irqs/*
echo 2 > /proc/irq/${2##*/}/smp_affinity_list
set -- /sys/class/net/eth3/device/msi_irqs/*
echo 1 > /proc/irq/${3##*/}/smp_affinity_list
echo 1 > /sys/class/net/eth1/threaded
for thread in /proc/[0-9]*; do
    read -r name < $thread/comm && case $name in napi/eth1-*) ;; *) continue ;; esac
    renice -n -5 -p ${thread#/proc/} && taskset -p -c 0 ${thread#/proc/}
done > /dev/null
"""
"""Cards have settings of their own, of every kind."""
END = """
for thread in /proc/[0-9]*; do
    read -r name < $thread/comm && case $name in napi/*) ;; *) continue ;; esac
    renice -n 0 -p ${thread#/proc/} && taskset -p -c 0-2 ${thread#/proc/}
done > /dev/null
echo 0 > /sys/class/net/eth1/threaded
set -- /sys/class/net/eth0/device/msi_irqs/*
echo 0-2 > /proc/irq/${2##*/}/smp_affinity_list
set -- /sys/class/net/eth3/device/msi_irqs/*
echo 2 > /proc/irq/${3##*/}/smp_affinity_list
echo 0 > /sys/class/net/eth3/queues/rx-0/rps_cpus
echo 0 > /sys/class/net/eth0/queues/rx-1/rps_cpus
echo 0 > /sys/class/net/eth0/queues/tx-2/xps_cpus
ethtool -G eth3 rx 256
ethtool -C eth1 rx-usecs 3
ethtool -X eth3 default
ip link set dev eth1 promisc off address 52:54:00:74:75:01
for n in 0 1 2 3; do ip link set dev eth$n mtu 1500 down; done
umount /var/lib/tailtap/journals
"""

CARDS = (
    KILLED
    + LOOK
    + """
from tailtap.host.changes.clean import find, remove
from tailtap.host.knobs.tree import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import apply, revert
from tailtap.host.tuning.apply import plan
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.placement import Placement
from tailtap.lab.topology.graphs import Cables, smallest

asked = json.loads(sys.argv[1])
many = asked["many"]


def lent(dut, tap, placement):
    graph = smallest("namespace", [1, 2], cables=Cables(dut, tap), placement=placement)
    with Lab(graph) as lab:
        lab.add({"dut": ()})


def threads():
    lent(("eth1", "eth3"), ("eth0", "eth2"), Placement("core", napi="threads"))


def queues():
    lent(("eth0", "eth3"), ("eth1", "eth2"), Placement("core", queues=2))


def state():
    # Everything of this machine that the work changes.
    found = {"namespaces": told("ip", "netns", "list")}
    for number in range(4):
        card = f"eth{number}"
        found |= files(card)
        found[card] = tables(card, "-c", "-g", "-l", "-k", "-a", "-x")
    found["default"] = Path("/proc/irq/default_smp_affinity").read_text()
    # The kernel keeps threads, and gives what it gives to new ones to those that nobody sets.
    threads = {name: run for name, (_, run) in polling().items() if run != [0, [0, 1, 2]]}
    journals = [path.name for folder in FOLDERS for path in folder.glob("*.journal")]
    return found | {"threads": threads, "journals": journals}


def check(what, at):
    after = state()
    differing = {name: (before.get(name), after.get(name))
                 for name in {*before, *after} if before.get(name) != after.get(name)}
    assert not differing, (what, at, differing)


subprocess.run(["sh", "-ec", asked["begin"]], check=True)
try:
    before, kinds, lent_at = state(), set(), {}
    for lend in (threads, queues):
        lent_at[lend.__name__] = some_steps(lend, many["lend"])
        check(lend.__name__, "end")
        for at in lent_at[lend.__name__]:
            assert killed(lend, at)
            found = find()
            kinds |= {item.kind for item in found}
            left = remove(found)
            assert not left, (lend.__name__, at, left)
            assert not find(), (lend.__name__, at)
            check(lend.__name__, at)
    purpose = Purpose.of(Tree(), "bare-metal", [1], [0, 2], ["eth1", "eth3"])
    tuning = plan(Tree(), purpose, asked["knobs"], disruptive=True)
    applying = some_steps(lambda: apply(tuning), many["apply"])
    assert state() != before
    assert not revert().left
    check("apply", "end")
    for at in applying:
        assert killed(lambda: apply(tuning), at)
        done = revert()
        assert not done.left, (at, done)
        check("apply", at)
    apply(tuning)
    reverting = some_steps(revert, many["revert"])
    for at in reverting:
        apply(tuning)
        assert killed(revert, at)
        done = revert()
        assert not done.left, (at, done)
        check("revert", at)
finally:
    subprocess.run(["sh", "-c", asked["end"]], check=True)
print(json.dumps({
    "kinds": sorted(kinds), "changes": [change.knob.name for change in tuning.changes],
    "lend": lent_at, "apply": applying, "revert": reverting,
}))
"""
)


@dataclass(frozen=True)
class Killed:
    """At which steps each was killed, and what there was to put back."""

    lend: dict[str, list[int]]
    """By the way of lending: with threads that poll, and with fewer queues."""
    apply: list[int]
    revert: list[int]
    kinds: set[str]
    """Of the resources that were lent."""
    changes: list[str]
    """The knobs that were set."""


def cards_killed(
    guest: GuestHost, knobs: Sequence[str], lend: int, apply: int, revert: int
) -> Killed:
    """Lend cards in two ways, set `knobs` and put them back, each killed at so many steps.

    After each, `tailtap clean`'s functions, or those of `tailtap host revert`, must leave the cards
    as before. 0 are all steps.
    """
    asked = {"many": {"lend": lend, "apply": apply, "revert": revert},
             "knobs": list(knobs), "begin": BEGIN, "end": END}  # fmt: skip
    told = script(guest, CARDS, json.dumps(asked), seconds=SECONDS)
    return Killed(**told | {"kinds": set(told["kinds"])})

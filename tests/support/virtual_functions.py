"""Lines over the virtual functions of emulated cards: what is run, and what the machine is like.

igb drives eth0 and eth3, with 7 virtual functions each; a cable joins them. It also drives eth4 and
eth5, whose functions can be the ends of a line, where there are these cards.
"""

from __future__ import annotations

from typing import Any

from guest_programs import script
from killed import KILLED

from tailtap.remote.guest import GuestHost

LINES = """\
name: lines
dut: {{platform: {platform}, forwarder: kernel-route, line: {length}, cpus: [1], irq: [2],
  over: {{sriov: [eth0, eth3]}}{ends}
traffic: {{rate: 100 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0}}
"""
LINKS, FUNCTIONS = "}", ", ports: [eth4, eth5], functions: true}\ntap: {ports: [eth1, eth2]}"
"""What the ends of a line are: links of the lab, or functions."""
PACKETS = 200
STATE = """
for card in eth0 eth3; do
    cd /sys/class/net/$card
    cat flags mtu address threaded device/sriov_numvfs device/sriov_drivers_autoprobe
    readlink device/driver
    cat queues/*/rps_cpus
    # After functions came and went the card has other interrupts, and as many. One that was not
    # requested since goes anywhere near it.
    case $card in eth3) near=2 ;; *) near=0-2 ;; esac
    for irq in device/msi_irqs/*; do
        sed "s/^$near$/0-2/" "/proc/irq/${irq##*/}/smp_affinity_list"
    done
    ip -d link show dev $card | grep -E -o 'promiscuity [0-9]+|vf .*'
done
ls /sys/class/net
find /run/netns /run/tailtap /var/lib/tailtap -type f ! -name lock 2> /dev/null || true
"""

KILLED_LINE = (
    KILLED
    + """
from tailtap.host.changes.clean import find, remove
from tailtap.lab.topology.numbering import over_channels
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.placement import Placement
from tailtap.lab.topology.graphs import smallest

graph = over_channels(
    smallest("namespace", [1], length=2, placement=Placement((2,))), ("eth0", "eth3")
)


def line():
    with Lab(graph) as lab:
        lab.add({"dut1": (), "dut2": ()})


def state():
    return told("sh", "-c", sys.argv[1])


state()
with Lab(graph):  # the folders of journals are there from now on
    pass
before, seen = state(), set()
steps = some_steps(line, int(sys.argv[2]))
assert state() == before
for at in steps:
    assert killed(line, at)
    found = find()
    seen |= {item.kind for item in found}
    left = remove(found)
    assert not left, (at, left)
    again = find()
    assert not again, (at, again)
    after = state()
    assert after == before, (at, before, after)
print(json.dumps({"steps": steps, "kinds": sorted(seen)}))
"""
)


def state(guest: GuestHost) -> str:
    """Everything that a line over virtual functions changes."""
    return guest.run(["sh", "-c", STATE]).stdout


def killed_at_steps(guest: GuestHost, many: int) -> Any:
    """A line of two is made and removed, killed after so many of its steps; 0 are all of them.

    After each, cleaning must leave everything as before. The `steps`, and the `kinds` of what was
    cleaned.
    """
    return script(guest, KILLED_LINE, STATE, str(many), seconds=300)

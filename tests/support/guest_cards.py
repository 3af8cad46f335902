"""What is done to the cards of a machine, in one process of it, and what is seen there."""

from __future__ import annotations

from guest_programs import COMMANDS

LOOK = """
import contextlib, os, subprocess
from pathlib import Path


def files(port):
    # What a card's files say. Its interrupts are told by their place: their numbers may change.
    found, card = {}, Path("/sys/class/net", port)
    for pattern in ("threaded", "mtu", "address", "flags", "queues/*/?ps_cpus"):
        for path in sorted(card.glob(pattern)):
            with contextlib.suppress(OSError):  # a single queue has no choice of senders
                found[f"{port} {path.relative_to(card)}"] = path.read_text().strip()
    numbers = sorted((int(path.name) for path in (card / "device/msi_irqs").glob("*")))
    for place, number in enumerate(numbers):
        path = Path(f"/proc/irq/{number}/smp_affinity_list")
        found[f"{port} interrupt {place}"] = path.read_text().strip() if path.exists() else None
    return found


def tables(port, *options, where=()):
    command = [*where, "sh", "-c", 'p=$1; shift; for o; do ethtool $o "$p"; done; true', "tables"]
    return subprocess.run([*command, port, *options], capture_output=True, text=True).stdout


def polling():
    # The threads that poll cards: number, how nice they are, where they may run.
    found = {}
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().startswith("napi/"):
                number = int(path.parent.name)
                nice = os.getpriority(os.PRIO_PROCESS, number)
                run = [nice, sorted(os.sched_getaffinity(number))]
                found[path.read_text().strip()] = number, run
    return found
"""

TUNING = (
    COMMANDS
    + LOOK
    + """
import time

CARDS = ("eth0", "eth1", "eth3")
BEGIN = '''
for n in 0 1 2 3; do ip link set dev eth$n up; done
ip addr add 192.0.2.1/24 dev eth0
ip route add default via 192.0.2.2
ethtool -C eth1 rx-usecs 20
ethtool -G eth3 rx 512
echo 5 > /sys/class/net/eth3/queues/rx-2/rps_cpus
echo 4 > /sys/class/net/eth3/queues/tx-2/xps_cpus
set -- /sys/class/net/eth3/device/msi_irqs/*
echo 1 > /proc/irq/${2##*/}/smp_affinity_list
'''
END = '''
for n in 0 1 2 3; do ip link set dev eth$n down; done
ip addr flush dev eth0
ethtool -X eth3 default
ethtool -C eth1 rx-usecs 3
ethtool -G eth3 rx 256
echo 0 > /sys/class/net/eth3/queues/rx-2/rps_cpus
echo 0 > /sys/class/net/eth3/queues/tx-2/xps_cpus
set -- /sys/class/net/eth3/device/msi_irqs/*
echo 2 > /proc/irq/${2##*/}/smp_affinity_list
'''
everything, lacking = json.loads(sys.argv[1]), json.loads(sys.argv[2])
purpose = ["--role", "bare-metal", "--cpus", "1", "--housekeeping", "0,2"]
ours = ["--interface", "eth1", "--interface", "eth3"]
every = [*ours, "--interface", "eth0"]


def shown():
    found = {}
    for card in CARDS:
        found |= files(card)
        found[card] = tables(card, "-c", "-g", "-l", "-k", "-a", "-x")
        found[f"{card} carrier"] = Path("/sys/class/net", card, "carrier").read_text().strip()
    # Its link never went down.
    found["eth0 changes"] = Path("/sys/class/net/eth0/carrier_changes").read_text().strip()
    return found


def until(right):
    # Links that were down for a moment need one to come back.
    deadline = time.monotonic() + 30
    while not right(seen := shown()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return seen


def host(*words):
    done = tailtap(["host", *words, "--json"])
    return json.loads(done["out"]) if done["out"] else done


subprocess.run(["sh", "-ec", BEGIN], check=True)
try:
    before = until(lambda seen: all(seen[f"{card} carrier"] == "1" for card in CARDS))
    told = {
        "before": before,
        "lacking": host("audit", *lacking, *purpose, "--interface", "eth1")["rows"],
        "only": host("apply", "receive-ring", "pause-frames", *purpose, "--interface", "eth0",
                     "--disruptive", "--dry-run"),
        "applied": host("apply", *everything, *purpose, *every, "--disruptive"),
        "tuned": shown(),
        "second": host("audit", *everything, *purpose, *ours)["rows"],
    }
    told["reverted"] = host("revert")
    told["after"] = until(lambda seen: seen == before)
finally:
    subprocess.run(["sh", "-c", END], check=True)
print(json.dumps(told))
"""
)
"""Cards eth1 and eth3 are tuned and put back; eth0 has the default route."""

THREADS = (
    LOOK
    + """
import json

found = []
for name, (number, run) in polling().items():
    status = Path(f"/proc/{number}/status").read_text().split()
    found.append([name, int(status[status.index("voluntary_ctxt_switches:") + 1]), run])
print(json.dumps(found))
"""
)
"""The threads that poll cards: name, how often each woke up, and how it runs."""

PLACED = (
    LOOK
    + """
import json, socket, struct, sys, time

from tailtap.host.net.inside import inside
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.placement import Placement
from tailtap.lab.topology.graphs import Cables, smallest

PACKETS = 60
CABLES = Cables(("eth1", "eth3"), ("eth0", "eth2"))
BY_HAND = {"eth1": "0", "eth3": "1"}


def socket_at(lab, port):
    def made():
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        one.bind((port, 0))
        return one

    return inside([(lab.host("tap").namespace, made)])[0]


def frame(number):
    # Its address is another one each time, so that a card spreads packets over its queues.
    addresses = bytes((192, 0, 2, number)) + bytes((198, 51, 100, 1))
    header = struct.pack("!BBHHHBBH", 0x45, 0, 46, 0, 0, 64, 17, 0) + addresses
    return b"\\2tailt\\2tailt\\x08\\0" + header + bytes(26)


def counters():
    lines = (line.split() for line in Path("/proc/interrupts").read_text().splitlines()[1:])
    return {row[0][:-1]: [int(count) for count in row[1:4]] for row in lines}


def placed(irq, cpus):
    # Where the interrupts of a DuT's cards may go, and where they went while packets came.
    where = Placement(irq if isinstance(irq, str) else tuple(irq))
    with Lab(smallest("namespace", cpus, cables=CABLES, placement=where)) as lab:
        lab.add({"dut": ()})
        lab.wait_until_up()
        cables = [socket_at(lab, port) for port in ("tt-a1", "tt-b0")]
        before, found = counters(), {"tt-in": {}, "tt-out": {}}
        for number in range(PACKETS):
            for cable in cables:
                cable.send(frame(number))
            time.sleep(0.002)
        time.sleep(0.1)
        after = counters()
        for number, (port, _) in lab.interrupts("dut").items():
            went = [now - then for now, then in zip(after[number], before[number])]
            allowed = Path(f"/proc/irq/{number}/smp_affinity_list").read_text().strip()
            found[port][int(number)] = [allowed, went]
        return {port: [found[port][number] for number in sorted(found[port])] for port in found}


def numbers(card):
    return [path.name for path in Path("/sys/class/net", card, "device/msi_irqs").iterdir()]


def send(places):
    for number, cpus in places.items():
        Path(f"/proc/irq/{number}/smp_affinity_list").write_text(cpus)


used = {number: Path(f"/proc/irq/{number}/smp_affinity_list").read_text()
        for card in BY_HAND for number in numbers(card)}
send({number: cpus for card, cpus in BY_HAND.items() for number in numbers(card)})
before, told = [files(card) for card in BY_HAND], []
for irq, cpus in json.loads(sys.argv[1]):
    told.append(placed(irq, cpus))
    assert [files(card) for card in BY_HAND] == before
send(used)
print(json.dumps(told))
"""
)
"""Lends cards with each placement, and counts who handles their interrupts."""

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

CARDS = ("eth0", "eth1", "eth4")
BEGIN = '''
for n in 0 1 4 5; do ip link set dev eth$n up; done
ip addr add 192.0.2.1/24 dev eth0
ip route add default via 192.0.2.2
ethtool -C eth1 rx-usecs 20
ethtool -G eth4 rx 512
echo 5 > /sys/class/net/eth4/queues/rx-2/rps_cpus
echo 4 > /sys/class/net/eth4/queues/tx-2/xps_cpus
set -- /sys/class/net/eth4/device/msi_irqs/*
echo 2 > /proc/irq/${2##*/}/smp_affinity_list
'''
END = '''
for n in 0 1 4 5; do ip link set dev eth$n down; done
ip addr flush dev eth0
ethtool -X eth4 default
ethtool -C eth1 rx-usecs 3
ethtool -G eth4 rx 256
echo 0 > /sys/class/net/eth4/queues/rx-2/rps_cpus
echo 0 > /sys/class/net/eth4/queues/tx-2/xps_cpus
set -- /sys/class/net/eth4/device/msi_irqs/*
echo 0-2 > /proc/irq/${2##*/}/smp_affinity_list
'''
everything, lacking = json.loads(sys.argv[1]), json.loads(sys.argv[2])
purpose = ["--role", "bare-metal", "--cpus", "1", "--housekeeping", "0,2"]
ours = ["--interface", "eth1", "--interface", "eth4"]
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
"""Cards eth1 and eth4 are tuned and put back; eth0 has the default route."""

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

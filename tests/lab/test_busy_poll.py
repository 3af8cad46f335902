"""Threads of the kernel that poll without a pause, in a guest whose kernel has them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guest_programs import script
from labtools import TAILTAP
from standing import standing

from tailtap.lab.platforms import Dut, DutSpec
from tailtap.lab.platforms.vm import VmOptions
from tailtap.remote.guest import GuestHost

KERNEL = Path(sys.prefix, "newer-kernel/boot")
"""`make newer-kernel` puts one there."""
EXPERIMENT = """\
name: polling
dut: {forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 200 pkt/s, duration: 3 s, warm_up: 200 ms, cpu: 2, slip_limit: 1 s}
vary: {dut.napi: [threads, busy-poll]}
"""
PACKETS = 600
MODULES = ("veth", "sch_ingress", "act_mirred", "cls_matchall")
WATCHED = """
import glob, json, os, subprocess, sys, time

def polling():
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            name, _, rest = open(path).read().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        if name.startswith("napi/tt-in-"):
            words = rest.split()
            found[path.split("/")[2]] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return found

rows = []
running = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
while running.poll() is None:
    now = time.monotonic()
    rows += [(thread, now, used) for thread, used in polling().items()]
    time.sleep(0.2)
out, said = running.communicate()
shares = {}
for thread in dict.fromkeys(row[0] for row in rows):
    (_, first, before), *_, (_, last, after) = [row for row in rows if row[0] == thread]
    shares[thread] = (after - before) / (last - first)
told = {"status": running.returncode, "out": out, "said": said, "shares": [*shares.values()]}
print(json.dumps(told))
"""
"""Runs a command, and how much of a CPU each thread had meanwhile that polled the DuT's port."""
PUT_BACK = """
import json, socket, subprocess
from functools import partial
from tailtap.host.net import nic
from tailtap.host.net.inside import inside
from tailtap.host.net.port_threads import PortThreads

def shell(text):
    subprocess.run(["sh", "-ec", text], check=True)

def polled():
    [found] = inside([("tt-test", lambda: nic.polled(socket.if_nametoindex("one")))])
    return list(found.values())

shell("ip netns add tt-test; ip -n tt-test link add one type veth peer name two; "
      "ip netns exec tt-test ethtool -K one gro on; "
      "ip -n tt-test link set one up; ip -n tt-test link set two up")
told = []
for before in (nic.SOFTIRQ, nic.THREAD, nic.BUSY):
    def prepare():
        for instance in nic.polled(socket.if_nametoindex("one")):
            nic.poll(instance, before)
    inside([("tt-test", prepare)])
    for busy in (False, True):
        made = PortThreads("tt-test", "one", "1", card="one", busy=busy)
        old = made.read()
        applied = made.apply()
        during = polled()
        pending = made.pending(old, applied)
        left = made.undo(old, applied)
        told.append([before, busy, during, polled(), pending, made.pending(old, applied), left])
shell("ip netns delete tt-test")
print(json.dumps(told))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def guest() -> Iterator[GuestHost]:
    """A machine with such a kernel, and three CPUs."""
    image = next(KERNEL.glob("vmlinuz-*"), None)
    if image is None:
        pytest.skip("no kernel of Linux 6.19 or newer is here: run `make newer-kernel`")
    options = {"memory": "1024 MiB", "kernel": str(image)}
    device: Dut
    with standing("vm", DutSpec((0, 1), VmOptions.model_validate(options))) as (_, device):
        device.host.run(["modprobe", "-a", *MODULES])
        assert isinstance(device.host, GuestHost)
        yield device.host


def test_threads_that_poll_without_a_pause_have_their_core(guest: GuestHost) -> None:
    """All packets come through, and the thread never sleeps; one that sleeps has little to do."""
    guest.run(["sh", "-c", 'cat > "$1"', "write", "/run/polling.yaml"], stdin=EXPERIMENT)
    shares = []
    for napi in ("threads", "busy-poll"):
        run = [*TAILTAP, "run", "/run/polling.yaml", "--set", f"vary={{dut.napi: [{napi}]}}"]
        told = script(guest, WATCHED, *run, "--out", f"/run/{napi}", "--json", seconds=300)
        assert told["status"] == 0, told["said"]
        [made] = json.loads(told["out"])["runs"]
        assert made["evaluation"]["counts"]["matched"] == PACKETS, (napi, made, told["said"])
        [share] = told["shares"]
        shares.append(share)
    assert shares[0] < 0.2, shares
    assert shares[1] > 0.4, shares


def test_a_port_is_polled_as_before_afterwards(guest: GuestHost) -> None:
    """By a softirq, by threads, or by such threads."""
    told: list[list[Any]] = script(guest, PUT_BACK, seconds=60)
    for before, busy, during, after, pending, still, left in told:
        assert (during, after) == ([2 if busy else 1], [before])
        assert (still, left) == (False, None)
        assert pending or during == after

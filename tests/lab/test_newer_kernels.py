"""What newer kernels brought, in guests that have them.

Threads that poll without a pause (Linux 6.19), netkit (6.7), threads of real-time kernels that
receive what is steered (6.10), and AF_XDP whose frames an igb card takes from the generator's
memory (6.14). An emulator tells nothing of how fast that is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated_cards import machine_with_cards
from guest_programs import script
from labtools import TAILTAP, stamps
from standing import standing
from traces import SOFTIRQ, TASK, Trace

from tailtap.lab.platforms import Dut, DutSpec
from tailtap.lab.platforms.vm import VmOptions, kernels
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
from tailtap.host.net.port_work import PortThreads

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


@pytest.mark.slow
@pytest.mark.timeout(600)
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_port_is_polled_as_before_afterwards(guest: GuestHost) -> None:
    """By a softirq, by threads, or by such threads."""
    told: list[list[Any]] = script(guest, PUT_BACK, seconds=60)
    for before, busy, during, after, pending, still, left in told:
        assert (during, after) == ([2 if busy else 1], [before])
        assert (still, left) == (False, None)
        assert pending or during == after


PROGRAM = str(Path(sys.executable).with_name("tailtap"))
SOURCES = Path(__file__).parents[2] / "scripts/debian-sources.sh"
PACKAGE_OF_KERNEL = re.compile(
    r"^Depends: (linux-image-6\.(?:[7-9]|[1-9][0-9])\.\S+-amd64)", re.MULTILINE
)
OVER_NETKIT = """\
name: netkit
dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1], over: netkit}
traffic: {rate: 20 pkt/s, duration: 5 s, warm_up: 0 s, cpu: 2, slip_limit: 10 s}
"""
FEW = 100
MODULES_NETKIT = ("veth", "bridge", "sch_ingress", "act_mirred", "cls_matchall")


def apt(folder: Path, *words: str) -> str:
    """What apt says with the backports of this machine's release beside its own sources."""
    own = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": f"{folder}/sources",
        "Dir::Etc::Preferences": f"{folder}/preferences",
        "Dir::State::Lists": f"{folder}/lists",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]
    done = subprocess.run(
        [words[0], *options, *words[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the backports cannot be had: {done.stderr.strip()[-200:]}")
    return done.stdout


def unpacked(folder: Path, package: str, called: str) -> Path:
    """A package's files, in a folder of its own."""
    apt(folder, "apt-get", "download", "-qq", package)
    [archive] = folder.glob(f"{called}_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(archive), str(folder / called)], check=True)
    return folder / called


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_packets_come_through_a_netkit(tmp_path: Path) -> None:
    folder = tmp_path / "apt"
    subprocess.run(["sh", str(SOURCES), str(folder)], check=True)
    apt(folder, "apt-get", "update", "-qq")
    kernel = PACKAGE_OF_KERNEL.search(apt(folder, "apt-cache", "show", "-a", "linux-image-amd64"))
    if kernel is None:
        pytest.skip("no kernel of Linux 6.7 or newer in this machine's lists of packages")
    codename = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    assert codename is not None
    tools = unpacked(folder, f"iproute2/{codename[1]}-backports", "iproute2")
    files = unpacked(folder, kernel[1], kernel[1])
    [modules] = (files / "lib/modules").iterdir()
    subprocess.run(["depmod", "-b", str(files), modules.name], check=True)
    [image] = (files / "boot").glob("vmlinuz-*")
    options = {"memory": "1024 MiB", "kernel": str(image)}
    path = f"PATH={tools}/sbin:{tools}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with standing("vm", DutSpec((0, 1), VmOptions.model_validate(options))) as (_, device):
        host = device.host
        assert isinstance(host, GuestHost)
        host.run(["modprobe", "-a", *MODULES_NETKIT])
        (tmp_path / "experiment.yaml").write_text(OVER_NETKIT)
        host.put(tmp_path / "experiment.yaml", Path("/run/experiment.yaml"))
        command = [PROGRAM, "run", "/run/experiment.yaml", "--out", "/run/out", "--json"]
        told = host.run(["env", path, *command, "--quiet"], seconds=900, check=False)
    [run] = json.loads(told.stdout)["runs"]
    assert run["status"] == "done", run["error"]
    counts = run["evaluation"]["counts"]
    assert (counts["matched"], counts["lost"]) == (FEW, 0)


PACKAGE = re.compile(r"linux-image-(6\.1[0-9]|[7-9]\.[0-9]+)\.\S+-rt-amd64(-unsigned)?")
REALTIME = """\
name: threads
dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 200 pkt/s, duration: 3 s, warm_up: 200 ms, cpu: 2, slip_limit: 1 s}
trace: thin
"""
PACKETS_REALTIME = 600
NET_RX, SERVED = 3, 1 << 48


@pytest.fixture(scope="module")
def realtime() -> Iterator[Dut]:
    told = subprocess.run(["apt-cache", "search", "--names-only", "linux-image-.*-rt-amd64"],
                          capture_output=True, text=True, check=False).stdout  # fmt: skip
    names = sorted(line.split()[0] for line in told.splitlines())
    found = [name for name in names if PACKAGE.fullmatch(name)]
    if not found:
        pytest.skip(
            "no real-time kernel of Linux 6.10 or newer in this machine's lists of packages"
        )
    image = next((kernels.unpacked(found[-1]) / "boot").glob("vmlinuz-*"))
    options = {"memory": "1024 MiB", "kernel": str(image)}
    with standing("vm", DutSpec((0, 1), VmOptions.model_validate(options))) as (_, device):
        device.host.run(["modprobe", "-a", *MODULES])
        yield device


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_thread_of_the_core_s_backlog_serves(realtime: Dut, tmp_path: Path) -> None:
    """It is what has the core while packets are forwarded, and no softirq receives there."""
    host = realtime.host
    assert isinstance(host, GuestHost)
    (tmp_path / "experiment.yaml").write_text(REALTIME)
    host.put(tmp_path / "experiment.yaml", Path("/run/experiment.yaml"))
    command = [PROGRAM, "run", "/run/experiment.yaml", "--out", "/run/out", "--json", "--quiet"]
    [run] = json.loads(host.run(command, seconds=300).stdout)["runs"]
    assert run["evaluation"]["counts"]["matched"] == PACKETS_REALTIME
    for name in ("trace.json", "trace.events"):
        host.get(Path("/run/out/runs/001-threads", name), tmp_path / name)
    trace = Trace.read(tmp_path)
    served = trace.said["served"]
    [thread] = served["pids"]
    assert (served["by"], served["cpus"]) == ("task", [1])
    assert trace.said["names"]["pids"][str(thread)] == "backlog_napi/1"
    stretches = trace.of(TASK, id=thread, cpu=1)
    assert stretches.size > PACKETS_REALTIME // 4  # one may serve several packets
    assert (stretches["aux"] & SERVED != 0).all()
    packets = [row for row in trace.of(SOFTIRQ, id=NET_RX, cpu=1) if not row["flags"]]
    assert len(packets) < PACKETS_REALTIME // 4
    causes = explained(host)
    assert not [row for row in causes["causes"] if row["detail"] == "backlog_napi/1"]


def explained(host: GuestHost) -> dict[str, Any]:
    words = ["explain", "/run/out/runs/001-threads", "--late", "p95", "--json", "--quiet"]
    found: dict[str, Any] = json.loads(host.run([PROGRAM, *words], seconds=300).stdout)
    return found


SENT_PACKETS, RATE = 400, 200
BACK = 50
ANSWERS = f"""
import socket, subprocess, time
from pathlib import Path

came = Path("/sys/class/net/eth1/statistics/rx_packets")
before = came.read_text()
while came.read_text() == before:
    time.sleep(0.02)
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    out.bind(("eth1", 0))
    for _ in range({BACK}):
        out.send(bytes([255] * 6 + [2] * 6 + [0x88, 0xB5] + [0] * 50))
with open("/root/sockets", "w") as file:
    subprocess.run(["ss", "--xdp", "--extended"], stdout=file)
"""
"""Once packets come to eth1, sends some back and asks the kernel how it has them."""
PREPARE = """
mount -t bpf bpf /sys/fs/bpf
modprobe xsk_diag
# All that comes to eth0 comes by the queue that the generator takes.
ethtool -L eth0 combined 1
for n in 0 1; do ip link set dev eth$n up promisc on; done
"""
SENT = f"""
rm -f /root/tap /root/*.stamps
for _ in $(seq 300); do
    [ "$(grep -l 1 /sys/class/net/eth[01]/carrier | wc -l)" != 2 ] || break
    sleep 0.1
done
{" ".join(TAILTAP)} tap in=eth1:drop back=eth0 --write '/root/{{link}}.stamps' --json \\
    > /root/tap 2>&1 & tap=$!
for _ in $(seq 600); do [ ! -s /root/tap ] || break; sleep 0.1; done
sh -c "$1" & beside=$!
{" ".join(TAILTAP)} generate eth0 --generator af_xdp --rate '{RATE} pkt/s' --count {SENT_PACKETS} \\
    --warm-up '0 s' --cpu "$2" --json > /root/sent
wait $beside
sleep 1
kill -INT $tap
wait $tap || true
"""
DOWN = """
before=$(cat /sys/class/net/eth1/statistics/rx_packets)
while [ "$(cat /sys/class/net/eth1/statistics/rx_packets)" = "$before" ]; do sleep 0.02; done
ip link set dev eth0 down
"""
"""Once packets come to eth1, takes the generator's card down."""
STOPPED = f"""
{" ".join(TAILTAP)} generate eth0 --generator af_xdp --rate '{RATE} pkt/s' --count {SENT_PACKETS} \\
    --warm-up '0 s' --cpu 1 --json > /root/sent & generator=$!
until ip link show dev eth0 | grep -q prog/xdp; do
    [ -d /proc/$generator ]
    sleep 0.02
done
ip link set dev eth0 down
kill -INT $generator
wait $generator || echo "status $?"
"""
"""Tells a generator to end that waits for a link which does not come."""


@pytest.fixture(scope="module")
def card_guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    image = next(KERNEL.glob("vmlinuz-*"), None)
    if image is None:
        pytest.skip("no kernel that drives igb cards so is here: run `make newer-kernel`")
    with machine_with_cards(tmp_path_factory.mktemp("guest"), image=str(image)) as machine:
        machine.run(["sh", "-ec", PREPARE])
        yield machine


def sent(
    card_guest: GuestHost, beside: str, folder: Path, cpus: str = "1"
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """What generator and taps say, and the stamps of eth1, while `beside` runs."""
    done = card_guest.run(["sh", "-ec", SENT, "sent", beside, cpus], check=False, seconds=180)
    said = card_guest.run(["cat", "/root/sent", "/root/tap"]).stdout
    assert done.status == 0, done.stderr + said
    told = json.loads(card_guest.run(["cat", "/root/sent"]).stdout)
    taps = json.loads(card_guest.run(["tail", "-n", "1", "/root/tap"]).stdout)
    card_guest.get(Path("/root/in.stamps"), folder / "in.stamps")
    return told, taps["links"], stamps(folder / "in.stamps")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_card_takes_the_frames_from_the_generator_s_memory(
    card_guest: GuestHost, tmp_path: Path
) -> None:
    """Every packet leaves once, in order, and not before it is due; what comes in gets through."""
    answers = f"exec {sys.executable} -IS -c '{ANSWERS}'"
    told, taps, rows = sent(card_guest, answers, tmp_path)
    assert (told["mode"], told["sent"], told["failed"]) == ("native", SENT_PACKETS, 0)
    assert "zc:1" in card_guest.run(["cat", "/root/sockets"]).stdout
    assert taps["back"]["other"] == BACK
    assert [row["id"] for row in rows] == list(range(SENT_PACKETS))
    gap = 1_000_000_000 // RATE
    late = [row["time_ns"] - told["first_ns"] - gap * row["id"] for row in rows]
    assert min(late) >= told["slip_ns"]["min"] >= 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_thread_has_a_queue_of_the_card(card_guest: GuestHost, tmp_path: Path) -> None:
    """The first queue alone attaches the program of all; no packet is lost when threads end."""
    card_guest.run(["ethtool", "-L", "eth0", "combined", "2"])
    told, _, rows = sent(card_guest, "true", tmp_path, "0-1")
    card_guest.run(["ethtool", "-L", "eth0", "combined", "1"])
    assert (told["mode"], told["threads"], told["failed"]) == ("native", 2, 0)
    ids = [row["id"] for row in rows]
    assert sorted(ids) == list(range(SENT_PACKETS))
    for thread in range(2):
        own = [number for number in ids if number % 2 == thread]
        assert own == sorted(own)
    gap = 1_000_000_000 // RATE
    assert min(row["time_ns"] - told["first_ns"] - gap * row["id"] for row in rows) >= 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_a_card_that_went_down_did_not_take_has_failed_once(
    card_guest: GuestHost, tmp_path: Path
) -> None:
    told, _, rows = sent(card_guest, DOWN, tmp_path)
    card_guest.run(["ip", "link", "set", "dev", "eth0", "up"])
    assert told["failed"] > 0
    assert (told["sent"], told["sent"] + told["failed"]) == (len(rows), SENT_PACKETS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_generator_that_waits_for_its_card_ends_when_it_is_told_to(card_guest: GuestHost) -> None:
    """At once: the card that does not come up would be an error of the status 3 after 20 s."""
    done = card_guest.run(["sh", "-ec", STOPPED], seconds=180)
    card_guest.run(["ip", "link", "set", "dev", "eth0", "up"])
    told = json.loads(card_guest.run(["cat", "/root/sent"]).stdout)
    assert "status 4" in done.stdout, done.stderr
    assert (told["sent"], told["failed"], told["interrupted"]) == (0, 0, True)

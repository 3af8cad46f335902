"""The generator's frames taken from its memory by a card: AF_XDP's zero copy, emulated igb cards.

Linux drives them so from 6.14 on. The emulator tells nothing of how fast that is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated_cards import machine_with_cards
from labtools import TAILTAP, stamps

from tailtap.remote.guest import GuestHost

KERNEL = Path(sys.prefix, "newer-kernel/boot")
PACKETS, RATE = 400, 200
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
{" ".join(TAILTAP)} generate eth0 --generator af_xdp --rate '{RATE} pkt/s' --count {PACKETS} \\
    --warm-up '0 s' --cpu 1 --json > /root/sent
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
{" ".join(TAILTAP)} generate eth0 --generator af_xdp --rate '{RATE} pkt/s' --count {PACKETS} \\
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    image = next(KERNEL.glob("vmlinuz-*"), None)
    if image is None:
        pytest.skip("no kernel that drives igb cards so is here: run `make newer-kernel`")
    with machine_with_cards(tmp_path_factory.mktemp("guest"), image=str(image)) as machine:
        machine.run(["sh", "-ec", PREPARE])
        yield machine


def sent(guest: GuestHost, beside: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """What generator and taps say, and the stamps of eth1, while `beside` runs."""
    done = guest.run(["sh", "-ec", SENT, "sent", beside], check=False, seconds=180)
    said = guest.run(["cat", "/root/sent", "/root/tap"]).stdout
    assert done.status == 0, done.stderr + said
    told = json.loads(guest.run(["cat", "/root/sent"]).stdout)
    taps = json.loads(guest.run(["tail", "-n", "1", "/root/tap"]).stdout)
    guest.get(Path("/root/in.stamps"), folder / "in.stamps")
    return told, taps["links"], stamps(folder / "in.stamps")


def test_a_card_takes_the_frames_from_the_generator_s_memory(
    guest: GuestHost, tmp_path: Path
) -> None:
    """Every packet leaves once, in order, and not before it is due; what comes in gets through."""
    answers = f"exec {sys.executable} -IS -c '{ANSWERS}'"
    told, taps, rows = sent(guest, answers, tmp_path)
    assert (told["mode"], told["sent"], told["failed"]) == ("native", PACKETS, 0)
    assert "zc:1" in guest.run(["cat", "/root/sockets"]).stdout
    assert taps["back"]["other"] == BACK
    assert [row["id"] for row in rows] == list(range(PACKETS))
    gap = 1_000_000_000 // RATE
    late = [row["time_ns"] - told["first_ns"] - gap * row["id"] for row in rows]
    assert min(late) >= told["slip_ns"]["min"] >= 0


def test_what_a_card_that_went_down_did_not_take_has_failed_once(
    guest: GuestHost, tmp_path: Path
) -> None:
    told, _, rows = sent(guest, DOWN, tmp_path)
    guest.run(["ip", "link", "set", "dev", "eth0", "up"])
    assert told["failed"] > 0
    assert (told["sent"], told["sent"] + told["failed"]) == (len(rows), PACKETS)


def test_a_generator_that_waits_for_its_card_ends_when_it_is_told_to(guest: GuestHost) -> None:
    """At once: the card that does not come up would be an error of the status 3 after 20 s."""
    done = guest.run(["sh", "-ec", STOPPED], seconds=180)
    guest.run(["ip", "link", "set", "dev", "eth0", "up"])
    told = json.loads(guest.run(["cat", "/root/sent"]).stdout)
    assert "status 4" in done.stdout, done.stderr
    assert (told["sent"], told["failed"], told["interrupted"]) == (0, 0, True)

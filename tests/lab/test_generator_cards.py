"""Generators that drive their cards themselves, on a testbed with splitters: an emulated machine.

Its cables are hubs, so that a third card sees what both others send.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_cards import SPLIT, machine_with_cards
from forwarders import require
from labtools import TAILTAP, stamps

from tailtap.remote.guest import GuestHost

MOONGEN = Path(__file__).parents[1] / "support/moongen"
SECONDS = 60.0
TESTBED = """
hosts: {here: {}}
cables:
  - {ends: [here:eth1, here:%s], splitter: here:eth4}
  - {ends: [here:eth2, here:eth3], splitter: here:eth5}
roles: {dut: here, generator: here, timestamper: here}
"""
EXPERIMENT = f"""
name: handed-over
dut: {{forwarder: tc-mirred, cpus: [1]}}
traffic:
  generator: external
  external:
    driver: vfio-pci
    begin: 5 min
    sent: "TX.* total ([0-9]+) packets"
    command: >-
      {MOONGEN} /root/MoonGen/examples/moonsniff/traffic-gen.lua {{port}} {{port_back}}
      --time {{seconds}} --rate {{mbit}}
  rate: 200 pkt/s
  size: 104 B
  duration: 2 s
  warm_up: 0 s
  cpu: 0
"""
STATE = """
for n in 0 1 2 3 4 5; do
    readlink /sys/class/net/eth$n/device/driver
    cat /sys/class/net/eth$n/mtu /sys/class/net/eth$n/flags /sys/class/net/eth$n/address
done
ip netns list
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    with machine_with_cards(tmp_path_factory.mktemp("guest"), SPLIT) as machine:
        machine.run(["sh", "-c", "mount -t bpf bpf /sys/fs/bpf"])
        machine.run(["modprobe", "veth"])
        yield machine


def test_a_generator_has_its_cards_for_the_run_and_no_longer(
    guest: GuestHost, tmp_path: Path
) -> None:
    """One of them is given by its address. What the check foresees is what happens."""
    require("testpmd")
    device = "/sys/class/net/eth0/device"
    address = Path(guest.run(["readlink", "-f", device]).stdout.strip()).name
    for name, text in (("lab", TESTBED % address), ("handed", EXPERIMENT)):
        guest.run(["sh", "-c", 'cat > "$1"', "write", f"/root/{name}.yaml"], stdin=text)
    command = [*TAILTAP, "run", "/root/handed.yaml", "--testbed", "/root/lab.yaml"]
    before = guest.run(["sh", "-c", STATE]).stdout
    foreseen = guest.run([*command, "--check", "--json"], check=False, seconds=SECONDS)
    assert json.loads(foreseen.stdout)["can_run"], foreseen.stdout
    done = guest.run([*command, "--out", "/root/out"], check=False, seconds=6 * SECONDS)
    assert guest.run(["sh", "-c", STATE]).stdout == before
    [run] = guest.run(["sh", "-c", "echo /root/out/runs/*"]).stdout.split()
    made = json.loads(guest.run(["cat", f"{run}/run.json"]).stdout)
    assert made["status"] == "done", (made["error"], done.stderr)
    assert made["generator"]["sent"] == 400, made["generator"]
    for side in ("ingress", "egress"):
        guest.get(Path(run, f"{side}.stamps"), tmp_path / side)
        assert stamps(tmp_path / side)["id"].tolist() == list(range(400))
    assert "generator-count" not in {warning["code"] for warning in made["warnings"]}


def test_cards_are_calibrated_and_are_as_they_were(guest: GuestHost) -> None:
    """Each card goes to vfio-pci and back, two have virtual functions, and clocks are read."""
    text = TESTBED % "eth0"
    guest.run(["sh", "-c", 'cat > "$1"', "write", "/root/cards.yaml"], stdin=text)
    words = ["calibrate", "/root/cards.yaml", "--rate", "200 pkt/s", "--length", "2 m", "--json"]
    before = guest.run(["sh", "-c", STATE]).stdout
    done = guest.run([*TAILTAP, *words], check=False, seconds=10 * SECONDS)
    assert guest.run(["sh", "-c", STATE]).stdout == before
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    states: dict[str, list[str]] = {}
    for check in checks:
        states.setdefault(check["area"], []).append(check["state"])
    assert states["cables"] == ["ok"] * 2, checks
    assert states["taps"] == ["ok"] * 2, checks
    assert states["drivers and functions"] == ["ok"] * 8, checks
    assert "ok" in states["clocks of cards"], checks

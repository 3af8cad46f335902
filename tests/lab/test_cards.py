"""DuTs on network cards that the experiment names: lent, cabled, and given back as they were.

Two veth pairs stand for two cables between cards; `test_emulated_cards` has cards on a PCI bus.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from forwarders import require
from killed import killed_at_every_step
from labtools import (
    TAILTAP,
    Machine,
    ids_of,
    own_machine,
    ran,
    record,
    was_made,
    write_experiment,
)

from tailtap.lab.platforms.vm import kernels

PACKETS = 1_000
NAMES = ("card0", "card1", "card2", "card3")
"""The first two are the ends of one cable, the others of another one."""
BEFORE = """
for cable in "0 1" "2 3"; do
    set -- $cable
    ip link add card$1 type veth peer name card$2
done
ip link set dev card1 mtu 1600 address 02:00:00:00:00:01
echo 3 > /sys/class/net/card1/queues/rx-0/rps_cpus
ip link set dev card1 up
ip link set dev card3 promisc on up
ethtool -K card3 gro on
"""
# A view of /sys for the machine's own network namespace; control groups stay where they are.
SYS = """
mkdir /run/tailtap/sys
mount --rbind /sys/fs/cgroup /run/tailtap/sys
mount -t sysfs sysfs /sys
mount --rbind /run/tailtap/sys /sys/fs/cgroup
umount --lazy /run/tailtap/sys
rmdir /run/tailtap/sys
"""
EXPERIMENT = """\
name: cards
dut: {{platform: {platform}, forwarder: {forwarder}, cpus: [1], ports: {dut}}}
traffic: {{rate: 2 kpkt/s, duration: 500 ms, warm_up: 100 ms, cpu: 0{traffic}}}
tap: {{ports: {tap}}}
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    with own_machine() as made:
        for script in (SYS, BEFORE):
            done = made.run("sh", "-ec", script)
            assert was_made(done), done.stderr
        yield made


def experiment(
    platform: str = "bare-metal",
    forwarder: str = "tc-mirred",
    *,
    dut: str = "[card1, card2]",
    tap: str = "[card0, card3]",
    traffic: str = "",
) -> str:
    return EXPERIMENT.format(
        platform=platform, forwarder=forwarder, dut=dut, tap=tap, traffic=traffic
    )


def state(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for link in json.loads(machine.run("ip", "-j", "-d", "link", "show").stdout):
        if link["ifname"] in NAMES:
            files = f"/sys/class/net/{link['ifname']}"
            # Not whether it polls in threads: a veth port forgets that only while XDP runs on it.
            read = machine.run("sh", "-c", f"cat {files}/queues/rx-*/rps_cpus {files}/flags")
            found[link["ifname"]] = (link["mtu"], link["address"], link["promiscuity"], read.stdout)
    assert set(found) == set(NAMES)
    return found


def run(
    machine: Machine, folder: Path, text: str, *, program: Sequence[str] = TAILTAP
) -> tuple[Path, str]:
    """The folder of the only run, and the error on one line."""
    before = state(machine)
    out = folder / "out"
    path = write_experiment(folder, text)
    done = machine.run(*program, "run", str(path), "--out", str(out))
    assert machine.namespaces() == []
    assert state(machine) == before
    return sorted((out / "runs").iterdir())[0], done.stderr


@pytest.mark.usefixtures("huge_pages")
@pytest.mark.parametrize(
    "forwarder",
    [
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("tc-mirred", "kernel-route", "xdp")
        ),
        "testpmd",
    ],
)
def test_all_packets_pass_and_cards_are_given_back(
    machine: Machine, tmp_path: Path, forwarder: str
) -> None:
    require(forwarder)
    made, error = run(machine, tmp_path, experiment(forwarder=forwarder))
    assert record(made)["status"] == "done", error
    assert ids_of(made) == list(range(PACKETS))
    cards = record(made)["platform"]["cards"]
    ports = {port: card["interface"] for port, card in cards.items()}
    assert ports == {"tt-a1": "card0", "tt-in": "card1", "tt-out": "card2", "tt-b0": "card3"}
    assert record(made)["parameters"]["dut"]["ports"] == ["card1", "card2"]


def test_containers_on_cards(machine: Machine, tmp_path: Path) -> None:
    """A line of three whose ends are the cards."""
    text = experiment("container", "kernel-route") + "vary: {dut.line: [3]}\n"
    made, error = run(machine, tmp_path, text)
    assert record(made)["status"] == "done", error
    assert ids_of(made) == list(range(PACKETS))
    links = {tuple(link["ends"]): link.get("cards") for link in record(made)["links"]}
    assert links["tap:tt-a1", "dut1:tt-in"] == ["card0", "card1"]
    assert links["dut3:tt-out", "tap:tt-b0"] == ["card2", "card3"]


def test_a_killed_run_is_cleaned(machine: Machine, tmp_path: Path) -> None:
    before = state(machine)
    path = write_experiment(tmp_path, experiment())
    with machine.held(tmp_path, "run", str(path), "--out", str(tmp_path / "out")) as running:
        running.kill(group=True)
    assert [kind for kind, _ in machine.cleaned()].count("card") == 4
    assert machine.namespaces() == []
    assert state(machine) == before
    assert machine.cleaned() == []


@pytest.mark.slow
def test_cards_that_are_lent_when_it_is_killed_at_any_step_are_given_back(machine: Machine) -> None:
    steps, kinds = killed_at_every_step(machine, "cards")
    assert steps > 100
    assert kinds == {"card", "folder", "journal", "namespace", "link", "value"}


CHANGED = """
from pathlib import Path
from tailtap.host.net.cards import Card

card = Card("card1", "tt-nowhere", "tt-in", 1500)
before = card.read()
assert not card.pending(before)
Path("/sys/class/net/card1/queues/rx-0/rps_cpus").write_text("1")
assert card.pending(before)
"""


def test_a_card_is_not_given_back_before_its_settings_are(machine: Machine) -> None:
    done = machine.run(sys.executable, "-P", "-c", CHANGED)
    assert was_made(done), done.stderr


def test_what_others_set_on_a_card_stays(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, experiment())
    before = state(machine)
    with machine.held(tmp_path, "run", str(path), "--out", str(tmp_path / "out")) as running:
        [dut] = [name for name in machine.namespaces() if name.endswith("-dut")]
        again = machine.tailtap("run", str(path), "--out", str(tmp_path / "second"))
        assert again.returncode == 3
        said = record(next((tmp_path / "second/runs").iterdir()))["error"]
        assert said == (
            f"card card0 is in use by another tailtap, process {running.process.pid}: wait until "
            "it has ended"
        )
        assert machine.run("ip", "-n", dut, "link", "set", "tt-in", "mtu", "1400").returncode == 0
        running.go_on()
        _, stderr = running.ended()
    assert was_made(running.process, stderr), stderr
    assert (
        "tailtap: somebody else changed the card card1, which is left so: mtu is 1400, was 1600 "
        "before tailtap\n"
    ) in stderr
    after = state(machine)
    assert after.pop("card1")[0] == 1400
    assert before.pop("card1")[0] == 1600
    assert after == before


IMPATIENT = """
from tailtap.cli import main
from tailtap.host.net import cards

cards.UP_SECONDS = 5.0
main()
"""
"""`tailtap`, which waits for a card no longer than for a link of the lab."""


def test_a_cable_that_is_not_there(machine: Machine, tmp_path: Path) -> None:
    text = experiment(dut="[card1, card3]", tap="[card2, lonely]")
    assert machine.run("ip", "link", "add", "lonely", "type", "veth").returncode == 0
    made, _ = run(machine, tmp_path, text, program=(sys.executable, "-P", "-c", IMPATIENT))
    error = record(made)["error"]
    assert error.startswith("the link did not come up: interface tt-b0 (the card lonely) of ")
    assert error.endswith(": check the cables and dut.ports, tap.ports")


IN_USE = """
ip link add routed type veth peer name away1
ip addr add 192.0.2.1/24 dev routed && ip link set routed up && ip link set away1 up
ip route add default via 192.0.2.2
ip link add addressed type veth peer name away2 && ip addr add 198.51.100.1/24 dev addressed
ip link add bridge type bridge
ip link add enslaved type veth peer name away3 && ip link set enslaved master bridge
"""
REFUSED = {
    "card9, bare-metal": "there is no interface 'card9' on this machine",
    "routed, bare-metal": "routed has the default route",
    "addressed, bare-metal": "addressed has an IP address",
    "enslaved, bare-metal": "enslaved belongs to bridge",
    "lo, bare-metal": "lo is not Ethernet",
    "card1, vm": "card1 is no network card",
}
"""An interface of a DuT, the DuT's platform, and what is said."""


def test_what_is_in_use_or_no_card_is_refused(machine: Machine, tmp_path: Path) -> None:
    kernels.kernel("vanilla")  # has to be there: `own_machine` has no network to get it from
    assert machine.run("sh", "-ec", IN_USE).returncode == 0
    pairs = [case.split(", ") for case in REFUSED]
    cases = [f"- {{dut.ports: [{name}, card2], dut.platform: {kind}}}" for name, kind in pairs]
    before = state(machine)
    made = ran(tmp_path, experiment() + "\n".join(["cases:", *cases]), machine=machine)
    assert state(machine) == before
    for told, said in zip(made.records, REFUSED.values(), strict=True):
        assert told["error"].startswith(said) and "\n" not in told["error"], told["error"]

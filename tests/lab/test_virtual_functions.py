"""Lines over virtual functions, in a virtual machine whose emulated cards have some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from card_runs import came, run
from emulated_cards import BOTH_ENDS, OF_A_KIND, machine_with_cards
from guest_programs import tailtaps
from virtual_functions import FUNCTIONS, LINES, LINKS, PACKETS, killed_at_steps, state

from tailtap.remote.guest import GuestHost

MOUNT = """
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /var/lib/tailtap
mount -t tmpfs journals /var/lib/tailtap
"""
"""Journals of the machine around it are none of its own."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    with machine_with_cards(tmp_path_factory.mktemp("guest"), BOTH_ENDS) as machine:
        machine.run(["sh", "-ec", MOUNT])
        yield machine


def carries(guest: GuestHost, folder: Path, platform: str, length: int, ends: str) -> None:
    before = state(guest)
    text = LINES.format(platform=platform, length=length, ends=ends)
    [(made, found)] = run(guest, folder, f"{platform}{length}", text)
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(PACKETS))
    assert state(guest) == before
    inner = [link for link in made["links"] if "vlan" in link]
    assert [link["vlan"] for link in inner] == list(range(2, length + 1))
    if length == 1:
        return
    every = made["platform"]["cards"].items()
    cards = {port: card for port, card in every if "function" in card}
    assert {card["driver"] for card in cards.values()} == {"igbvf"}
    count = 2 * (length - 1) + 2 * (ends == FUNCTIONS)
    assert len({card["mac"] for card in cards.values()}) == len(cards) == count
    outer = [cards[port]["card"] for port in ("dut1:tt-in", f"dut{length}:tt-out") if port in cards]
    assert outer == (["eth4", "eth5"] if ends == FUNCTIONS else [])
    for link in inner:
        held = [(cards[port]["card"], cards[port]["function"]) for port in link["ends"]]
        assert held == [(end["card"], end["function"]) for end in link["functions"]]
        assert {cards[port]["vlan"] for port in link["ends"]} == {link["vlan"]}
    # Functions have interrupts of their own.
    assert came(made, "dut2:tt-in") == {2}


LENGTHS = [
    ("container", 2, LINKS),
    ("container", 3, FUNCTIONS),
    ("container", 1, LINKS),
    ("bare-metal", 2, LINKS),
    ("container", 7, LINKS),
    ("bare-metal", 8, FUNCTIONS),
]


@pytest.mark.parametrize(("platform", "length", "ends"), LENGTHS)
def test_a_line_carries_packets(
    guest: GuestHost, tmp_path: Path, platform: str, length: int, ends: str
) -> None:
    carries(guest, tmp_path, platform, length, ends)


def test_what_the_cards_cannot_do_is_told_beforehand(guest: GuestHost, tmp_path: Path) -> None:
    text = LINES.format(platform="bare-metal", length=2, ends=LINKS)
    guest.run(["sh", "-c", 'cat > "$1"', "write", "/root/line.yaml"], stdin=text)
    check = ["run", "/root/line.yaml", "--check", "--json"]
    wrong = {
        "dut.line=9": [
            f"{card} can have 7 virtual functions, and 8 are needed, one for each link between "
            "nodes: take fewer nodes, or another card in dut.over"
            for card in ("eth0", "eth3")
        ],
        "dut.over.sriov=[eth0, eth1]": [
            (
                "eth1 can have no virtual functions (SR-IOV): choose another card, or switch them "
                "on in its firmware"
            )
        ],
        "dut.over.sriov=[eth9, eth3]": [
            (
                "there is no interface 'eth9' on this machine (`ip link` lists them): name another "
                "one in dut.ports, tap.ports or dut.over"
            )
        ],
    }
    calls = [[*check, "--set", setting] for setting in wrong]
    right, *answers = tailtaps(guest, check, *calls)
    assert json.loads(right["out"])["can_run"], right
    for answer, expected in zip(answers, wrong.values(), strict=True):
        assert answer["status"] == 3, answer
        [row] = json.loads(answer["out"])["runs"]
        assert [found["message"] for found in row["problems"]] == expected
    guest.run(["sh", "-c", "echo 1 > /sys/class/net/eth3/device/sriov_numvfs"])
    before = state(guest)
    [refused] = tailtaps(guest, ["run", "/root/line.yaml", "--out", "/root/taken"])
    assert refused["status"] == 3
    assert "eth3 has 1 virtual functions already, which may be in use" in refused["said"]
    assert state(guest) == before
    guest.run(["sh", "-c", "echo 0 > /sys/class/net/eth3/device/sriov_numvfs"])


MIXED = """\
name: mixed
dut: {{forwarder: kernel-route, cpus: [1], over: {{sriov: [eth0, eth3]}}, line: [a, b, c],
  nodes: {nodes}}}
traffic: {{rate: 50 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0}}
"""
MIXES = {
    "between": "{a: {platform: container}, b: {platform: vm, memory: 384 MiB}, c: {}}",
    "first": "{a: {platform: vm, memory: 384 MiB}, b: {platform: container}, c: {}}",
}
"""The last node is a namespace. A first one has a virtual link to the tap as well."""


@pytest.mark.nested
@pytest.mark.parametrize("where", MIXES)
def test_a_virtual_machine_has_functions_passed_through(
    guest: GuestHost, tmp_path: Path, where: str
) -> None:
    before = state(guest)
    [(made, found)] = run(guest, tmp_path, where, MIXED.format(nodes=MIXES[where]))
    assert made["status"] == "done", made["error"]
    assert [row["id"] for row in found] == list(range(100))
    assert state(guest) == before
    [machine] = [node for node in made["nodes"] if node["kind"] == "guest"]
    cards = made["platform"]["cards"]
    passed = {
        port: card["passed_through"] for port, card in cards.items() if "passed_through" in card
    }
    ends = {"between": ["tt-in", "tt-out"], "first": ["tt-out"]}[where]
    assert list(passed) == [f"{machine['name']}:{end}" for end in ends]
    assert {card.get("driver") for port, card in cards.items() if port not in passed} == {"igbvf"}


@pytest.mark.timeout(3600)
def test_killed_at_any_step_it_is_cleaned_up(tmp_path: Path) -> None:
    """At 30 of its some 140 steps: each takes the emulator ten seconds."""
    with machine_with_cards(tmp_path, OF_A_KIND) as machine:
        machine.run(["sh", "-ec", MOUNT])
        told = killed_at_steps(machine, 30)
    assert len(set(told["steps"])) == 30
    assert {"card", "virtual-function", "virtual-functions"} <= set(told["kinds"])

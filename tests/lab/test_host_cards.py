"""Settings that ethtool makes: links of a machine are tuned by `tailtap host`, and put back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from labtools import TAILTAP, Machine, own_machine

SHOWN = "for o in -k -l -c; do for i in one two tap; do ethtool $o $i; done; done; true"
CARDS = ("--interface", "one", "--interface", "two", "--interface", "tap")
FOUR = "numrxqueues 4 numtxqueues 4"
KNOBS = ("card-queues", "receive-merging", "card-splitting", "receive-coalescing")


LINKS = f"""
set -e
mount -t sysfs sysfs /sys
ip link add one {FOUR} type veth peer name two {FOUR}
ip tuntap add tap mode tap
ethtool -L one rx 4 tx 4
ethtool -L two rx 3 tx 4
ethtool -K one gro on
ethtool -K two tso off
ethtool -K one tx-tcp-mangleid-segmentation off
"""
"""A pair with four queues at each end, and a tap device."""


@pytest.fixture
def machine() -> Iterator[Machine]:
    """One with links, and with journals of its own: who reverts finds nobody else's tuning."""
    with own_machine() as made:
        asked(made, "sh", "-c", LINKS)
        yield made


def asked(machine: Machine, *command: str) -> str:
    """What a command says, which must succeed."""
    done = machine.run(*command)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def host(machine: Machine, *words: str) -> str:
    """The same of `tailtap host`."""
    return asked(machine, *TAILTAP, "host", *words)


def shown(machine: Machine) -> str:
    return asked(machine, "sh", "-c", SHOWN)


def rows(machine: Machine, *words: str) -> dict[str, Any]:
    done = machine.tailtap("host", "audit", *words, "--cpus", "1", *CARDS, "--json")
    assert done.returncode in (0, 1), done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["rows"]}


def test_cards_are_tuned_and_put_back(machine: Machine) -> None:
    before = shown(machine)
    found = rows(machine, *KNOBS)
    assert found["card-queues"]["answer"] == "not-met"
    assert found["card-queues"]["value"] == "4 (1), 3 (1)"
    assert found["receive-merging"]["answer"] == "not-applicable"  # it is only to compare
    assert found["receive-coalescing"]["answer"] == "not-applicable"  # no such card here
    apply = ("apply", "card-queues", "receive-merging", "card-splitting", "--cpus", "1", *CARDS)
    host(machine, *apply, "--quiet")
    without = shown(machine)
    assert "generic-receive-offload: on" not in without
    assert rows(machine, "card-queues")["card-queues"]["answer"] == "not-met"  # it disrupts
    host(machine, *apply, "--quiet", "--disruptive")
    assert rows(machine, "card-queues")["card-queues"]["answer"] == "met"
    host(machine, "revert", "--quiet")
    assert shown(machine) == before


def test_what_somebody_else_set_is_left_and_a_card_that_went_is_no_matter(
    machine: Machine,
) -> None:
    apply = ("apply", "card-queues", "--cpus", "1", "--disruptive", "--quiet", *CARDS)
    host(machine, *apply)
    asked(machine, "ethtool", "-L", "one", "rx", "2")
    said = host(machine, "revert")
    assert "one's rx (2, before tailtap 4): it is left as it is" in said
    assert "RX:\t\t2\n" in asked(machine, "ethtool", "-l", "one")
    assert "RX:\t\t3\n" in asked(machine, "ethtool", "-l", "two")
    host(machine, *apply)
    asked(machine, "ip", "link", "del", "one")
    host(machine, "revert", "--quiet")

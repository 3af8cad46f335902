"""Settings that ethtool makes: links of a namespace are tuned by `tailtap host`, and put back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from namespaces import Namespace

SHOWN = "for o in -k -l -c; do for i in one two tap; do ethtool $o $i; done; done; true"
CARDS = ("--interface", "one", "--interface", "two", "--interface", "tap")
FOUR = "numrxqueues 4 numtxqueues 4"
KNOBS = ("card-queues", "receive-merging", "card-splitting", "receive-coalescing")


def shown(namespace: Namespace) -> str:
    return namespace.run("sh", "-c", SHOWN).stdout


def links(namespace: Namespace) -> None:
    """A pair with four queues at each end, and a tap device."""
    for command in (
        f"ip link add one {FOUR} type veth peer name two {FOUR}",
        "ip tuntap add tap mode tap",
        "ethtool -L one rx 4 tx 4",
        "ethtool -L two rx 3 tx 4",
        "ethtool -K one gro on",
        "ethtool -K two tso off",
        "ethtool -K one tx-tcp-mangleid-segmentation off",
    ):
        namespace.run(*command.split())


def rows(namespace: Namespace, *words: str) -> dict[str, Any]:
    done = namespace.tailtap("host", "audit", *words, "--cpus", "1", *CARDS, "--json", check=False)
    assert done.returncode in (0, 1), done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["rows"]}


@pytest.mark.alone
def test_cards_are_tuned_and_put_back(namespace: Namespace) -> None:
    links(namespace)
    before = shown(namespace)
    found = rows(namespace, *KNOBS)
    assert found["card-queues"]["answer"] == "not-met"
    assert found["card-queues"]["value"] == "4 (1), 3 (1)"
    assert found["receive-merging"]["answer"] == "not-applicable"  # it is only to compare
    assert found["receive-coalescing"]["answer"] == "not-applicable"  # no such card here
    asked = ("host", "apply", "card-queues", "receive-merging", "card-splitting", "--cpus", "1")
    namespace.tailtap(*asked, *CARDS, "--quiet")
    without = shown(namespace)
    assert "generic-receive-offload: on" not in without
    assert rows(namespace, "card-queues")["card-queues"]["answer"] == "not-met"  # it disrupts
    namespace.tailtap(*asked, *CARDS, "--quiet", "--disruptive")
    assert rows(namespace, "card-queues")["card-queues"]["answer"] == "met"
    namespace.tailtap("host", "revert", "--quiet")
    assert shown(namespace) == before


@pytest.mark.alone
def test_what_somebody_else_set_is_left_and_a_card_that_went_is_no_matter(
    namespace: Namespace,
) -> None:
    links(namespace)
    asked = ("host", "apply", "card-queues", "--cpus", "1", "--disruptive", "--quiet")
    namespace.tailtap(*asked, *CARDS)
    namespace.run("ethtool", "-L", "one", "rx", "2")
    done = namespace.tailtap("host", "revert")
    assert "one's rx (2, before tailtap 4): it is left as it is" in done.stdout + done.stderr
    assert "RX:\t\t2\n" in namespace.run("ethtool", "-l", "one").stdout
    assert "RX:\t\t3\n" in namespace.run("ethtool", "-l", "two").stdout
    namespace.tailtap(*asked, *CARDS)
    namespace.run("ip", "link", "del", "one")
    namespace.tailtap("host", "revert", "--quiet")

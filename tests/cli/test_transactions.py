"""`tailtap evaluate` of requests and their answers, and what other commands make of it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from captures import pcap
from exchanges import dns, ping
from forms import fits
from program import in_process, one_line_error

START = 1_700_000_000_000_000_000
PINGS = 12_000
Packets = list[tuple[int, bytes]]


def pings(asks: bool) -> Iterator[bytes]:
    """Echo requests 0, 1 and so on, or their replies: scapy's first one with another number.

    The checksum is the complement of a sum of words, and the number one of them.
    """
    first = ping(asks, 0)
    head, checksum, identifier = first[:-6], *struct.unpack(">HH", first[-6:-2])
    for number in range(PINGS):
        less = checksum - number
        yield head + struct.pack(">HHH", less if less > 0 else less + 0xFFFF, identifier, number)


def sides() -> tuple[Packets, Packets]:
    """Requests, and their answers: pings, and queries one of ten of which has none."""
    asks: Packets = []
    says: Packets = []
    for number, (request, reply) in enumerate(zip(pings(True), pings(False), strict=True)):
        time = START + 1_000_000 * number
        asks.append((time, request))
        says.append((time + 50_000 + 10 * (number * 7919 % PINGS), reply))
        if number < 100:
            asks.append((time + 1, dns(True, number, "a.example")))
            if number % 10:
                says.append((time + 300_001, dns(False, number, "a.example")))
    assert ping(False, number) == reply
    return asks, says


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    asks, says = sides()
    (folder / "requests.pcap").write_bytes(pcap(asks))
    (folder / "answers.pcap").write_bytes(pcap(says))
    (folder / "both.pcap").write_bytes(pcap(sorted(asks + says)))
    return folder


def test_one_capture_and_two_directions_give_the_same_and_say_why(captures: Path) -> None:
    both = in_process("evaluate", str(captures / "both.pcap"), "--json", "--quiet")
    pair = [str(captures / f"{name}.pcap") for name in ("requests", "answers")]
    two = in_process("evaluate", *pair, "--json", "--quiet")
    one, other = json.loads(both.stdout), json.loads(two.stdout)
    for content, reason in ((one, "one capture"), (other, "no packet is in both")):
        fits(content)
        assert content["schema"] == "tailtap.transactions/1"
        assert content["reason"].startswith(reason)
    assert one["kinds"] == other["kinds"]
    assert [kind["kind"] for kind in one["kinds"]] == ["dns", "icmp-echo"]
    assert one["kinds"][1]["counts"]["answered"] == PINGS
    error = one_line_error(in_process("evaluate", *pair[::-1], "--match", "transactions"), 2)
    assert "give the capture of the requests first" in error


def test_packets_are_asked_for(captures: Path) -> None:
    pair = [str(captures / f"{name}.pcap") for name in ("requests", "answers")]
    error = one_line_error(in_process("evaluate", *pair, "--match", "packets"), 2)
    assert "no packet of" in error
    error = one_line_error(in_process("evaluate", pair[0], "--match", "packets"), 2)
    assert "--ingress SELECT --egress SELECT" in error


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--egress-ahead", "1 us..2 us"), "transactions are of one clock"),
        (("--jobs", "2"), "in one piece"),
        (("--key", "packet-nat"), "is of packets"),
        (("--window", "1 ns"), "none of"),
    ],
)
def test_what_transactions_do_not_take(captures: Path, more: tuple[str, ...], said: str) -> None:
    done = in_process("evaluate", str(captures / "both.pcap"), "--match", "transactions", *more)
    assert said in one_line_error(done, 2)


def test_other_commands_take_the_folder_of_a_kind(captures: Path, tmp_path: Path) -> None:
    out = tmp_path / "waits"
    both = str(captures / "both.pcap")
    assert in_process("evaluate", both, "--out", str(out), "--quiet").returncode == 0
    fits(json.loads((out / "transactions.json").read_text("utf-8")))
    pings, queries = str(out / "icmp-echo"), str(out / "dns")
    holds = in_process("verdict", pings, "--require", "p99 < 170 us", "--require", "loss == 0")
    assert holds.returncode == 0, holds.stdout
    # Nine of the queries were unanswered for a whole window, and so their loss is sure.
    fails = in_process("verdict", queries, "--require", "loss == 0")
    assert fails.returncode == 1, fails.stdout
    for command in ("model", "report"):
        done = in_process(command, pings)
        assert done.returncode == 0, done.stderr
    directions = [str(captures / f"{name}.pcap") for name in ("requests", "answers")]
    again = tmp_path / "again"
    assert in_process("evaluate", *directions, "--out", str(again), "--quiet").returncode == 0
    compared = in_process("compare", pings, str(again / "icmp-echo"))
    assert compared.returncode == 0, compared.stderr
    other = ("evaluate", both, "--out", str(out), "--window", "2 s")
    error = one_line_error(in_process(*other), 2)
    assert "there is an evaluation with other options in it" in error
    assert in_process(*other, "--replace").returncode == 0

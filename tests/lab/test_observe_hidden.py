"""`tailtap observe` where packets pass programs before its hooks, or pass by these."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from built_devices import DEVICE, SENDER, SINK, Built, bridge, run
from labtools import TAILTAP, Machine, own_machine, record

DROP = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int drop_some(struct xdp_md *packet)
{
    unsigned char *at = (void *)(long)packet->data;

    if ((void *)(at + 46) > (void *)(long)packet->data_end)
        return XDP_PASS;
    return *(__u32 *)(at + 42) % 10 ? XDP_PASS : XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"""
"""Drops the packets whose ids end in 0."""
MACVLAN = """
ip -n device link set in nomaster
ip -n device link add m0 link in type macvlan mode bridge; ip -n device link set m0 netns sink
ip -n sink link set m0 up
"""
NEVER = ("in@arrival", "out@egress", "--key", "moonsniff")
"""Nothing is to be found out, so that nothing is looked at."""


@contextmanager
def device() -> Iterator[tuple[Machine, Built]]:
    with own_machine() as machine:
        yield machine, bridge(machine)


def observe(
    machine: Machine, out: Path, *words: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """What `tailtap observe` says of half a second, looking at packets for 0.2 s."""
    more = ("--for", "500 ms", "--look", "200 ms", "--trace", "none", "--budget", "100 %")
    words = ("observe", "--out", str(out), *more, *words)
    done = machine.tailtap(*words, seconds=280)
    assert done.returncode == status, done.stderr
    return done


def found(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = out / "runs/001-observed"
    evaluation: dict[str, Any] = json.loads((folder / "evaluation/evaluation.json").read_text())
    return record(folder), evaluation


def test_what_an_xdp_program_drops_is_named_and_may_be_lost(tmp_path: Path) -> None:
    (tmp_path / "drop.bpf.c").write_text(DROP)
    program = str(tmp_path / "drop.o")
    compiler = [
        "clang",
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-idirafter",
        f"/usr/include/{os.uname().machine}-linux-gnu",
    ]
    subprocess.run([*compiler, "-c", str(tmp_path / "drop.bpf.c"), "-o", program], check=True)
    out = tmp_path / "out"
    with device() as (machine, built):
        space, port = built.came
        run(machine, f"ip netns exec {space} ip link set dev {port} xdp obj {program} sec xdp")
        with built.sending():
            done = observe(machine, out, *built.words)
    words = "the XDP program drop_some (id "
    before, _, rest = done.stderr.partition("SIGINT (Ctrl-C) ends it")
    assert words in before and words in rest
    kept, evaluation = found(out)
    first, second = kept["observed"]["points"]
    assert first["xdp"][0].startswith("drop_some") and "xdp" not in second
    counts = evaluation["counts"]
    # One for nine that passed; both counts are read beside the stamps, and a busy machine is slow.
    assert counts["lost"] == 0 and counts["matched"] > 500
    assert counts["matched"] / 9 * 0.9 < first["xdp_dropped"] < counts["matched"] / 9 * 3
    assert evaluation["inputs"]["ingress"]["unread"] == {"dropped-by-xdp": first["xdp_dropped"]}
    assert "dropped-before-stamp" in [one["code"] for one in kept["warnings"]]
    verdict = [*TAILTAP, "verdict", str(out), "--require", "loss < 1 %"]
    judged = subprocess.run(verdict, capture_output=True, text=True, check=False)
    assert "not shown" in judged.stdout and f"0 to {first['xdp_dropped']} of" in judged.stdout


@pytest.mark.parametrize("way", ["macvlan", pytest.param("both leave", marks=pytest.mark.slow)])
def test_packets_that_pass_both_interfaces_in_one_direction_are_found(
    way: str, tmp_path: Path
) -> None:
    """A macvlan's packets arrive at its card, and at it. A client's leave it, and the device."""
    with device() as (machine, whole):
        if way == "macvlan":
            run(machine, MACVLAN)
            shown = machine.run("ip", "-n", SINK, "-j", "link", "show", "dev", "m0").stdout
            built = Built(machine, whole.came, (SINK, "m0"), json.loads(shown)[0]["address"])
        else:
            built = Built(machine, (SENDER, "eth0"), whole.left, whole.destination)
        with built.sending():
            observe(machine, tmp_path / "out", *built.words)
    kept, evaluation = found(tmp_path / "out")
    at = "arrival" if way == "macvlan" else "egress"
    assert [point["at"] for point in kept["observed"]["points"]] == [at, at]
    counts = evaluation["counts"]
    assert counts["matched"] > 500 and counts["lost"] == counts["noncausal"] == 0


def test_what_is_sent_past_the_queueing_discipline_is_named(tmp_path: Path) -> None:
    """`tailtap forward` asks for PACKET_QDISC_BYPASS; its packets are seen where they come in."""
    with device() as (machine, built):
        run(machine, "ip -n device link del br0")
        forward = (*TAILTAP, "forward", "in", "out", "--quiet")
        with machine.beside(DEVICE, *forward), built.sending():
            done = observe(machine, tmp_path / "out", *built.words, status=2)
            other = (built.words[0], f"{SINK}/eth0")
            observe(machine, tmp_path / "other", *other)
    assert "out sent" in done.stderr and "PACKET_QDISC_BYPASS" in done.stderr
    assert "key" not in done.stderr
    counts = found(tmp_path / "other")[1]["counts"]
    assert counts["matched"] > 500 and counts["lost"] == 0


def test_interfaces_that_packets_pass_otherwise_are_found(tmp_path: Path) -> None:
    """In the other order they are observed; where none pass, those that have some are named."""
    with device() as (machine, built), built.sending():
        done = observe(machine, tmp_path / "out", *reversed(built.words), "--for", "5 s")
        other = observe(machine, tmp_path / "no", f"{DEVICE}/br0", f"{SENDER}/eth0", status=2)
    assert "packets pass the other way only" in done.stderr
    assert re.search(r"observe: measuring: \d of 5 s, [\d.]+ kpkt/s, p99.* us, worst", done.stderr)
    kept, evaluation = found(tmp_path / "out")
    assert [point["target"] for point in kept["observed"]["points"]] == built.words
    assert evaluation["counts"]["matched"] > 500 and evaluation["counts"]["noncausal"] == 0
    assert f"packets pass {DEVICE}/" in other.stderr and "name two of these" in other.stderr


def test_traffic_that_is_not_there_is_said_and_waited_for(tmp_path: Path) -> None:
    with device() as (machine, built):
        done = observe(machine, tmp_path / "none", *built.words, status=2)
        first, *others = done.stderr.splitlines()
        assert first == f"observe: looking at {' and '.join(built.words)}"
        assert len([line for line in others if "waiting for packets" in line]) == 4
        assert "wait for traffic" in done.stderr and "key" not in done.stderr
        # What ends after the look.
        words = (f"{DEVICE}/{NEVER[0]}", f"{DEVICE}/{NEVER[1]}", *NEVER[2:])
        done = observe(machine, tmp_path / "ended", *words, status=3)
        assert "0 packets came, and 0 left; observe while traffic passes both" in done.stderr

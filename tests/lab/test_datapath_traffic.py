"""The generator with both back ends and the fault injector, judged by the taps around them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import without_af_xdp
from frames import send_frames, udp_frame
from labtools import (
    PATIENCE_SECONDS,
    Machine,
    measured,
    record,
    stamps,
    wait_for,
    write_experiment,
)
from namespaces import TAILTAP, Namespace
from numpy.typing import NDArray
from stamps import read_stamps

SECOND_NS = 1_000_000_000


@pytest.mark.alone
def test_the_rate_is_held_beside_a_tap_that_is_cheap(namespace: Namespace, tmp_path: Path) -> None:
    words = ("--rate", "10 kpkt/s", "--duration", "1 s", "--warm-up", "0.5 s", "--flows", "3")
    sent = namespace.sent(tmp_path, *words, tap=["--cost"])
    report = sent.report
    assert report["schema"] == "tailtap.generator/1"
    assert (report["sent"], report["failed"], report["warm_up"]["sent"]) == (10_000, 0, 5_000)
    assert sent.counts == (10_000, 10_000, 0, 5_000)
    assert not report["interrupted"]

    slip = report["slip_ns"]
    values = [entry["value"] for entry in slip["percentiles"]]
    assert [e["p"] for e in slip["percentiles"]] == [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999]
    assert slip["min"] <= values[0]
    assert values == sorted(values)
    assert values[-1] == slip["max"]

    # The tap sees each packet after it was due and handed over: its slip and then some.
    stamps, late = sent.stamps, sent.since_due_ns(100_000)
    assert np.array_equal(stamps["id"], np.arange(10_000))
    assert late.min() >= slip["min"]
    assert np.quantile(late, 0.5, method="inverted_cdf") >= values[0]
    # Packets that left together count as late as the end of their call, after their stamps.
    assert late.max() >= slip["max"] or report["bunched"]
    # The schedule and the rate are real, not only counted.
    assert np.quantile(late, 0.5) < values[0] + 100_000
    # A shared machine is slower. What the kernel takes to read its clock is in both.
    done = sent.link
    assert 1 < done["cost_floor_ns"] < done["cost_ns"] < 1000
    assert done["cost_floor_ns"] < done["cost_clock_ns"] < 1000
    taken = int(stamps["time"][-1]) - int(stamps["time"][0])
    assert report["achieved_rate"] == pytest.approx(9_999e9 / taken, rel=0.02)


@contextlib.contextmanager
def sending(namespace: Namespace, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A generator whose packets come to `in`, and do not end by themselves."""
    command = (TAILTAP, "generate", "gen", "--rate", "1 kpkt/s", "--duration", "1 h", *options)
    process = subprocess.Popen(
        namespace.inside(*command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: namespace.received("in") > 100, "packets")
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_signal_ends_the_traffic_with_a_report(namespace: Namespace) -> None:
    """The packet that is due next does not leave, whichever device has it already."""
    second = ("gen", "--rate", "20 kpkt/s", "--duration", "1 h", "--generator", "af_xdp")
    with sending(namespace, "--json", "--next", *second) as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    flows = json.loads(out)["flows"]
    assert all(flow["interrupted"] and flow["sent"] > 0 for flow in flows)
    assert sum(flow["sent"] for flow in flows) == namespace.received("in")
    assert err.count("\n") == 1


def test_the_interface_vanishes(namespace: Namespace) -> None:
    with sending(namespace) as process:
        namespace.run("ip", "link", "del", "in")
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 3
    assert "interface gen vanished" in err
    assert err.count("\n") == 1


def test_tags_survive_the_fault_injector(namespace: Namespace, tmp_path: Path) -> None:
    forward = namespace.start("forward", "in", "out", "--drop", "7")
    write = ("--write", f"{tmp_path}/far.stamps", "--count", "2")
    tap = namespace.start("tap", "far:drop", *write)
    tag = bytes.fromhex("81000005")
    frames = [udp_frame(6, tags=tag), udp_frame(7, tags=tag), udp_frame(8, ipv6=True)]
    send_frames(namespace, "gen", frames)
    assert json.loads(tap.ended()[0])["links"]["far"]["seen"] == 2
    assert forward.stop()["dropped"] == 1
    stamps = read_stamps(tmp_path / "far.stamps")[1]
    assert stamps["id"].tolist() == [6, 8]
    assert stamps["len"].tolist() == [len(frames[0]), len(frames[2])]


XDP = ("--generator", "af_xdp")


@pytest.mark.apart
@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ((), {60}),
        (("--size", "imix", "--ip", "6", "--vlan", "3"), {71, 590, 1514}),
        (("--size", "4100 B"), {4096}),
    ],
)
def test_every_packet_arrives_once(
    namespace: Namespace, tmp_path: Path, options: tuple[str, ...], lengths: set[int]
) -> None:
    # More packets than there are chunks: they come back and are used again.
    words = ("--rate", "50 kpkt/s", "--count", "30000", "--warm-up-packets", "100")
    sent = namespace.sent(tmp_path, *words, *XDP, *options, mtu=9000)
    report, found = sent.report, sent.stamps
    assert (report["sent"], report["failed"]) == (30_000, 0)
    assert sent.counts == (30_000, 30_000, 0, 100)
    assert report["generator"] == "af_xdp"
    assert report["mode"] in {"native", "generic"}
    assert np.array_equal(found["id"], np.arange(30_000))
    assert set(found["len"]) == lengths
    assert sent.since_due_ns(20_000).min() >= report["slip_ns"]["min"]


@pytest.mark.apart
def test_what_is_overdue_leaves_together_and_is_told(namespace: Namespace, tmp_path: Path) -> None:
    words = ("--rate", "100 Mpkt/s", "--count", "200000", *XDP)
    sent = namespace.sent(tmp_path, *words, tap=("--records", "1000000"))
    report = sent.report
    assert sent.link["seen"] == report["sent"]
    assert report["sent"] + report["failed"] == 200_000
    assert report["bunched"] > 100_000
    found = sent.stamps
    assert len(np.unique(found["id"])) == report["sent"]
    # The last packet was due after 2 ms, and left as late as the slip says, not earlier.
    late = int(found["time"][-1]) - report["first_ns"] - 10 * int(found["id"][-1])
    assert late <= report["slip_ns"]["max"] + 1_000_000
    assert report["achieved_rate"] < 0.99 * report["scheduled_rate"]
    told = namespace.tailtap("generate", "gen", *words)
    assert "more than this machine can send here" in told.stderr
    assert "overdue packets left together" in told.stderr


@pytest.mark.parametrize("where", ["cpu: 0", "cpus: [0, 1]"])
def test_a_whole_experiment(tmp_path: Path, where: str) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("generator and DuT need a CPU each")
    text = f"""\
name: xdp
dut: {{cpus: [1]}}
traffic: {{generator: af_xdp, rate: 10 kpkt/s, duration: 500 ms, warm_up: 100 ms, {where}}}
"""
    made = measured(tmp_path, text)
    run = made.run
    assert record(run)["generator"]["mode"] in {"native", "generic"}
    assert sorted(row["id"] for row in stamps(run / "egress.stamps")) == list(range(5_000))


WITHOUT = (sys.executable, without_af_xdp.__file__)
"""Starts a command on what is to it a kernel without AF_XDP."""


@pytest.mark.slow
def test_runs_on_a_kernel_without_it(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(
        tmp_path, "name: x\ndut: {cpus: [1]}\ntraffic: {generator: af_xdp, duration: 1 s, cpu: 0}\n"
    )
    whole = machine.run(*WITHOUT, TAILTAP, "run", str(path), "--out", str(tmp_path / "out"))
    doctor = machine.run(*WITHOUT, TAILTAP, "doctor", "--json")
    assert whole.returncode == 3, whole.stderr
    assert "this kernel has no AF_XDP" in whole.stderr + whole.stdout
    assert doctor.returncode == 0, doctor.stderr
    found = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert found["af_xdp"]["state"] == "missing"
    assert found["af_xdp"]["remedy"] == "a kernel with CONFIG_XDP_SOCKETS"


def test_a_queue_that_is_taken_and_an_interface_that_vanishes(namespace: Namespace) -> None:
    command = ("generate", "gen", "--rate", "1 kpkt/s", *XDP)
    with subprocess.Popen(
        namespace.inside(TAILTAP, *command, "--duration", "1 h"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            wait_for(lambda: namespace.received("in") > 100, "packets")
            second = namespace.tailtap(*command, "--count", "1", check=False)
            assert second.returncode == 2, second.stderr
            assert "another AF_XDP socket has queue 0 of interface gen" in second.stderr
            namespace.run("ip", "link", "del", "in")
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 3
    assert "interface gen vanished" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("queues", "back_end"), [(2, "af_xdp"), (4, "af_xdp"), (1, "af_packet")])
def test_threads_share_one_schedule(
    namespace: Namespace, tmp_path: Path, queues: int, back_end: str
) -> None:
    """What an independent recorder says of two threads: ids, their order, the rate, the slip."""
    count, rate, capture = 4_000, 20_000, tmp_path / "x.pcap"
    several = ("numtxqueues", str(queues), "numrxqueues", str(queues))
    namespace.run("ip", "link", "del", "gen")
    namespace.run("ip", "link", "add", "gen", *several, "type", "veth", "peer", "in", *several)
    for end in ("gen", "in"):
        namespace.run("ip", "link", "set", end, "up")
    with namespace.sniffer("in", count, capture):
        ahead = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        words = ("--rate", f"{rate} pkt/s", "--count", str(count), "--generator", back_end)
        sent = namespace.tailtap("generate", "gen", *words, "--cpu", "0-1", "--json")
    report = json.loads(sent.stdout)
    assert (report["threads"], report["sent"], report["failed"]) == (2, count, 0)
    assert report["with_id"] == count
    assert report["achieved_rate"] == pytest.approx(rate, rel=0.2)

    times, ids = recorded(capture)
    assert np.array_equal(np.sort(ids), np.arange(count))
    for thread in range(2):
        assert np.all(np.diff(ids[ids % 2 == thread]) > 0)
    late = times - ahead - report["first_ns"] - ids * (SECOND_NS // rate)
    slip = report["slip_ns"]
    # The recorder's clock has microseconds, and is read beside that of the schedule.
    assert late.min() >= slip["min"] - 2_000
    assert np.quantile(late, 0.5) >= slip["percentiles"][0]["value"] - 2_000
    assert late.max() >= slip["max"] - 2_000 or report["bunched"]


def recorded(capture: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Times (ns) and ids of a pcap of packets of 64 B, read by hand."""
    fields = [("s", "<u4"), ("us", "<u4"), ("lengths", "<u8"), ("headers", "V42"), ("id", "<u4")]
    rows = np.fromfile(capture, [*fields, ("rest", "V14")], offset=24)
    return rows["s"].astype(np.int64) * SECOND_NS + rows["us"] * 1000, rows["id"].astype(np.int64)


def test_more_threads_than_queues_are_refused_until_there_are_as_many(namespace: Namespace) -> None:
    words = "--rate '1 kpkt/s' --count 10 --generator af_xdp --cpu 0-1"
    namespace.run("ethtool", "-L", "gen", "tx", "1")
    said = "2 threads need a queue each, and interface gen sends through 1"
    namespace.refuses((f"generate gen {words}", 2, said))
    refused = namespace.tailtap("generate", "gen", *shlex.split(words), check=False).stderr
    namespace.run(*shlex.split(refused.rpartition("try `")[2].partition("`")[0]))
    namespace.tailtap("generate", "gen", *shlex.split(words))


@pytest.mark.apart
@pytest.mark.parametrize("back_end", ["af_packet", "af_xdp"])
def test_how_fast_is_what_the_kernel_counted(namespace: Namespace, back_end: str) -> None:
    words = ("--how-fast", "--size", "64 B,512 B", "--generator", back_end, "--rate", "2 kpkt/s")
    found = json.loads(namespace.tailtap("generate", "gen", *words, "--cpu", "1", "--json").stdout)
    assert [one["size"] for one in found["sizes"]] == [64, 512]
    least = 0.0
    for one in found["sizes"]:
        assert [at["share"] for at in one["at"]] == [0.1, 0.5, 0.9, None]
        assert [at["rate"] for at in one["at"]][-1] == 2_000
        for at in one["at"][:-1]:
            assert at["rate"] == pytest.approx(at["share"] * one["highest"], abs=1)
            assert 0 < at["achieved_rate"] < 1.01 * at["rate"]
        # Each rate was sent for half a second, and all that was sent arrived.
        least += 0.5 * sum(at["rate"] for at in one["at"])
    assert namespace.received("in") > least

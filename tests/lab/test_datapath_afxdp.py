"""The generator's AF_XDP back end, judged by the taps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import without_af_xdp
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
    assert "overdue and left together" in told.stderr


def test_a_whole_experiment(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("generator and DuT need a CPU each")
    text = """\
name: xdp
dut: {cpus: [1]}
traffic: {generator: af_xdp, rate: 10 kpkt/s, duration: 500 ms, warm_up: 100 ms, cpu: 0}
"""
    made = measured(tmp_path, text)
    run = made.run
    assert record(run)["generator"]["mode"] in {"native", "generic"}
    assert len(stamps(run / "egress.stamps")) == 5_000


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
    namespace.veth("gen", "in")
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

"""Every platform with every forwarder: no packet is lost. New kinds join by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from forwarders import require
from labtools import own_machine, record, stamps, write_experiment
from program import TAILTAP

from tailtap.evaluation import Evaluation
from tailtap.forwarder import FORWARDERS
from tailtap.platform import PLATFORMS

PACKETS = 2_000
OPTIONS = {"external": f'{{command: "{TAILTAP} forward {{ingress}} {{egress}} --cpu {{cpu}}"}}'}
"""What a forwarder cannot do without."""
LACKING = ("is missing on", "this machine cannot", "this kernel has no")
"""How an error begins to say that a capability is missing: the only reasons to skip."""

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="generator and DuT need a CPU each"
)
WITH_DUT = [name for name, kind in PLATFORMS.items() if kind.has_dut]


@pytest.mark.parametrize("forwarder", FORWARDERS)
@pytest.mark.parametrize("platform", WITH_DUT)
def test_no_packet_is_lost(platform: str, forwarder: str, tmp_path: Path) -> None:
    options = OPTIONS.get(forwarder, "{}")
    made = run(platform, forwarder, options, "rate: 2 kpkt/s, duration: 1 s", tmp_path)
    assert [row["id"] for row in stamps(made / "egress.stamps")] == list(range(PACKETS))


@pytest.mark.parametrize("platform", WITH_DUT)
def test_a_drain_time_reaches_the_forwarder(platform: str, tmp_path: Path) -> None:
    options, traffic = "{drain: 100 ms}", "rate: 200 pkt/s, duration: 2 s"
    made = run(platform, "dpdk-l2fwd", options, traffic, tmp_path)
    assert [row["id"] for row in stamps(made / "egress.stamps")] == list(range(400))
    # Whoever comes finds some of the drain time over, on average half of it. No more than 20
    # packets come in that time: 32 would be sent at once.
    assert 25e6 < Evaluation.load(made / "evaluation").mean < 125e6


def run(platform: str, forwarder: str, options: str, traffic: str, tmp_path: Path) -> Path:
    """The folder of a run that was made; skips the test where this machine cannot."""
    require(forwarder)
    text = f"""\
name: matrix
dut:
  platform: {platform}
  forwarder: {forwarder}
  cpus: [1]
  options: {options}
traffic: {{{traffic}, warm_up: 100 ms, cpu: 0}}
"""
    out = tmp_path / "out"
    with own_machine() as machine:
        done = machine.tailtap("run", str(write_experiment(tmp_path, text)), "--out", str(out))
        assert machine.namespaces() == []
    assert (out / "runs").is_dir(), done.stderr
    [made] = (out / "runs").iterdir()
    error = record(made)["error"] or ""
    if any(lacking in error for lacking in LACKING):
        pytest.skip(error)
    assert record(made)["status"] == "done", done.stderr
    return made

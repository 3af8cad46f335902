"""Every platform with every forwarder: no packet is lost. New kinds join by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from forwarders import require
from labtools import own_machine, record, stamps, write_experiment
from program import TAILTAP

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


@pytest.mark.parametrize("forwarder", FORWARDERS)
@pytest.mark.parametrize("platform", [name for name, kind in PLATFORMS.items() if kind.has_dut])
def test_no_packet_is_lost(platform: str, forwarder: str, tmp_path: Path) -> None:
    require(forwarder)
    text = f"""\
name: matrix
dut:
  platform: {platform}
  forwarder: {forwarder}
  cpus: [1]
  options: {OPTIONS.get(forwarder, "{}")}
traffic: {{rate: 2 kpkt/s, duration: 1 s, warm_up: 100 ms, cpu: 0}}
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
    assert [row["id"] for row in stamps(made / "egress.stamps")] == list(range(PACKETS))

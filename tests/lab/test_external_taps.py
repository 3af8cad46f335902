"""Taps of others, on a testbed whose splitters are bridges that flood."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from labtools import Machine, all_came, codes_of, counts_of, record, was_made

MOONSNIFF = Path(__file__).parents[1] / "support/moonsniff"
CABLES = """
for cable in a b; do
    ip link add split-$cable type bridge ageing_time 0
    ip link set split-$cable up
    for end in gen dut seen; do
        ip link add $end-$cable type veth peer name $cable-$end
        ip link set $cable-$end master split-$cable up
    done
done
"""
TESTBED = """
hosts: {here: {}}
cables:
  - {ends: [here:dut-a, here:gen-a], splitter: here:seen-a}
  - {ends: [here:dut-b, here:gen-b], splitter: here:seen-b}
roles: {dut: here, generator: here, timestamper: here}
"""
EXPERIMENT = """
name: sniffed
dut: {{forwarder: tc-mirred, cpus: [1]}}
traffic: {{rate: 2 kpkt/s, duration: 500 ms, warm_up: 0 s, cpu: 0, slip_limit: 1 s}}
tap:
  kind: external
  external:
    ready: ports are up
    settle: 100 ms
    {files}
    command: >-
      {program} examples/moonsniff/sniffer.lua {{before}} {{behind}} --output {{output}}
      --runtime {runtime} {flag}
"""
PCAP = "ingress: -pre.pcap\n    egress: -post.pcap"


@pytest.mark.parametrize(("files", "flag", "kind"), [("", "", "mscap"), (PCAP, "-c", "pcap")])
def test_captures_of_a_recorder_are_evaluated_as_ours(
    machine: Machine, tmp_path: Path, files: str, flag: str, kind: str
) -> None:
    done = sniffed(machine, tmp_path, files=files, flag=flag, runtime="{seconds}")
    assert was_made(done), done.stderr
    [run] = (tmp_path / "out/runs").iterdir()
    assert all_came(run, 1000), counts_of(run)
    assert {path.suffix for path in run.glob("*gress.*")} == {f".{kind}"}
    taps = record(run)["taps"]
    assert [taps[side]["seen"] for side in ("ingress", "egress")] == [1000, 1000] or kind == "pcap"
    assert not {"stamps-lost", "tap-drops"} & set(codes_of(run))
    assert not (run / "recorder").exists()


def test_a_recorder_that_ends_early_costs_the_run(machine: Machine, tmp_path: Path) -> None:
    done = sniffed(machine, tmp_path, files="", flag="", runtime="0.3")
    assert done.returncode == 3
    assert "ended" in done.stderr


def sniffed(machine: Machine, folder: Path, **how: str) -> CompletedProcess[str]:
    assert machine.run("sh", "-ec", CABLES).returncode == 0
    (folder / "lab.yaml").write_text(TESTBED)
    (folder / "sniffed.yaml").write_text(EXPERIMENT.format(program=MOONSNIFF, **how))
    command = ["run", str(folder / "sniffed.yaml"), "--testbed", str(folder / "lab.yaml")]
    foreseen = machine.tailtap(*command, "--check", "--json")
    assert json.loads(foreseen.stdout)["can_run"], foreseen.stdout
    return machine.tailtap(*command, "--out", str(folder / "out"))
